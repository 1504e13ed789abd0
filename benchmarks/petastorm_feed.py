"""The feed of petastorm, for benchmarks: a script of its own, for it runs where petastorm does.

    python benchmarks/petastorm_feed.py FOLDER COLUMN_OF_BYTES BATCH

Reads the Parquet files in a folder as `petastorm.spark.spark_dataset_converter.make_tf_dataset` does, once to warm up,
and once for the rate, which it prints as JSON; bytes are decoded after batching.
"""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")

from petastorm import make_batch_reader  # noqa: E402 - after the filter
from petastorm.tf_utils import make_petastorm_dataset  # noqa: E402

import tensorflow as tf  # noqa: E402 isort: skip


def main() -> None:
    folder, column, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    _read(folder, column, batch)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = _read(folder, column, batch)
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))


def _read(folder: str, column: str, batch: int) -> int:
    def decoded(rows):
        return tf.io.decode_raw(getattr(rows, column), tf.uint8), rows.y

    def add(count, *batch):
        return count + tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]

    with make_batch_reader(f"file://{folder}", num_epochs=1, reader_pool_type="thread", workers_count=4) as reader:
        dataset = make_petastorm_dataset(reader).flat_map(tf.data.Dataset.from_tensor_slices).batch(batch)
        return int(dataset.map(decoded).prefetch(tf.data.AUTOTUNE).reduce(tf.constant(0, tf.int64), add))


if __name__ == "__main__":
    main()
