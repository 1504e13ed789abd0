"""Training by a gang as a Spark job: the arguments are those of `sparktrain run`, the session is spark-submit's.

    spark-submit --master yarn jobs/run_gang.py train.py:train --workers 4 --param lr=0.01 --dir /shared/runs --name big

Exit codes are those of `sparktrain run --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["run", *sys.argv[1:]]))
