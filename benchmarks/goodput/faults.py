"""What happens to the hosts of the goodput benchmark: each minute one loses a process, all of them, or its link."""

import json
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.goodput.training import STEPS
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import RunLocation
from tests.faults.standalone import Standalone
from tests.support.hosts import Network

KINDS = ("process", "host", "link")
NOTICE_S = 5.0
AWAY_S = 20.0
"""How long a host is away."""


@dataclass(frozen=True)
class Member:
    """The newest process of a rank."""

    rank: int
    host: int
    pid: int


@dataclass(frozen=True)
class Fault:
    """One loss: its kind, whether it is announced, and the rank of the member that it strikes."""

    kind: str
    announced: bool
    rank: int


def plan(count: int, members: int, seed: int, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """So many losses: as many of each kind as of the others, half of them announced, in an order of the seed."""
    rng = random.Random(seed)
    cases = [(kind, announced) for kind in kinds for announced in (False, True)]
    chosen: list[tuple[str, bool]] = []
    while len(chosen) < count:
        chosen += rng.sample(cases, len(cases))
    return [Fault(kind, announced, rng.randrange(members)) for kind, announced in chosen[:count]]


def members(folder: Path) -> dict[int, Member]:
    """The newest process of each rank."""
    newest: dict[int, Member] = {}
    for path in sorted(folder.glob(f"*.{STEPS}"), key=lambda path: path.stat().st_mtime):
        with suppress(ValueError, IndexError):
            first = json.loads(path.read_text().splitlines()[0])
            newest[first["rank"]] = Member(first["rank"], int(first["host"].removeprefix("host-")), first["pid"])
    return newest


class Striker:
    """Lets the losses of a plan happen to a gang, one each interval."""

    def __init__(self, network: Network, spark: Standalone, workers: int, run: RunLocation, folder: Path) -> None:
        """`workers` is the number of Spark's workers on each host."""
        self._network = network
        self._spark = spark
        self._workers = workers
        self._run = run
        self._folder = folder
        self._stopped = threading.Event()

    def strike_all(self, faults: list[Fault], interval_s: float) -> None:
        """One loss each `interval_s`. Blocks; ends early after `stop`."""
        first = time.monotonic()
        for number, fault in enumerate(faults):
            if self._stopped.wait(max(0.0, first + (number + 0.5) * interval_s - time.monotonic())):
                return
            member = members(self._folder)[fault.rank]
            print(f"{fault.kind} of rank {fault.rank} on host-{member.host}", end="", flush=True)
            print(f", announced {NOTICE_S:g} s before" if fault.announced else "", flush=True)
            self.strike(fault, member)

    def stop(self) -> None:
        """No further loss."""
        self._stopped.set()

    def strike(self, fault: Fault, member: Member) -> None:
        """One loss. Blocks until the host is back."""
        host = f"host-{member.host}"
        announcing = threading.Thread(target=self._announce, args=(host,)) if fault.announced else None
        if announcing is not None:
            announcing.start()
            self._stopped.wait(NOTICE_S)
        if fault.kind == "process":
            with suppress(psutil.NoSuchProcess):  # after an announcement it may have moved, and be gone
                psutil.Process(member.pid).kill()
        elif fault.kind == "link":
            with self._network.cut(member.host):
                self._stopped.wait(AWAY_S)
        else:
            self._lose_host(member.host)
        if announcing is not None:
            announcing.join()
            drain(self._run, host, None, cancels=True)

    def _announce(self, host: str) -> None:
        drain(self._run, host, None)

    def _lose_host(self, number: int) -> None:
        """A host without power: its processes are gone, and no message reports that."""
        with self._network.cut(number):
            workers = range(number * self._workers, (number + 1) * self._workers)
            for worker in workers:
                self._spark.kill_worker(worker)
            self._stopped.wait(AWAY_S)
        for worker in workers:
            self._spark.start_worker(worker)
