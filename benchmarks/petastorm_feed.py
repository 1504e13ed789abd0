"""The feed of petastorm, for benchmarks: a script of its own, for it runs where petastorm does.

    python benchmarks/petastorm_feed.py FOLDER COLUMN_OF_BYTES BATCH tensorflow|torch

Reads the Parquet files in a folder once to warm up, and once for the rate, which it prints as JSON: for TensorFlow as
`petastorm.spark.spark_dataset_converter.make_tf_dataset` does, with bytes that are decoded after batching; for PyTorch
by a `BatchedDataLoader` of a reader that decodes them. Row groups are shuffled, and rows are not.
"""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402 - after the filter
from petastorm import TransformSpec, make_batch_reader  # noqa: E402
from pyarrow.dataset import dataset  # noqa: E402

WORKERS = 4


def main() -> None:
    folder, column, batch, framework = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    read = {"tensorflow": _read_tensorflow, "torch": _read_torch}[framework]
    read(folder, column, batch)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = read(folder, column, batch)
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))


def _read_tensorflow(folder: str, column: str, batch: int) -> int:
    import tensorflow as tf
    from petastorm.tf_utils import make_petastorm_dataset

    def decoded(rows):
        return tf.io.decode_raw(getattr(rows, column), tf.uint8), rows.y

    def add(count, *batch):
        return count + tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]

    with _reader(folder) as reader:
        rows = make_petastorm_dataset(reader).flat_map(tf.data.Dataset.from_tensor_slices).batch(batch)
        return int(rows.map(decoded).prefetch(tf.data.AUTOTUNE).reduce(tf.constant(0, tf.int64), add))


def _read_torch(folder: str, column: str, batch: int) -> int:
    from petastorm.pytorch import BatchedDataLoader

    def decoded(rows):
        rows[column] = [np.frombuffer(content, np.uint8) for content in rows[column]]
        return rows

    width = len(dataset(folder).head(1)[column][0].as_py())
    spec = TransformSpec(decoded, edit_fields=[(column, np.uint8, (width,), False)])
    with _reader(folder, transform_spec=spec) as reader:
        return sum(len(part["y"]) for part in BatchedDataLoader(reader, batch))


def _reader(folder: str, **options):
    return make_batch_reader(
        f"file://{folder}", num_epochs=1, reader_pool_type="thread", workers_count=WORKERS, **options
    )


if __name__ == "__main__":
    main()
