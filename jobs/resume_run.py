"""Resumes a run after its driver was lost, as a Spark job: the arguments are those of `sparktrain resume`.

    spark-submit --master yarn jobs/resume_run.py hdfs:///runs/big

Exit codes are those of `sparktrain resume --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["resume", *sys.argv[1:]]))
