"""Horovod's own launcher on Spark, `horovod.spark.run`, for `benchmarks.first_allreduce`: prints seconds as JSON.

    python -m benchmarks.horovod_spark CALLS

On `local[2]`, with the wheel that `make horovod` builds: on executors in separate processes it never ends.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import horovod.spark

from tests.support.local_spark import spark_session


def first() -> float:
    """When a member's first allreduce ended."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    hvd.allreduce(tf.ones([1]))
    return time.time()


def main(calls: int) -> None:
    taken = []
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as folder,
        spark_session("local[2]", Path(folder), {"spark.log.level": "ERROR"}) as spark,
    ):
        spark.range(0, 2, 1, 2).count()
        for _ in range(calls):
            started_at = time.time()
            ended = horovod.spark.run(first, num_proc=2, use_gloo=True, verbose=0)
            taken.append(max(ended) - started_at)
    print(json.dumps(taken))


if __name__ == "__main__":
    main(int(sys.argv[1]))
