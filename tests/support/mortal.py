"""Drivers in processes of their own, which tests end in every possible way, and what they run.

    python -m tests.support.mortal MODULE:FUNCTION FOLDER

calls the function with FOLDER while a session on two executors is active, and writes what it returns to
FOLDER/result.json.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

import sparktrain as st
import tests
from sparktrain.base.clock import SystemClock, pause
from sparktrain.rundir.journal import reader
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore
from tests.support import drill
from tests.support.processes import Sighted, descendants, wait_until

ENDS = ("python", "jvm", "both", "ctrl-c")
"""The ways to end a driver; the last one is SIGINT, repeated until it ends."""
NAME = "run"
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 240.0


# ---- what drivers run


def sweep(folder: Path) -> Any:
    """Short trials, as many as FOLDER/trials names."""
    space: dict[str, list[Any]] = {"x": list(range(int((folder / "trials").read_text()))), "folder": [str(folder)]}
    return _rows_of(
        st.sweep(marked, space, metric="y", mode="max", dir=str(folder / "runs"), name=NAME, progress=False, preload=[])
    )


def gang(folder: Path) -> Any:
    """A drill of two members, which may not be restarted: what a driver takes along does not count."""
    params = {"folder": str(folder), "strikes": []}
    result = st.run(
        drill.train, params, workers=2, backend="none", preload=["numpy"], max_retries=0, dir=str(folder / "runs"),
        name=NAME, progress=False,
    )  # fmt: skip
    return {"metrics": result.metrics, "restarts": [[each.cause, each.resumed_from_step] for each in result.restarts]}


def resume(folder: Path) -> Any:
    """Resume the run in `folder`, without the program that started it."""
    result = st.resume(str(folder / "runs" / NAME), progress=False)
    if isinstance(result, st.SweepResult):
        return _rows_of(result)
    return {"metrics": result.metrics, "restarts": [[each.cause, each.resumed_from_step] for each in result.restarts]}


def marked(x: int, folder: str, ctx: Any) -> float:
    """A trial that leaves a mark at its start and at its end, and lasts while FOLDER/hold exists."""
    mark(folder, f"start-{x}-{ctx.generation}-{os.getpid()}")
    pause(0.1)
    while Path(folder, "hold").exists():
        pause(0.02)
    mark(folder, f"end-{x}-{ctx.generation}")
    return float(x * x)


def mark(folder: str, name: str) -> None:
    """Write a mark with the time."""
    Path(folder, name).write_text(repr(SystemClock().wall()))


def _rows_of(result: st.SweepResult) -> list[list[Any]]:
    return [[each.params["x"], each.status, each.metrics, each.generations] for each in result.trials]


# ---- drivers, from outside


class Mortal:
    """A driver in a process and a session of its own; `close` leaves nothing of it."""

    def __init__(self, what: str, folder: Path, program: str = "tests.support.mortal") -> None:
        """`program` is the module that calls the function."""
        self._program = program
        self.folder = folder
        self._what = what if ":" in what else f"tests.support.mortal:{what}"
        self._before = self.batches()
        self._seen: dict[int, psutil.Process] = {}
        self.output = folder / f"output-{len(list(folder.glob('output-*')))}.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Mortal":
        """Start the process, and return this object."""
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._program, self._what, str(self.folder)],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The pid of its Python."""
        assert self.process is not None
        return self.process.pid

    def jvm(self) -> int:
        """The pid of its JVM."""
        [jvm] = [each for each in psutil.Process(self.pid).children() if each.name() == "java"]
        return jvm.pid

    def batches(self) -> int:
        """How many batches the journal of its run has."""
        return len(list((self.folder / "runs" / NAME / "journal").glob("batch-*")))

    def journal(self, name: str = NAME) -> JournalContents:
        """The journal of one of its runs."""
        return reader.read(LocalStore(self.folder / "runs"), RunLayout(name).journal)

    def wait(self, condition: Any, what: str) -> None:
        """Wait until `condition` holds; AssertionError, with what it printed, when it ends before."""
        assert self.process is not None
        wait_until(lambda: condition() or self.process.poll() is not None, START_TIMEOUT_S, what)  # type: ignore[union-attr]
        assert condition(), f"{what}; the driver has ended: {self.printed()}"

    def wait_batches(self, more: int) -> None:
        """Wait until this driver has written this many batches, counted from its start."""
        self.wait(lambda: self.batches() >= self._before + more, f"{more} batches")

    def processes(self, words: str = "") -> Sighted:
        """Itself and all below it, or those below it with `words` in their command lines."""
        found = [each.pid for each in descendants(self.pid, words)]
        return Sighted(found if words else [self.pid, *found])

    def members(self) -> Sighted:
        """The processes of its trials, and those that these are forked from."""
        members = self.processes("-m sparktrain.")
        assert members.processes, self.printed()
        return members

    def strike(self, end: str) -> Sighted:
        """End it in the given way, and return all processes that it had."""
        everything = self.processes()
        pids = [] if end == "jvm" else [self.pid]
        if end in ("jvm", "both"):
            pids.append(self.jvm())
        for pid in pids:
            os.kill(pid, signal.SIGINT if end == "ctrl-c" else signal.SIGKILL)
        return everything

    def wait_end(self) -> int:
        """Wait for its end; returns its exit status. AssertionError, with its output, when it does not end."""
        assert self.process is not None
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end: {self.printed()}") from None

    def result(self) -> Any:
        """Wait until it succeeds; returns the function's result."""
        status = self.wait_end()
        assert status == 0, self.printed()
        return json.loads((self.folder / "result.json").read_text())

    def raised(self) -> str:
        """The class and message of the function's exception; empty when it raised none."""
        found = re.search(r"^ended by (.*)$", self.output.read_text(), re.MULTILINE)
        return found[1] if found else ""

    def printed(self) -> str:
        """The end of its output."""
        return self.output.read_text()[-4000:]

    def close(self) -> None:
        """End all its processes that are left."""
        if self.process is not None and self.process.poll() is None:
            left = self.processes()
            os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
            left.kill()
            self.process.wait()


def generations(folder: Path, mark: str) -> dict[int, list[int]]:
    """Of each trial of `marked`, the generations that have left this mark."""
    found: dict[int, list[int]] = {}
    for path in folder.glob(f"{mark}-*"):
        if match := re.fullmatch(rf"{mark}-(\d+)-(\d+)(-\d+)?", path.name):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return {trial: sorted(numbers) for trial, numbers in found.items()}


def call(what: str, folder: Path) -> None:
    """Call the function MODULE:FUNCTION, and write its result to FOLDER/result.json."""
    cloudpickle.register_pickle_by_value(tests)  # its trials import nothing that drivers need
    module, _, name = what.partition(":")
    try:
        returned = getattr(importlib.import_module(module), name)(folder)
    except BaseException as error:
        print(f"ended by {type(error).__name__}: {error}", flush=True)
        raise
    (folder / "result.json").write_text(json.dumps(returned))


def main(what: str, folder: Path) -> None:
    """Run as a driver on Spark."""
    from tests.support.local_spark import ONE_EXECUTOR, spark_session  # drivers without Spark use this module, too

    with spark_session(ONE_EXECUTOR, folder):
        call(what, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
