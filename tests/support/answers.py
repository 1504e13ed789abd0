"""Members that answer rows by a `DataFeed`, and tasks that infer, as processes that a test drives, stops and kills."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.protocol.certificates import RunCertificates
from sparktrain.protocol.feed_messages import FeedAddress, FeedDirectory, FeedTicket
from tests.support.feeds import TOKEN, LineProcess, main, say

if TYPE_CHECKING:
    from sparktrain.tensorflowonspark.node_handle import NodeHandle

FEED = "input"


@dataclass(frozen=True)
class Function:
    """How the training function of a member reads and answers."""

    batch: int = 100
    train_mode: bool = False
    gated: bool = False
    """Each batch waits until the test allows it."""
    missing: int = 0
    """So many results too few."""
    terminates_after: int | None = None
    """It needs no more rows after so many batches."""


class AnsweringMember(LineProcess):
    """A process that squares the numbers of its feed, and returns them."""

    MODULE = "tests.support.answers"

    def __init__(self, certificates: RunCertificates, function: Function | None = None, lease_s: float = 15.0) -> None:
        self._certificates = certificates
        self._lease_s = lease_s
        super().__init__("member", (certificates.server, function or Function(), lease_s))
        self.address = FeedAddress(*self.answer())

    def ticket(self, *more: "AnsweringMember", **changes: Any) -> FeedTicket:
        """The ticket of tasks for this member and `more`."""
        addresses = tuple(each.address for each in (self, *more))
        return replace(
            FeedTicket(FEED, addresses, self._certificates.agent, TOKEN, connect_s=3.0, lease_s=self._lease_s),
            **changes,
        )

    def allow(self, batches: int) -> None:
        """Let a gated function answer so many batches more."""
        self.send("allow", batches)

    def end(self) -> list[Any]:
        """End the feed; returns rows, batches, and the batches of rows of several partitions."""
        found: list[Any] = self.ask("end")
        return found


class InferringTask(LineProcess):
    """A process that infers one partition of numbers, and answers `["inferred", rows, right]`, or its error."""

    MODULE = "tests.support.answers"

    def __init__(
        self,
        ticket: FeedTicket,
        directory: FeedDirectory,
        partition: int,
        rows: int,
        *,
        attempt: int = 0,
        width: int = 0,
        pause_at: int | None = None,
    ) -> None:
        """After `pause_at` results it answers "paused", and waits for any line. Each row has `width` bytes more."""
        super().__init__("task", (ticket, directory, partition, rows, attempt, width, pause_at))


def _handle(queue: Any) -> "NodeHandle":
    """`ctx.mgr` of a member with the feed `queue`."""
    from sparktrain.tensorflowonspark.node_handle import NodeHandle
    from sparktrain.training.data.stream.epoch_reader import RowWait
    from sparktrain.training.data.stream.feed_reader import FeedReader, alone
    from sparktrain.training.data.stream.stream_data import StreamData

    reader = FeedReader(queue, lambda epoch, phase: None, RowWait(lambda waiting: None, SystemClock()))
    data = StreamData(FEED, (), reader, alone, 1)
    return NodeHandle((FEED,), lambda name: data)


class _Square:
    """The training function."""

    def __init__(self, queue: Any, function: Function) -> None:
        from sparktrain.tensorflowonspark.TFNode import DataFeed

        self._feed = DataFeed(_handle(queue), function.train_mode)
        self._function = function
        self._allowed = threading.Semaphore(0)
        self.rows = self.batches = self.mixed = 0

    def allow(self, batches: int) -> None:
        self._allowed.release(batches)

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:
            say([type(error).__name__, str(error)])
        else:
            say([self.rows, self.batches, self.mixed])

    def _read(self) -> None:
        wanted = self._function
        while not self._feed.should_stop():
            rows: Any = self._feed.next_batch(wanted.batch)
            if not rows:
                continue
            if wanted.gated:
                self._allowed.acquire()
            self.rows, self.batches = self.rows + len(rows), self.batches + 1
            self.mixed += len({row[0] for row in rows}) > 1
            if self.batches == wanted.terminates_after:
                self._feed.terminate()
            self._feed.batch_results([row[1] ** 2 for row in rows][wanted.missing :])


def _member(setup: Any) -> None:
    import psutil

    from sparktrain.training.data.stream.feed_server import FeedServer

    certificates, function, lease_s = setup
    server = FeedServer("127.0.0.1", certificates, TOKEN, lease_s=lease_s, heartbeat_s=min(2.0, lease_s / 4))
    queue = server.feed(FEED)
    square = _Square(queue, function)
    spawn(square.run, "trainer")
    ended = threading.Event()
    spawn(lambda: _look(server, ended), "looks")
    say([server.address.host, server.address.port, server.address.server])
    for line in sys.stdin.buffer:
        match json.loads(line):
            case ["allow", batches]:
                square.allow(batches)
            case ["end"]:
                queue.end(1)
            case ["served"]:
                say(square.rows)
            case ["streams"]:
                say(server.streams)
            case ["memory"]:
                say(psutil.Process().memory_info().rss)
    ended.set()


def _look(server: Any, ended: threading.Event) -> None:
    """What the member's thread for the driver's messages does."""
    while not ended.wait(0.1):
        server.look()


def _task(setup: Any) -> None:
    import psutil

    from sparktrain.cluster.dataframes.answered_feed import infer
    from sparktrain.cluster.dataframes.feeder import TaskAttempt

    ticket, directory, partition, rows, attempt, width, pause_at = setup
    this = TaskAttempt(partition, attempt, 100 * partition + attempt)
    count, right = 0, True
    try:
        for found in infer(_numbers(partition, rows, width), ticket, directory, this):
            right = right and found == count**2
            count += 1
            if count == pause_at:
                say("paused")
                sys.stdin.buffer.readline()
        say(["inferred", count, right])
    except Exception as error:
        say([type(error).__name__, str(error)])
    for line in sys.stdin.buffer:
        assert json.loads(line) == ["memory"]
        say(psutil.Process().memory_info().rss)


def _numbers(partition: int, rows: int, width: int) -> Iterator[tuple[int, int, bytes]]:
    for number in range(rows):
        yield partition, number, number.to_bytes(8, "big") * (width // 8)


if __name__ == "__main__":
    main({"member": _member, "task": _task})
