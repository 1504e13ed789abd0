"""Members and feeders of streams as processes of their own, which a test drives line by line, stops and kills."""

import ctypes
import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.threads import spawn
from sparktrain.protocol.certificates import RunCertificates
from sparktrain.protocol.feed_messages import FeedAddress, FeedTicket
from tests.support.hosts import Host

ROOT = Path(__file__).parents[2]
ANSWER_S = 60.0
TOKEN = "token-of-the-run"
ROWS_PER_BATCH = 1000
_SAMPLES = 10
_SAMPLE_S = 0.03
_IDLE_PERCENT = 5.0
FIRST_ROW = 10**9
"""Row i of partition p has the id p * FIRST_ROW + i."""


class LineProcess:
    """A process that answers one line of JSON to each line."""

    MODULE = "tests.support.feeds"
    """Where the process runs."""

    def __init__(self, kind: str, setup: Any, host: Host | None = None, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*(host.enter if host is not None else ()), sys.executable, "-m", self.MODULE, kind],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._received = b""
        data = pickle.dumps(setup)
        assert self.process.stdin is not None
        self.process.stdin.write(len(data).to_bytes(8, "big") + data)

    def ask(self, *command: Any) -> Any:
        """Send a command, and return its answer."""
        self.send(*command)
        return self.answer()

    def send(self, *command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def answer(self, timeout_s: float = ANSWER_S) -> Any:
        """The next line. AssertionError when none comes in time, or the process has ended."""
        assert self.process.stdout is not None
        clock = SystemClock()
        until = clock.now() + timeout_s
        while b"\n" not in self._received:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - clock.now()))
            assert ready, f"no answer within {timeout_s:g} s"
            part = self.process.stdout.read(2**16)
            assert part, f"the process has ended: {self.process.wait(5)}"
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def silent(self, seconds: float) -> bool:
        """Whether it answers nothing for so long."""
        assert self.process.stdout is not None
        return b"\n" not in self._received and not select.select([self.process.stdout], [], [], seconds)[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class FedMember(LineProcess):
    """A process with a feed server, which takes batches on request."""

    def __init__(
        self,
        certificates: RunCertificates,
        lease_s: float = 15.0,
        host: Host | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`env` is added to the environment."""
        self._certificates = certificates
        self._lease_s = lease_s
        address = host.address if host is not None else "127.0.0.1"
        super().__init__("member", (address, certificates.server, TOKEN, lease_s), host, env)
        self.address = FeedAddress(*self.answer())

    def ticket(self, feed: str = "train", *more: "FedMember", **changes: Any) -> FeedTicket:
        """The ticket of feeders for this member and `more`."""
        addresses = tuple(each.address for each in (self, *more))
        return replace(
            FeedTicket(feed, addresses, self._certificates.agent, TOKEN, connect_s=3.0, lease_s=self._lease_s),
            **changes,
        )


class FeederProcess(LineProcess):
    """A process that feeds one partition of numbered rows, and answers with the outcome."""

    def __init__(
        self,
        ticket: FeedTicket,
        partition: int,
        rows: int,
        *,
        attempt: int = 0,
        width: int = 0,
        pause_at: int | None = None,
        seed: int = 0,
        host: Host | None = None,
        batch: int = ROWS_PER_BATCH,
    ) -> None:
        """Before batch `pause_at` it answers "paused", and waits for any line."""
        super().__init__("feeder", (ticket, partition, rows, attempt, width, pause_at, seed, batch), host)


def settled(*processes: LineProcess) -> bool:
    """Whether they wait for a moment: they compute nothing, and no thread of them waits for a core either."""
    found = [psutil.Process(each.process.pid) for each in processes]
    for each in found:
        each.cpu_percent()
    for _ in range(_SAMPLES):
        pause(_SAMPLE_S)
        if any(_runnable(each) for each in found):
            return False
    return all(each.cpu_percent() < _IDLE_PERCENT for each in found)


def _runnable(process: psutil.Process) -> bool:
    """Whether one of its threads runs, or would if a core were free."""
    states = [Path(f"/proc/{process.pid}/task/{each.id}/stat").read_text() for each in process.threads()]
    return any(state.rpartition(")")[2].split()[0] == "R" for state in states)


@contextmanager
def closing_all() -> Iterator[list[LineProcess]]:
    """A list of processes that are ended at the end."""
    started: list[LineProcess] = []
    try:
        yield started
    finally:
        for each in started:
            each.close()


def numbered(partition: int, rows: int, width: int, seed: int, batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
    """The rows of a partition."""
    for start in range(0, rows, batch):
        ids = range(start + seed, min(rows, start + batch) + seed)
        columns = {"id": pa.array([partition * FIRST_ROW + i for i in ids], pa.int64())}
        if width:
            columns["pixels"] = pa.array([b"x" * width] * len(ids), pa.binary(width))
        yield pa.RecordBatch.from_pydict(columns)


def say(answer: Any) -> None:
    """Answer one line."""
    print(json.dumps(answer), flush=True)


def _member(setup: Any) -> None:
    import psutil

    from sparktrain.training.data.stream.feed_server import FeedServer
    from sparktrain.training.data.stream.partition_use import PartitionKey

    host, certificates, token, lease_s = setup
    server = FeedServer(host, certificates, token, lease_s=lease_s, heartbeat_s=min(2.0, lease_s / 4))
    say([server.address.host, server.address.port, server.address.server])
    for line in sys.stdin.buffer:
        match json.loads(line):
            case ["start", feed, epoch]:
                server.feed(feed).start(epoch)
                say(None)
            case ["end", feed, epoch, problem]:
                server.feed(feed).end(epoch, problem)
            case ["stop", feed, epoch]:
                say(server.feed(feed).stop(epoch))
            case ["take", feed, count]:
                taken = [server.feed(feed).take(ANSWER_S) for _ in range(count)]
                say([batch.column("id").to_pylist() for batch in taken if batch is not None])
            case ["complete", feed, epoch, partition]:
                say(server.feed(feed).progress(PartitionKey(epoch, 0, partition)).complete)
            case ["take all", feed]:
                spawn(partial(_take_all, server.feed(feed)), "trainer")
            case ["drain", feed, rows]:
                say(_drained(server.feed(feed), rows))
            case ["streams"]:
                say(server.streams)
            case ["full", feed]:
                say(_full(server.feed(feed)))
            case ["memory"]:
                say(psutil.Process().memory_info().rss)
            case ["allocated"]:
                say(_allocated())


def _take_all(queue: Any) -> None:
    """Answer with ranges of consecutive ids, the first and the last of each, or with an error."""
    try:
        say(_ranges(queue))
    except Exception as error:
        say([type(error).__name__, str(error)])


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _allocated() -> int:
    """The bytes that are allocated, by malloc and by Arrow: how much is free beside them depends on the load."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd) + int(pa.total_allocated_bytes())


def _full(queue: Any) -> bool:
    """Whether each exchange of this feed waits for room: while it does, it does not listen to its peer."""
    with queue._lock:
        return bool(queue._feeders) and not any(feeder.listening for feeder in queue._feeders.values())


def _drained(queue: Any, rows: int) -> int:
    """Take so many rows; returns the largest memory on the way."""
    import psutil

    process, peak = psutil.Process(), 0
    while rows > 0:
        rows -= queue.take(ANSWER_S).num_rows
        peak = max(peak, process.memory_info().rss)
    return peak


def _ranges(queue: Any) -> list[list[int]]:
    ids: list[int] = []
    while (batch := queue.take(ANSWER_S)) is not None:
        ids += batch.column("id").to_pylist()
    ranges: list[list[int]] = []
    for each in sorted(ids):
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return ranges


def _feeder(setup: Any) -> None:
    import psutil

    from sparktrain.cluster.dataframes.feeder import TaskAttempt, feed

    ticket, partition, rows, attempt, width, pause_at, seed, batch_rows = setup

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(numbered(partition, rows, width, seed, batch_rows)):
            if number == pause_at:
                say("paused")
                sys.stdin.buffer.readline()
            yield batch

    try:
        say(["fed", *feed(batches(), ticket, TaskAttempt(partition, attempt, 100 * partition + attempt))])
    except Exception as error:
        say([type(error).__name__, str(error)])
    for line in sys.stdin.buffer:
        assert json.loads(line) == ["memory"]
        say(psutil.Process().memory_info().rss)


def main(kinds: Mapping[str, Callable[[Any], None]]) -> None:
    """Be the process of the kind that the arguments name."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    setup = pickle.loads(sys.stdin.buffer.read(size))
    kinds[sys.argv[1]](setup)


if __name__ == "__main__":
    main({"member": _member, "feeder": _feeder})
