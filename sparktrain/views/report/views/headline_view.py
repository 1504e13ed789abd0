"""The first lines of a report: how the run stands, its best trial, and the command that trains it again."""

from typing import Any

from msgspec import Struct

from sparktrain.runs.failure_table import no_best
from sparktrain.runs.next_commands import logs_command
from sparktrain.runs.results_json import json_value
from sparktrain.state.records import DriverStarted
from sparktrain.state.trial import TrialStatus
from sparktrain.views.report.views.parameter_axes import flat
from sparktrain.views.report.views.run_inputs import RunInputs


class BestTrial(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The best trial."""

    trial: int
    value: float | None
    params: dict[str, Any]
    metrics: dict[str, float | None]
    command: str
    """Trains it again."""
    checkpoint: str | None = None
    """The manifest of its newest checkpoint."""
    log: str | None = None


class RunFacts(Struct, frozen=True, kw_only=True):
    """What stays as it is while the run lasts, and the commands that take the number of a trial at their end."""

    name: str
    kind: str
    """`sweep` or `run`."""
    function: str
    directory: str
    metric: str | None
    mode: str
    again: str
    """The command that trains a trial again; empty where none does."""
    logs: str
    """The command that prints the log of a trial."""


class RunCourse(Struct, frozen=True, kw_only=True):
    """The time that the run has taken. `started` is in seconds since 1970."""

    started: float | None
    seconds: float
    """How long drivers have run."""
    wall_s: float
    """From the start of the first driver to the end, or to now."""
    drivers: int
    """How many drivers the run has had."""
    restarts: int
    """Of gangs and members, in all trials."""


class Headline(Struct, frozen=True, kw_only=True):
    """How the run stands."""

    run: RunFacts
    course: RunCourse
    state: str
    """`running`, `gone` (its driver does not answer) or `ended`."""
    status: str | None
    """How it ended, as in `results.json`."""
    reason: str
    counts: dict[str, int]
    """Trials by status; only those that there are."""
    total: int | None
    best: BestTrial | None
    no_best: str
    """Why there is no best trial; empty where there is."""
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    """What could not be read."""


def headline_of(inputs: RunInputs) -> Headline:
    """The headline of the run."""
    view = inputs.view
    # A refit takes code and parameters from the run directory.
    again = view.commands.refit(view.directory) if view.kind == "sweep" else ""
    best = _best(inputs, again)
    return Headline(
        run=RunFacts(
            name=view.name,
            kind=view.kind,
            function=view.function,
            directory=view.directory,
            metric=view.spec.metric,
            mode=view.spec.mode,
            again=again,
            logs=logs_command(view.directory, ""),
        ),
        course=RunCourse(
            started=view.times.started,
            seconds=round(view.seconds(inputs.now), 2),
            wall_s=round(view.wall_seconds(inputs.now), 2),
            drivers=sum(isinstance(record, DriverStarted) for record in inputs.records),
            restarts=sum(len(trial.restarts) for trial in view.results),
        ),
        state=str(view.state),
        status=None if view.status is None else str(view.status),
        reason=view.end.reason if view.end is not None else "",
        counts={str(status): view.counts[status] for status in TrialStatus if view.counts.get(status)},
        total=view.total,
        best=best,
        no_best="" if best is not None else _why(inputs),
        notes=view.notes,
        problems=inputs.problems,
    )


def _best(inputs: RunInputs, again: str) -> BestTrial | None:
    view = inputs.view
    best = view.best
    if best is None and view.kind == "run":
        best = next((trial for trial in view.results if trial.status is TrialStatus.SUCCEEDED), None)
    if best is None:
        return None
    trial = next(candidate for candidate in view.trials if candidate.result.id == best.id)
    return BestTrial(
        trial=best.id,
        value=json_value(best.metrics.get(view.spec.metric or "")),
        params=flat(best.params),
        metrics=json_value(best.metrics),
        command=f"{again}{best.id}" if again else "",
        checkpoint=trial.manifest,
        log=best.log,
    )


def _why(inputs: RunInputs) -> str:
    if inputs.view.state != "ended" and not any(result.status.final for result in inputs.view.results):
        return "no trial has ended yet"
    return no_best(inputs.outcome)
