"""The trials of a run as rows of a table."""

from typing import Any

from msgspec import Struct

from sparktrain.runs.record_times import dated
from sparktrain.runs.results_json import json_value
from sparktrain.runs.steps.step_lines import step_lines
from sparktrain.runs.trial_result import TrialResult
from sparktrain.runs.view import TrialView
from sparktrain.state.outcome import OF_DRAIN, OF_RING, PLANNED, Restart
from sparktrain.state.records import AnyRecord, GangFormed, TrialConcluded
from sparktrain.views.report.views.parameter_axes import flat
from sparktrain.views.report.views.run_inputs import RunInputs

LONGEST_ERROR = 300
_MOST_RESTARTS = 20


class RestartRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a gang, or a member of it, restarted."""

    kind: str
    cause: str
    host: str | None
    seconds: float
    step: int | None = None
    """The step from which training resumed; None for step 0."""
    steps_lost: int | None = None
    healed: bool = False
    """The other members kept their state: training continued from the step, without a checkpoint."""
    members: int | None = None
    """How many these are, where no process took the place of the lost one."""
    full_size: int | None = None


class TrialDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the page shows of a trial, and no view computes with: facts of its result as they are."""

    host: str | None = None
    generations: int = 0
    """How many times its gang has started."""
    restarts: tuple[RestartRow, ...] = ()
    """The newest ones."""
    error: str = ""
    pruned: str = ""
    notices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Notes and tags are what users have added."""
    unsaved: str = ""
    case: int | None = None
    repeat: int = 0
    fold: int = 0


class TrialRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One trial. Times are in seconds since 1970."""

    id: int
    status: str
    params: dict[str, Any] = {}
    """By their paths, such as `optimizer.lr`."""
    metrics: dict[str, float | None] = {}
    """Those that it returned, or of a trial without a result those of its newest report."""
    value: float | None = None
    """The metric that trials are compared by, of a trial with a result."""
    place: int | None = None
    """Its place among the trials that can be the best, from 0."""
    step: int | None = None
    """The step of its newest report."""
    seconds: float = 0.0
    started: float | None = None
    """When its first gang started."""
    ended: float | None = None
    step_times: tuple[str, ...] = ()
    """Where the steps of its gang go: a line for each member, and one for a slow member."""
    details: TrialDetails = TrialDetails()


class Lifetimes:
    """When each trial started and ended."""

    def __init__(self, records: tuple[AnyRecord, ...] | list[AnyRecord]) -> None:
        self.started: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        for record, at in dated(records):
            if isinstance(record, GangFormed) and at:
                self.started.setdefault(record.trial, at)
            elif isinstance(record, TrialConcluded) and at:
                self.ended[record.trial] = at


def trial_rows(inputs: RunInputs) -> tuple[TrialRow, ...]:
    """All trials, in the order of their ids."""
    lifetimes = Lifetimes(list(inputs.records))
    steps = _last_steps(inputs)
    return tuple(_row(trial, inputs, lifetimes, steps) for trial in inputs.view.trials)


def _row(trial: TrialView, inputs: RunInputs, lifetimes: Lifetimes, steps: dict[int, int]) -> TrialRow:
    result = trial.result
    hosts = [member.host for member in result.members]
    metrics = result.metrics or (trial.report.metrics if trial.report is not None else {})
    value = result.metrics.get(inputs.view.spec.metric or "")
    return TrialRow(
        id=result.id,
        status=str(result.status),
        params=flat(result.params),
        metrics=json_value(metrics),
        value=json_value(value),
        place=inputs.places.get(result.id),
        step=steps.get(result.id, trial.report.step if trial.report is not None else None),
        seconds=round(result.seconds, 3),
        started=lifetimes.started.get(result.id),
        ended=lifetimes.ended.get(result.id) if result.status.final else None,
        step_times=() if trial.step_times is None else tuple(step_lines(trial.step_times, hosts)),
        details=_details(result),
    )


def _details(result: TrialResult) -> TrialDetails:
    return TrialDetails(
        host=result.host,
        generations=result.generations,
        restarts=tuple(map(_restart, result.restarts[-_MOST_RESTARTS:])),
        error=result.error.summary[:LONGEST_ERROR] if result.error is not None else "",
        pruned=result.pruned,
        notices=result.notices,
        notes=result.notes,
        tags=result.tags,
        unsaved=result.unsaved,
        case=result.case,
        repeat=result.repeat,
        fold=result.fold,
    )


def _restart(restart: Restart) -> RestartRow:
    return RestartRow(
        kind="drained" if restart.how in OF_DRAIN else "paused" if restart.how in PLANNED else str(restart.kind),
        cause=restart.cause[:LONGEST_ERROR],
        host=restart.host,
        seconds=round(restart.seconds, 3),
        step=restart.resumed_from_step,
        steps_lost=restart.steps_lost,
        healed=restart.how in OF_RING,
        members=restart.members,
        full_size=restart.full_size,
    )


def _last_steps(inputs: RunInputs) -> dict[int, int]:
    """The newest step of each trial that has reported."""
    columns = inputs.columns
    return dict(zip(columns.trial.tolist(), columns.step.tolist(), strict=True))
