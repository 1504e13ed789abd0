"""What a client shows of a run that it does not drive, until the run has ended: from the run directory alone."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktrain import errors
from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.ids import CHIEF
from sparktrain.display import standing
from sparktrain.display.progress import Display, MemberLine, MemberState, Progress, RunningTrial
from sparktrain.errors import AgentsLostError, InfraError, RunDirectoryError, SparktrainError
from sparktrain.results.sweep_result import SweepResult, sweep_result
from sparktrain.rundir.coordinator_folder import CallEnd
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView, TrialView
from sparktrain.runs.watcher import Observer
from sparktrain.state.trial import TrialStatus
from sparktrain.store.localfs import LocalStore

LOOK_S = 0.5
"""Interval between two looks at a run in a folder."""
REMOTE_LOOK_S = 2.0
"""The same in any other store, where each look is several requests."""
AFTERWARDS_S = 15.0
"""How long the end of a call may take to appear once all its agents have left."""

logger = logging.getLogger("sparktrain")


class CallFollower:
    """Follows one call. For one thread at a time."""

    def __init__(
        self, place: RunLocation, end: Callable[[RunView | None], CallEnd | None], agents: int, display: Display
    ) -> None:
        """`end` returns how the call has ended, where it has; it gets the newest view, and blocks on the store."""
        self._place = place
        self._end_of = end
        self._agents = agents
        self._display = display
        self._clock = SystemClock()
        self._observer = Observer(place, self._clock)
        self._shown: set[int] = set()
        """Trials that the display knows as ended."""
        self._view: RunView | None = None

    @property
    def pause_s(self) -> float:
        """The time between two looks."""
        return LOOK_S if isinstance(self._place.store, LocalStore) else REMOTE_LOOK_S

    def follow(self, failure: Callable[[], SparktrainError | None], until: float | None = None) -> CallEnd | None:
        """Show the run until it has ended; returns how, or None at `until` by the clock. Blocks.

        `failure` returns why nothing runs any more. Raises that error.
        """
        lost_at: float | None = None
        while True:
            self._show()
            if (end := self._end()) is not None:
                self._show()  # the directory has all of the run now
                return end
            now = self._clock.now()
            if until is not None and now >= until:
                return None
            if (error := failure()) is not None:
                lost_at = now if lost_at is None else lost_at
                if now >= lost_at + AFTERWARDS_S:
                    raise error
            pause(self.pause_s)

    def result(self) -> SweepResult:
        """The result, once the call has ended. Blocks on the store."""
        return sweep_result(self._observer.look().as_outcome())

    def _end(self) -> CallEnd | None:
        try:
            return self._end_of(self._view)
        except OSError as error:
            logger.info("the run directory does not answer: %s", error)
            return None

    def _show(self) -> None:
        try:
            view = self._observer.look()
        except (RunDirectoryError, FileNotFoundError, errors.StoreError) as error:
            logger.info("the run cannot be read: %s", error)
            return
        for trial in view.trials if view is not self._view else ():
            if trial.result.status.final and trial.result.id not in self._shown:
                self._shown.add(trial.result.id)
                self._display.trial_ended(trial.result)
        self._view = view
        started = view.times.driver_started is not None
        note = "" if started else "waiting for an agent that starts the coordinator"
        self._display.update(progress_of_view(view, self._clock.wall(), self._agents, note))


def error_of(end: CallEnd) -> SparktrainError | None:
    """The error with which the coordinator has ended the call; None where the call has a result."""
    if not end.error:
        return None
    kind = getattr(errors, end.error, None)
    if not (isinstance(kind, type) and issubclass(kind, SparktrainError)):
        return InfraError(f"{end.error}: {end.message}")
    try:
        return kind(end.message)
    except TypeError:  # an error of a run, which takes more than a message
        return AgentsLostError(f"{end.error}: {end.message}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt in the main thread: PySpark's own handler would end the agents' job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def progress_of_view(view: RunView, now: float, agents: int, note: str = "") -> Progress:
    """What a run's display shows of `view` at `now`, in seconds since 1970, where the run has so many agents."""
    counts = standing.of_view(view)
    running = tuple(_running(trial, now) for trial in view.trials if trial.result.status is TrialStatus.RUNNING)
    return Progress(
        total=counts.total,
        done=counts.done,
        running=counts.running,
        queued=counts.queued,
        failed=counts.failed,
        lost=counts.lost,
        stopped=counts.stopped,
        pruned=counts.pruned,
        paused=counts.paused,
        metric=counts.metric,
        best=counts.best,
        replicas=counts.replicas,
        name=view.name,
        seconds=view.seconds(now),
        eta_s=None,
        agents_alive=0 if view.state is RunState.GONE else agents,
        agents_wanted=agents,
        restarts=sum(len(trial.result.restarts) for trial in view.trials),
        running_trials=running,
        gang=view.spec.gang.size,
        in_step=view.spec.gang.in_step,
        causes=view.trials[0].result.restarts if view.total == 1 and view.trials else (),
        note=note or next(iter(view.notes), ""),
    )


def _running(trial: TrialView, now: float) -> RunningTrial:
    report = trial.report
    result = trial.result
    return RunningTrial(
        id=result.id,
        params=dict(result.params),
        seconds=0.0 if trial.since is None else max(0.0, now - trial.since),
        step=trial.step,
        metrics={} if report is None else report.metrics,
        host=result.host,
        members=_members(trial),
    )


def _members(trial: TrialView) -> tuple[MemberLine, ...]:
    """The members of a gang that has formed; the journal has the steps of its chief alone."""
    members = trial.result.members
    if len(members) < 2 or trial.since is None:
        return ()
    report = trial.report
    return tuple(
        MemberLine(
            rank=member.rank,
            host=member.host,
            role=member.role,
            state=MemberState.TRAINING,
            step=trial.step if member.rank == CHIEF else None,
            metrics=report.metrics if report is not None and member.rank == CHIEF else {},
        )
        for member in members
    )
