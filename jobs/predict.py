"""Batch inference as a Spark job: the arguments are those of `sparktrain predict`, the session is spark-submit's.

    spark-submit --master yarn jobs/predict.py hdfs:///runs/churn --input hdfs:///customers --output hdfs:///scored

Exit codes are those of `sparktrain predict --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["predict", *sys.argv[1:]]))
