"""The feed of TensorFlowOnSpark 2.2.5, for benchmarks: its algorithm on this machine, without Spark around it.

    python -m benchmarks.tfos_feed ROWS BATCH {rows,batches}

Its `TFSparkNode.train` runs in a Python worker of Spark, and puts row after row into a queue in the process of a
`TFManager`, a multiprocessing manager; `TFNode.DataFeed.next_batch` in the training process takes them one by one.
`examples/mnist/keras/mnist_spark.py` wraps that into `tf.data.Dataset.from_generator`, a row at a time. Prints the rate
as JSON. A process of its own, because TensorFlow changes malloc for the rest of a process that has used a generator.
"""

import json
import multiprocessing as mp
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing.managers import BaseManager
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import psutil

from benchmarks.member_data import ROW_BYTES, Rate, counted, rate_of

KEY = b"sparktrain"
POLL_S = 0.01


class TFManager(BaseManager):
    """The process that holds the queue."""


_rows: Queue[Any] = Queue()


def _queue() -> Queue[Any]:
    return _rows


TFManager.register("get_queue", callable=_queue)


class _End:
    """The end of the feed; TensorFlowOnSpark sends None."""

    def __init__(self, cpu: float) -> None:
        self.cpu = cpu


def send_rows(address: Any, rows: int, data: bytes) -> None:
    """What the Spark task does with the rows of its partition."""
    manager = TFManager(address, KEY)
    manager.connect()
    queue = manager.get_queue()
    started = time.process_time()
    for number in range(rows):
        queue.put((data[number * ROW_BYTES : (number + 1) * ROW_BYTES], number % 10), block=True)
    queue.put(_End(time.process_time() - started), block=True)


class RowFeed:
    """`TFNode.DataFeed` as far as training uses it."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.end: _End | None = None

    def next_batch(self, size: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < size:
            item = self._queue.get(block=True)
            self._queue.task_done()
            if isinstance(item, _End):
                self.end = item
                break
            found.append(item)
        return found


def main() -> None:
    rows, batch = int(sys.argv[1]), int(sys.argv[2])
    made = _rate(rows, os.urandom(rows * ROW_BYTES), batch, row_by_row=sys.argv[3] == "rows")
    print(json.dumps(msgspec.to_builtins(made)))


def _rate(rows: int, data: bytes, batch: int, row_by_row: bool) -> Rate:
    """The rate of `rows` rows into `tf.data`: as its Keras example reads them, or a batch at a time."""
    context = mp.get_context("spawn")
    with TFManager(authkey=KEY, ctx=context) as manager:
        queue = manager.get_queue()
        feeder = context.Process(target=send_rows, args=(manager.address, rows, data))
        feeder.start()
        feed = RowFeed(queue)
        dataset = _dataset(feed, batch, row_by_row)
        while queue.empty():  # the feeder imports what it needs
            time.sleep(POLL_S)
        holder = psutil.Process(manager._process.pid)
        before = sum(holder.cpu_times()[:2])
        made = rate_of(rows, lambda: counted(dataset))
        feeder.join()
        cpu = made.cpu + feed.end.cpu + sum(holder.cpu_times()[:2]) - before
    return Rate(made.rows, made.seconds, cpu)


def _dataset(feed: RowFeed, batch: int, row_by_row: bool) -> Any:
    import tensorflow as tf

    def rows() -> Iterator[Any]:
        while feed.end is None:
            for x, y in feed.next_batch(1):
                yield np.frombuffer(x, np.uint8), y

    def batches() -> Iterator[Any]:
        while feed.end is None:
            if found := feed.next_batch(batch):
                yield np.stack([np.frombuffer(x, np.uint8) for x, _ in found]), np.array([y for _, y in found])

    shape = [ROW_BYTES] if row_by_row else [None, ROW_BYTES]
    specs = (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:-1], tf.int32))
    dataset = tf.data.Dataset.from_generator(rows if row_by_row else batches, output_signature=specs)
    return dataset.batch(batch) if row_by_row else dataset


if __name__ == "__main__":
    main()
