"""A Spark job that examines its cluster, and writes the report into a file: `pod_doctor.py FILE ARGUMENTS...`."""

import os
import sys
from pathlib import Path

from sparktrain import cli

if __name__ == "__main__":
    with Path(sys.argv[1]).open("w") as report:
        os.dup2(report.fileno(), 1)
    sys.exit(cli.main(["doctor", "--json", *sys.argv[2:]]))
