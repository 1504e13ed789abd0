"""The best trial of a sweep, trained on by a gang, as a Spark job: the arguments are those of `sparktrain refit`.

    spark-submit --master yarn jobs/refit_trial.py hdfs:///runs/mnist --workers 8 --param epochs=100 --name final

Exit codes are those of `sparktrain refit --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["refit", *sys.argv[1:]]))
