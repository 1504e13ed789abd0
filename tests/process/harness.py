"""Trials in real processes, and the check that no process of theirs is left: shared by the tests of this ring."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.executor.zygote_process import MemberProcess, ZygoteProcess
from sparktrain.protocol import pipe_messages as m
from sparktrain.state.agent_messages import Standing
from sparktrain.state.outcome import Failure, Outcome, Report
from tests.support.member_calls import member_call

GONE_WITHIN_S = 2.0
MEMBER = Member(RunId("run"), TrialId(3), Generation(1))
MARK = "SPARKTRAIN_TEST_MARK"
"""A variable in the environment of a zygote, which every process below it inherits."""


@dataclass
class Trial:
    """The messages of one member, as its agent gets them."""

    home: Path
    pid: int = 0
    entered: bool = False
    ports: list[int] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    outcome: Outcome | None = None
    exited: m.Exited | None = None

    @property
    def log(self) -> str:
        return (self.home / "log.txt").read_text(errors="backslashreplace")

    @property
    def metrics(self) -> dict[str, float]:
        assert self.outcome is not None
        assert self.outcome.metrics is not None, self.outcome.failure
        return self.outcome.metrics

    @property
    def failure(self) -> Failure:
        assert self.outcome is not None
        assert self.outcome.failure is not None, self.outcome.metrics
        return self.outcome.failure


def assignment(home: Path, function: Callable[..., Any] | str | bytes, **changes: Any) -> m.Assignment:
    """The assignment of a member that calls `function` and has its files below `home`, but for `changes`.

    `function` is a callable, a reference, or what the serializer has made.
    """
    for folder in ("work", "files"):
        (home / folder).mkdir(parents=True)
    by_reference = isinstance(function, str)
    if not isinstance(function, bytes):
        function = function.encode() if isinstance(function, str) else cloudpickle.dumps(function)
    (home / "function").write_bytes(function)
    code = m.LocalCode(str(home / "function"), by_reference, changes.pop("sys_path", ()))
    of_agent = {name: changes.pop(name) for name in m.Assignment.__struct_fields__ if name in changes}
    values = {
        "member": MEMBER,
        "call": member_call(**({"seed": 11} | changes)),
        "code": code,
        "work_dir": str(home / "work"),
        "log_dir": str(home / "files"),
        "log_path": str(home / "log.txt"),
    }
    return m.Assignment(**(values | of_agent))


@dataclass
class Bench:
    """A zygote, and the trials that run in its children one after the other."""

    zygote: ZygoteProcess
    folder: Path
    count: int = 0

    async def start(self, function: Callable[..., Any] | str | bytes, **changes: Any) -> tuple[MemberProcess, Trial]:
        """Start a member that calls `function`."""
        self.count += 1
        trial = Trial(self.folder / f"trial-{self.count}")
        child = await self.zygote.fork()
        trial.pid = child.pid
        child.send(assignment(trial.home, function, **changes))
        return child, trial

    async def run(self, function: Callable[..., Any] | str | bytes, **changes: Any) -> Trial:
        """Run a trial to its end."""
        child, trial = await self.start(function, **changes)
        return await see_out(child, trial)


async def see_out(child: MemberProcess, trial: Trial) -> Trial:
    """Receive what the member sends, up to its exit."""
    while (message := await child.receive()) is not None:
        match message:
            case m.Entered(pid=pid):
                assert pid == child.pid
                trial.entered = True
            case m.Reported(report=report):
                trial.reports.append(report)
            case Standing(port=port):
                trial.ports.append(port)
            case m.FunctionEnded(outcome=outcome):
                assert trial.outcome is None
                trial.outcome = outcome
    trial.exited = await child.wait()
    return trial


async def eventually(holds: Callable[[], object], within_s: float, what: str = "") -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark: str) -> list[int]:
    """Living processes below a zygote that was started with this mark, whatever their parents and sessions are."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment and alive(int(name)):
            found.append(int(name))
    return found


def grow(log_dir: str) -> list[int]:
    """In a member: start processes that are hard to find and to end; return their pids, which `family` reads."""
    import os
    import signal
    import subprocess
    from pathlib import Path

    def stubborn(pids: Path) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while True:
            signal.pause()

    pids = Path(log_dir) / "pids"
    if os.fork() == 0:  # one level below, in the member's group
        if os.fork() == 0:
            stubborn(pids)
        stubborn(pids)
    if (middle := os.fork()) == 0:  # a double fork, as daemons do, with a child
        os.setsid()
        if os.fork() == 0:
            if os.fork() == 0:
                stubborn(pids)
            stubborn(pids)
        os._exit(0)
    os.waitpid(middle, 0)
    command = f"trap '' TERM HUP; echo $$ >> {pids}; exec sleep 1000"
    subprocess.Popen(["/bin/sh", "-c", command], env={"PATH": os.defpath}, start_new_session=True)
    while not pids.exists() or len(pids.read_text().split()) < FAMILY:
        os.sched_yield()
    return [int(pid) for pid in pids.read_text().split()]


FAMILY = 5
"""The number of processes that `grow` leaves."""


def family(trial: Trial) -> list[int]:
    """The pids of the processes that `grow` started in the trial."""
    return [int(pid) for pid in (trial.home / "files" / "pids").read_text().split()]
