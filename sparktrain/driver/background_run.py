"""A run of one gang in a thread, while its caller feeds it or does other work."""

import os
import socket
import threading
from collections.abc import Callable

from sparktrain.base.threads import spawn
from sparktrain.config.gang_spec import Role
from sparktrain.display.live import choose_display
from sparktrain.display.progress import Display, MemberLine, MemberState, Progress
from sparktrain.driver.agent_sources import OpenAgents
from sparktrain.driver.finish import run_end
from sparktrain.driver.launch import launch
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.errors import FormError
from sparktrain.results.run_result import RunResult
from sparktrain.rundir.board_address import find_board
from sparktrain.runs.trial_result import TrialResult


class BackgroundRun:
    """One run, started by `start`. Any thread may use it."""

    def __init__(
        self,
        call: CheckedCall,
        agents: OpenAgents,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        """`on_end` is called in the run's thread at its end, with the error that its result raises, if any."""
        self._call = call
        self._agents = agents
        self._members = _Members(choose_display(quiet=not call.observers.progress))
        self._on_end = on_end
        self._ended = threading.Event()
        self._result: RunResult | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        spawn(self._work, f"sparktrain-run-{self._call.definition.spec.name}")

    def wait_for_members(self, timeout_s: float) -> tuple[MemberLine, ...]:
        """The members by rank, once each is in the training function; they may have left it since.

        Raises the error that ended the run, and FormError when members are missing after `timeout_s`.
        """
        size = self._call.definition.spec.gang.size
        members = self._members.wait(size, timeout_s)
        if len(members) == size:
            return members
        if self._ended.is_set():  # they have all returned between two looks
            ended_members = self.result().members
            return tuple(
                MemberLine(member.rank, member.host, member.role, MemberState.ENDED) for member in ended_members
            )
        raise FormError(self._members.late(size, timeout_s))

    def join(self, timeout_s: float | None) -> bool:
        """Wait for its end, with None without limit; returns whether it has ended."""
        return self._ended.wait(timeout_s)

    def result(self) -> RunResult:
        """What the chief returned, once the run has ended. Raises as `sparktrain.run`."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def board_url(self) -> str | None:
        """The URL of the run's TensorBoard, with its token; None without one. Blocks on the store. Raises OSError."""
        return find_board(self._call.definition.store, self._call.definition.layout, socket.gethostname(), os.getpid())

    def stop(self, reason: str) -> None:
        """End its members. Does not block."""
        self._agents.stop(self._call.definition.spec.name, reason, 0.0)

    def _work(self) -> None:
        try:
            sweep_result = launch(self._call, self._agents, self._members)
            self._result = run_end(self._call, sweep_result).result()
        # Set the event also for SystemExit and the like: a caller that waits in `join` has no other way to learn of the
        # end.
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        self._ended.set()
        try:
            self._on_end(self._error)
        finally:
            self._members.end()


class _Members(Display):
    """Passes everything on to another display, and knows when all members are in the training function."""

    def __init__(self, shown: Display) -> None:
        self._shown = shown
        self._changed = threading.Condition()
        self._newest: tuple[MemberLine, ...] = ()
        self._training: tuple[MemberLine, ...] = ()
        self._note = ""
        self._over = False

    def wait(self, size: int, timeout_s: float) -> tuple[MemberLine, ...]:
        """All members; none where they are missing after `timeout_s`, or when the run has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or len(self._training) == size, timeout_s)
            return self._training

    def late(self, size: int, timeout_s: float) -> str:
        """Which members are missing."""
        started_members = [member for member in self._newest if member.state is not MemberState.STARTING]
        missing = [
            f"rank {member.rank} on {member.host}" for member in self._newest if member.state is MemberState.STARTING
        ]
        missing_text = ", ".join(missing) or self._note or "no agent has a place for the others"
        return (
            f"{len(started_members)} of {size} members started within {timeout_s:g} s; missing: {missing_text}; raise "
            "reservation_timeout, or look into the logs of the run"
        )

    def end(self) -> None:
        """The run is over."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def start(self) -> None:
        """See base class."""
        self._shown.start()

    def print_line(self, line: str) -> None:
        """See base class."""
        self._shown.print_line(line)

    def update(self, progress: Progress) -> None:
        """See base class."""
        with self._changed:
            self._note = progress.note
            self._newest = _members_of(progress)
            if self._newest and all(member.state is not MemberState.STARTING for member in self._newest):
                self._training = self._newest
                self._changed.notify_all()
        self._shown.update(progress)

    def trial_ended(self, trial: TrialResult) -> None:
        """See base class."""
        self._shown.trial_ended(trial)

    def close(self) -> None:
        """See base class."""
        self._shown.close()


def _members_of(progress: Progress) -> tuple[MemberLine, ...]:
    """The members of the only trial; a gang of one is shown without any."""
    if not progress.running_trials:
        return ()
    trial = progress.running_trials[0]
    if trial.members or progress.gang > 1:
        return trial.members
    state = MemberState.TRAINING if trial.seconds > 0 else MemberState.STARTING
    return (MemberLine(0, trial.host, Role.CHIEF, state),)
