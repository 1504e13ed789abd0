"""Whether a cluster can do what runs need, as a Spark job: the arguments are those of `sparktrain doctor`.

    spark-submit --master yarn --conf spark.executor.instances=4 jobs/doctor.py --dir hdfs:///runs

Exit codes are those of `sparktrain doctor --help`.
"""

import sys

from sparktrain import cli

if __name__ == "__main__":
    sys.exit(cli.main(["doctor", *sys.argv[1:]]))
