"""What a client shows of a run that it does not drive, until the run has ended: from the run directory alone."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktrain import errors
from sparktrain.base.clock import SystemClock, pause
from sparktrain.display.progress import Display
from sparktrain.display.view_progress import progress_of_view
from sparktrain.errors import AgentsLostError, InfraError, RunDirectoryError, SparktrainError
from sparktrain.results.sweep_result import SweepResult, sweep_result
from sparktrain.rundir.coordinator_folder import CallEnd
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
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
