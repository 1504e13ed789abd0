"""A run that no call of this process waits for: what its directory shows, and what may be asked of it there."""

import shlex
from collections.abc import Callable, Generator
from html import escape
from typing import Any, TypeVar

from sparktrain.base.boundary import users_call
from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import aside
from sparktrain.display import standing
from sparktrain.display.live import choose_display
from sparktrain.display.progress import Display
from sparktrain.driver.agent_sources import OpenAgents, OwnAgents
from sparktrain.driver.clustered.application_lookout import ApplicationLookout
from sparktrain.driver.clustered.application_start import start_application
from sparktrain.driver.clustered.cluster_call import most_agents
from sparktrain.driver.clustered.cluster_launch import LEAVE_S, StartedRun, start_in_cluster
from sparktrain.driver.clustered.coordinator_place import check_cluster_call
from sparktrain.driver.clustered.following import CallFollower, error_of
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.errors import AgentsLostError, RunDirectoryError, SparktrainError, SpecError
from sparktrain.results.run_result import RunEnd, RunResult
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.coordinator_folder import CallEnd, newest_error
from sparktrain.runs.additions.stop_requests import ask_stop
from sparktrain.runs.heartbeat_watch import HEARTBEAT_COUNTS_S
from sparktrain.runs.locate import RunLocation, run_in
from sparktrain.runs.trial_result import model_of
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer
from sparktrain.state.run_machine import TIMEOUT_GRACE_S

T = TypeVar("T")

GONE_S = 3 * HEARTBEAT_COUNTS_S
"""How long a run may show no heartbeat before `result` gives up: a successor of its coordinator starts meanwhile."""


class FollowedRun:
    """A run of any process, as its directory shows it. For one thread at a time."""

    def __init__(self, place: RunLocation, started: StartedRun | None = None) -> None:
        """Blocks on the store; raises OSError."""
        self.place = place
        self._started = started
        self._application = ApplicationLookout.newest(place) if started is None else None
        self._clock = SystemClock()
        self._observer = Observer(place, self._clock)
        self._gone_since: float | None = None

    def look(self) -> RunView:
        """The run now. Blocks on the store; raises RunDirectoryError, OSError."""
        return self._observer.look()

    @property
    def status(self) -> str:
        """See `RunHandle.status`."""
        view = self.look()
        if view.status is not None:
            return str(view.status)
        if view.state is RunState.GONE and self._application is not None:
            application = self._application.look()
            return view.state.value if application is None or application.over else application.state.lower()
        return view.state.value

    @property
    def is_gang(self) -> bool:
        """Whether it is a run of one gang. Blocks on the store."""
        return self.look().kind == "run"

    def check_resumed(self) -> None:
        """Raise RunDirectoryError for a copy that nothing has resumed. Blocks on the store."""
        view = self.look()
        if view.driver.copied and view.state is not RunState.ENDED and self._application is None:
            how = view.commands.how_to_resume(view.directory, view.name)
            raise RunDirectoryError(f"{view.directory} is a copy of a run, which no driver has resumed: {how}")

    def wait(self, display: Display, timeout_s: float | None = None) -> SweepResult:
        """The result as of a sweep, once the run has ended; `display` shows it meanwhile. Blocks.

        Raises as `RunHandle.result`.
        """
        agents = most_agents(self.place.store, self.place.layout) if self._started is None else self._started.agents
        follower = CallFollower(self.place, self._end, agents, display)
        end = follower.follow(self._failure, None if timeout_s is None else self._clock.now() + timeout_s)
        if end is None:
            name = self.place.layout.path
            raise TimeoutError(f"run {name} has not ended within {timeout_s:g} s: call result() again to wait")
        if self._started is not None:
            self._started.job.finish(LEAVE_S)
        if (error := error_of(end)) is not None:
            raise error
        return follower.result()

    def run_end(self, sweep_result: SweepResult) -> RunEnd:
        """The end of a run of one gang, from its result as a sweep. Blocks on the store."""
        trial = next(iter(sweep_result.trials), None)
        return RunEnd(sweep_result, model_of(self.place.store, self.place.layout, trial))

    def _end(self, view: RunView | None) -> CallEnd | None:
        if self._started is not None:
            return self._started.folder.look().end
        if self._application is not None:
            return self._application.end(view)
        if view is not None and view.state is RunState.ENDED:
            return CallEnd()
        if view is None or view.state is RunState.GONE:
            return newest_error(self.place.store, self.place.layout.coordinators)
        return None

    def _failure(self) -> SparktrainError | None:
        """Why nothing runs any more, as far as this process can know."""
        if self._started is not None:
            return self._started.failure()
        view = self.look()
        if self._application is not None:
            return self._application.failure(view)
        if view.state is not RunState.GONE:
            self._gone_since = None
            return None
        now = self._clock.now()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now < self._gone_since + GONE_S:
            return None
        how = view.commands.how_to_resume(view.directory, view.name)
        return AgentsLostError(f"run {view.name} has shown no heartbeat for {GONE_S:g} s; to continue: {how}")


class RunHandle:
    """A run, by its directory: `sparktrain.submit` and `sparktrain.attach` return it.

    It holds nothing of the run: any number of handles may exist, in any processes, and none of their ends changes the
    run. For one thread at a time.
    """

    def __init__(self, run: FollowedRun) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"RunHandle({self.directory!r})"

    def _repr_html_(self) -> str:
        """How to reach the run later, for a notebook; reads nothing."""
        code = f"sparktrain.attach({self.directory!r}).result()"
        command = f"sparktrain attach {shlex.quote(self.directory)}"
        return (
            f"<div>Run <b>{escape(self.name)}</b>. To wait for it from any other notebook or program, on any day:"
            f"<pre>{escape(code)}</pre>or in a terminal: <code>{escape(command)}</code></div>"
        )

    @property
    def directory(self) -> str:
        """The run directory."""
        return self._run.place.where

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._run.place.layout.path

    @property
    @users_call
    def progress(self) -> dict[str, Any]:
        """The number of trials by status, with `total` and `done`, and the value of the `best` one.

        Blocks on the store; raises OSError when it fails.
        """
        counts = standing.of_view(self._run.look())
        names = ("total", "done", "running", "queued", "failed", "lost", "stopped", "pruned", "paused")
        return {name: getattr(counts, name) for name in names} | {"best": counts.best[1] if counts.best else None}

    @property
    @users_call
    def status(self) -> str:
        """`running`, `gone` if no coordinator shows a heartbeat, or how the run has ended. Blocks on the store.

        While no driver answers, and YARN has the application that performs the call, what YARN reports of that:
        `accepted` where it waits for room.
        """
        return self._run.status

    @users_call
    def stop(self, reason: str = "stopped by its handle") -> None:
        """Ask the coordinator to stop the run: trials get some seconds to end. Does not wait. Blocks on the store."""
        ask_stop(self._run.place.store, self._run.place.layout, reason, grace_s=TIMEOUT_GRACE_S)

    @users_call
    def stop_trial(self, trial: int, reason: str = "stopped by the handle of its run") -> None:
        """Ask the coordinator to stop one trial, as `stop`."""
        ask_stop(self._run.place.store, self._run.place.layout, reason, trial=trial)

    @users_call
    def result(self, timeout: float | None = None, *, progress: bool = True) -> SweepResult | RunResult:
        """Wait for the end of the run, and return what the call that started it would have returned. Blocks.

        Shows the progress of the run meanwhile. Raises what that call would have raised, TimeoutError after `timeout`
        seconds, and AgentsLostError when the run has shown no heartbeat for minutes. Ctrl-C ends the wait, and not the
        run.
        """
        display = choose_display(quiet=not progress)
        sweep_result = _shown(display, lambda: self._run.wait(display, timeout))
        return self._run.run_end(sweep_result).result() if self._run.is_gang else sweep_result

    def __await__(self) -> Generator[Any, None, SweepResult | RunResult]:
        return aside(lambda: self.result(progress=False), "sparktrain-result").__await__()


def submitted(call: CheckedCall, agents: OpenAgents) -> RunHandle:
    """Start a checked call with its coordinator in the cluster; from a session on YARN, as an application of its own.

    Blocks until Spark has its agents, or a process that outlives this one submits the application. Raises UserError.
    """
    if not isinstance(agents, OwnAgents):
        raise SpecError("a pool ends with this process, and a submitted run does not: submit without a pool")
    check_cluster_call(call, agents.engine)
    display = choose_display(quiet=not call.observers.progress)
    if (settings := agents.engine.application_settings()) is not None:
        return RunHandle(FollowedRun(_shown(display, lambda: start_application(call, agents, display, settings))))
    place = _shown(display, lambda: start_in_cluster(call, agents, display, "the run was submitted"))
    if isinstance(place, SweepResult):
        return RunHandle(FollowedRun(RunLocation(call.definition.store, call.definition.layout)))
    return RunHandle(FollowedRun(place.place, place))


def _shown(display: Display, work: Callable[[], T]) -> T:
    """Do `work` while `display` shows its lines."""
    display.start()
    try:
        return work()
    finally:
        display.close()


def attached(directory: str) -> FollowedRun:
    """The run in a directory. Blocks on the store.

    Raises RunDirectoryError for one that cannot be read, and for a copy of a run that nothing has resumed.
    """
    run = FollowedRun(run_in(directory))
    run.check_resumed()
    return run
