"""Rows of 784 bytes from feeder processes into a member over Flight: rows a second, and the member's peak memory.

`python -m benchmarks.stream` sends 1 million rows; `--rows 10000000` shows that memory stays flat. Feeders repeat one
batch that is ready, so that the numbers are those of the stream and not of Spark.
"""

import argparse
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
import psutil
import pyarrow as pa

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.cluster.dataframes.feeder import TaskAttempt, feed
from sparktrain.executor.zygote_process import resource_limits
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedTicket
from sparktrain.training.data.stream.feed_server import FeedServer

WIDTH = 784
BATCH_ROWS = 10_000
"""As Spark cuts them (`spark.sql.execution.arrow.maxRecordsPerBatch`)."""
LOOK_S = 0.05


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """One batch, again and again, up to `rows`."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_ROWS, WIDTH), np.uint8)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), BATCH_ROWS, [None, pa.py_buffer(pixels)])
    one = pa.RecordBatch.from_pydict({"pixels": values, "label": pa.array(np.arange(BATCH_ROWS, dtype=np.int32))})
    for start in range(0, rows, BATCH_ROWS):
        yield one.slice(0, min(BATCH_ROWS, rows - start))


def send(ticket: FeedTicket, partition: int, rows: int) -> None:
    """Feed one partition; runs in a process of its own."""
    feed(batches(rows), ticket, TaskAttempt(partition, 0, partition))


def watch(peak: list[int], done: threading.Event) -> None:
    """Keep the largest memory of this process in `peak`, from its start in `peak[0]`."""
    process = psutil.Process()
    while not done.wait(LOOK_S):
        peak[0] = max(peak[0], process.memory_info().rss)


def main() -> None:
    """Send, receive, print."""
    if limits := resource_limits(os.cpu_count()):  # malloc reads the environment of members before anything else
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.stream", *sys.argv[1:]], {**os.environ, **limits})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--feeders", type=int, default=2, help="processes that send at the same time")
    wanted = parser.parse_args()
    made = issue("benchmark")
    server = FeedServer("127.0.0.1", made.server, "token")
    queue = server.feed("train")
    queue.start(1)
    ticket = FeedTicket("train", (server.address,), made.agent, "token")
    each = wanted.rows // wanted.feeders
    context = multiprocessing.get_context("spawn")
    feeders = [context.Process(target=send, args=(ticket, number, each)) for number in range(wanted.feeders)]
    for process in feeders:
        process.start()
    first = queue.take()  # from here on: the start of processes is no part of the rate
    assert first is not None
    clock, done = SystemClock(), threading.Event()
    before, started, cpu = psutil.Process().memory_info().rss, clock.now(), os.times()
    peak, rows, checked = [before], first.num_rows, 0
    spawn(lambda: watch(peak, done), "peak")
    while rows < each * wanted.feeders:
        batch = queue.take()
        assert batch is not None
        rows += batch.num_rows
        checked += int(np.frombuffer(batch.column(0).buffers()[1], np.uint8)[0])
    seconds, used = clock.now() - started, os.times()
    done.set()
    for process in feeders:
        process.join(60)
    server.close()
    cpu_us = (used.user - cpu.user + used.system - cpu.system) / rows * 1e6
    print(f"{rows:,} rows of {WIDTH} bytes, {wanted.feeders} feeders, TLS: {rows / seconds / 1e3:,.0f}k rows/s")
    print(
        f"member: {cpu_us:.2f} us of CPU a row; memory {before / 2**20:.0f} MiB before, {peak[0] / 2**20:.0f} MiB peak"
    )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
