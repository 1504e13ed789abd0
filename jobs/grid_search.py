"""A hyperparameter sweep as a Spark job: the arguments are those of `sparktrain sweep`, the session is spark-submit's.

    spark-submit --master yarn jobs/grid_search.py train.py:train --grid lr=0.1,0.01 --metric loss --dir /shared/runs

Exit codes are those of `sparktrain sweep --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["sweep", *sys.argv[1:]]))
