"""Loads the result of a run from its directory, whether the run has ended or not."""

from dataclasses import replace
from os import PathLike

from sparktrain.base.boundary import users_call
from sparktrain.base.clock import SystemClock
from sparktrain.results.run_result import RunEnd, RunResult
from sparktrain.results.sweep_result import SweepResult, directory_of, sweep_result
from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus
from sparktrain.runs.trial_result import model_of
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer


@users_call
def load(directory: str | PathLike[str]) -> SweepResult | RunResult:
    """Open the run in `directory`, whether it has finished, still runs, or has lost its driver.

    Needs neither Spark nor TensorFlow, writes nothing, and works on any host that reaches the directory: a path, or a
    URL such as `hdfs:///runs/mnist` or `s3://bucket/runs/mnist`. Blocks on the store, and up to 2 s on a driver that
    does not answer.

    Returns:
        A `SweepResult` for a run of `sweep` or `launch`, and a `RunResult` for one of `run`, in its current state: call
        `load` again for newer results. If the run has not ended, `status` is `running`, or `stopped` when its driver
        does not answer, and trials may be `queued` or `running`. For a run that failed, `load` raises nothing: the
        `RunResult` has its `status` and `error`.

    Raises:
        RunDirectoryError: there is no run in the directory, or its files are corrupt (see `sparktrain fsck`).
        StoreError: the store failed; the same call may succeed later.
    """
    place = run_in(directory_of(directory, "directory"), LOOK_TIMEOUT_S)
    clock = SystemClock()
    view = Observer(place, clock).look()
    sweep = _as_it_stands(view, clock.wall())
    if view.kind != "run":
        return sweep_result(sweep)
    trial = next(iter(sweep.trials), None)
    return RunEnd(sweep, model_of(place.store, place.layout, trial)).as_loaded()


def _as_it_stands(view: RunView, now: float) -> SweepOutcome:
    result = view.as_outcome()
    if view.state is RunState.ENDED:
        return result
    if view.state is RunState.RUNNING:
        ran_s = view.seconds(now)
        wall_s = view.wall_seconds(now)
        return replace(result, status=SweepStatus.RUNNING, seconds=ran_s, wall_seconds=wall_s)
    how = view.commands.how_to_resume(view.directory, view.name)
    reason = f"its driver ({view.driver.identity or 'unknown'}) does not answer; to continue: {how}"
    return replace(result, status=SweepStatus.STOPPED, reason=reason)
