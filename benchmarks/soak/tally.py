"""What a soak has counted so far, and what its processes hold."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

MARK = "SPARKTRAIN_SOAK"
"""An environment variable that all processes below a soak inherit, with the soak's pid."""
SETTLED = 8
"""Rounds after which growth is measured: each kind has run, and caches are filled."""
MOST_GROWTH = {
    "file descriptors of the driver": 16.0,
    "threads of the driver": 16.0,
    "MiB of memory of the driver": 150.0,
    "processes": 4.0,
    "MiB of memory of agents and zygotes": 300.0,
    "MiB of shared memory": 20.0,
    "MiB of temporary files": 50.0,
}
"""How much more there may be than after the first rounds, however many follow."""
ENDS_S = 30.0


class WrongRoundError(AssertionError):
    """A round has another outcome than it must have."""


def check(condition: object, what: str) -> None:
    """Raise WrongRoundError."""
    if not condition:
        raise WrongRoundError(what)


@dataclass
class Tally:
    """What has happened."""

    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    trials: int = 0
    restarts: int = 0
    healed: int = 0
    """Of the restarts, those in which the other members kept their processes."""
    held: list[dict[str, float]] = field(default_factory=list)

    def hold(self, folder: Path) -> None:
        """Record what all processes hold between two rounds. Raises WrongRoundError for more than a bounded growth."""
        self.held.append(held(folder))
        if len(self.held) < 2 * SETTLED:
            return
        for name, most in MOST_GROWTH.items():
            first = max(each[name] for each in self.held[:SETTLED])
            now = median(each[name] for each in self.held[-SETTLED:])
            check(
                now - first <= most,
                f"{now:.0f} {name} are held by the last {SETTLED} rounds, and {first:.0f} by the first {SETTLED}; "
                f"{most:.0f} more are allowed",
            )

    def early(self, name: str) -> float:
        """The most of `name` in the first rounds."""
        return max(each[name] for each in self.held[:SETTLED])

    def late(self, name: str) -> float:
        """The median of `name` in the last rounds."""
        return median(each[name] for each in self.held[-SETTLED:])


def held(folder: Path) -> dict[str, float]:
    """What this process and those below it hold now; the JVMs of Spark and Hadoop count as processes alone."""
    me = psutil.Process()
    below = [each for each in me.children(recursive=True) if _name(each) not in ("", "sh")]
    return {
        "file descriptors of the driver": float(me.num_fds()),
        "threads of the driver": float(me.num_threads()),
        "MiB of memory of the driver": _mib_of([me]),
        "processes": float(len(below)),
        "MiB of memory of agents and zygotes": _mib_of([each for each in below if _name(each) != "java"]),
        "MiB of shared memory": _size(Path("/dev/shm")),
        "MiB of temporary files": _size(folder),
    }


def strays() -> list[psutil.Process]:
    """Processes that this soak started, and that are no longer below it."""
    below = {each.pid for each in psutil.Process().children(recursive=True)} | {os.getpid()}
    found, mark = [], f"{MARK}={os.getpid()}".encode()
    for each in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if each.pid not in below and mark in Path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0"):
                found.append(each)
    return found


def _name(process: psutil.Process) -> str:
    """The name of a process; empty for one that has ended."""
    with suppress(psutil.NoSuchProcess):
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.name())
    return ""


def _mib_of(processes: list[psutil.Process]) -> float:
    """Their memory, each page that several share counted once."""
    total = 0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            total += each.memory_full_info().pss
    return total / 2**20


def _size(folder: Path) -> float:
    """What its files take, without those that go away meanwhile."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += Path(place, name).lstat().st_blocks * 512
    return total / 2**20
