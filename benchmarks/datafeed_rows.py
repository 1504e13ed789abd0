"""`DataFeed` of TFCluster programs: rows into a training function, and rows with results, without Spark around it.

`python -m benchmarks.datafeed_rows` feeds rows of 784 bytes to `next_batch(100)`, once through a member of this package
and once through a queue of rows in a manager process, as TensorFlowOnSpark does; then it answers small rows, as
`cluster.inference` does. The member is this process, and the tasks are processes of their own.
"""

import argparse
import multiprocessing as mp
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.tfos_feed import KEY, RowFeed, TFManager, send_rows
from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.threads import spawn
from sparktrain.cluster.dataframes.answered_feed import infer
from sparktrain.cluster.dataframes.feeder import TaskAttempt, feed
from sparktrain.config.store_address import StoreAddress
from sparktrain.executor.zygote_process import resource_limits
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedDirectory, FeedTicket
from sparktrain.protocol.row_pickles import pickled
from sparktrain.tensorflowonspark.TFNode import DataFeed
from sparktrain.training.data.stream.epoch_reader import RowWait
from sparktrain.training.data.stream.feed_reader import FeedReader, alone
from sparktrain.training.data.stream.feed_server import FeedServer
from sparktrain.training.data.stream.stream_data import StreamData

WIDTH = 784
BATCH = 100
TASKS = 2
WANTED_ROWS, WANTED_TIMES, WANTED_RESULTS = 60_000, 25, 100_000
QUEUE_LOOK_S = 0.01


class Member:
    """This process as a member, and the processes that feed it once it asks for rows."""

    def __init__(self, work: Callable[..., None], *arguments: Any, rows: int) -> None:
        """Each process runs `work(*arguments, ticket, partition, rows)`; all have `rows` together."""
        self._work = partial(work, *arguments)
        self._rows = rows // TASKS
        self._tasks: list[BaseProcess] = []
        made = issue("benchmark")
        self._server = FeedServer("127.0.0.1", made.server, "token")
        self.queue = self._server.feed("input")
        reader = FeedReader(self.queue, self._on_phase, RowWait(lambda waiting: None, SystemClock()))
        self._data = StreamData("input", (), reader, alone, 1)
        self._ticket = FeedTicket("input", (self._server.address,), made.agent, "token")

    def stream(self, qname: str) -> StreamData:
        """As `ctx.mgr` does."""
        return self._data

    def close(self) -> None:
        """Wait for the processes, which have fed all rows, and stop listening."""
        for each in self._tasks:
            each.join(60)
        self._server.close()

    def _on_phase(self, epoch: int, phase: str) -> None:
        """Start the processes when the function asks for the feed, and end it with them."""
        if phase != "asked":
            return
        context = mp.get_context("spawn")
        for partition in range(TASKS):
            self._tasks.append(context.Process(target=self._work, args=(self._ticket, partition, self._rows)))
            self._tasks[-1].start()
        spawn(self._end, "benchmark-tasks")

    def _end(self) -> None:
        for each in self._tasks:
            each.join()
        self.queue.end(1)


def rows_of(partition: int, rows: int) -> Iterator[tuple[bytes, int]]:
    """Rows as of a partition of an RDD: an image and its label."""
    data = os.urandom(2**20 + WIDTH)
    return ((data[(at := number * 97 % 2**20) : at + WIDTH], number % 10) for number in range(rows))


def send(ticket: FeedTicket, partition: int, rows: int) -> None:
    """Feed one partition, as a task of `cluster.train` does; runs in a process of its own."""
    feed(pickled(rows_of(partition, rows)), ticket, TaskAttempt(partition, 0, partition))


def ask(directory: FeedDirectory, ticket: FeedTicket, partition: int, rows: int) -> None:
    """Infer one partition, as a task of `cluster.inference` does; runs in a process of its own."""
    found = infer(range(rows), ticket, directory, TaskAttempt(partition, 0, partition))
    assert sum(found) == rows * (rows - 1)


def fed(rows: int) -> float:
    """Rows a second of `DataFeed.next_batch` of this package; the start of processes is no part of them."""
    member = Member(send, rows=rows)
    data, clock = DataFeed(member), SystemClock()
    first = count = len(data.next_batch(BATCH))
    started = clock.now()
    while count < rows:
        found = data.next_batch(BATCH)
        assert len(found[-1][0]) == WIDTH
        count += len(found)
    seconds = clock.now() - started
    member.close()
    return (count - first) / seconds


def queued(rows: int) -> float:
    """Rows a second of a queue of rows in a manager process."""
    context = mp.get_context("spawn")
    with TFManager(authkey=KEY, ctx=context) as manager:
        queue = manager.get_queue()
        task = context.Process(target=send_rows, args=(manager.address, rows, os.urandom(rows * WIDTH)))
        task.start()
        while queue.empty():  # the task imports what it needs
            pause(QUEUE_LOOK_S)
        data, clock = RowFeed(queue), SystemClock()
        started, count = clock.now(), 0
        while data.end is None:
            count += len(data.next_batch(BATCH))
        seconds = clock.now() - started
        task.join()
    return count / seconds


def answered(rows: int, batch: int) -> float:
    """Rows a second that get results, from the first batch on."""
    with tempfile.TemporaryDirectory() as folder:
        member = Member(ask, FeedDirectory(StoreAddress(folder), "feeds/input"), rows=rows)
        data, clock = DataFeed(member, train_mode=False), SystemClock()
        first = data.next_batch(batch)
        started, count = clock.now(), 0
        while (found := first or data.next_batch(batch)) and count < rows:
            data.batch_results([2 * each for each in found])
            count, first = count + len(found), []
        seconds = clock.now() - started
        member.close()
    return count / seconds


def main() -> None:
    """Feed, answer, print."""
    if limits := resource_limits(os.cpu_count()):  # malloc reads the environment of members before anything else
        command = [sys.executable, "-m", "benchmarks.datafeed_rows", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **limits})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--queued", type=int, default=20_000, help="rows through the queue of rows")
    parser.add_argument("--answered", type=int, default=1_000_000, help="small rows that get results")
    wanted = parser.parse_args()
    ours, theirs = fed(wanted.rows), queued(wanted.queued)
    print(f"next_batch({BATCH}) of {WIDTH}-byte rows: {ours:,.0f} rows/s (target {WANTED_ROWS:,})")
    print(f"a queue of rows: {theirs:,.0f} rows/s; ours is {ours / theirs:.0f} times as fast (target {WANTED_TIMES})")
    for batch in (100, 1000):
        results = answered(wanted.answered, batch)
        print(f"results for batches of {batch} small rows: {results:,.0f} rows/s (target {WANTED_RESULTS:,})")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
