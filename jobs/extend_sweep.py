"""More trials for a sweep that has ended, as a Spark job: the arguments are those of `sparktrain extend`.

    spark-submit --master yarn jobs/extend_sweep.py hdfs:///runs/mnist --trials 40

Exit codes are those of `sparktrain extend --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["extend", *sys.argv[1:]]))
