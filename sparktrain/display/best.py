"""The best trials of a run, also while it runs: parameters, metric, and where model, checkpoint and log are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparktrain.base import formatting
from sparktrain.config.metric_names import metric_name, mode_of
from sparktrain.config.param_values import did_you_mean
from sparktrain.display import parts
from sparktrain.display.trial_table import measured
from sparktrain.errors import SpecError
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.results_json import trial_json
from sparktrain.runs.sweep_outcome import names
from sparktrain.runs.trial_result import model_of
from sparktrain.runs.view import RunView, TrialView
from sparktrain.state.trial import TrialStatus

VERSION = 1


@dataclass(frozen=True)
class Best:
    """The best trials of a run, the best first."""

    view: RunView
    metric: str | None
    """The metric by which they are compared; None for the one trial of a run without a metric."""
    mode: str
    trials: tuple[TrialView, ...]
    models: tuple[str | None, ...]
    """The path of the model of each trial; None where it exported none."""

    def lines(self) -> list[str]:
        """The lines for people."""
        if not self.trials:
            return [f"{formatting.plain(self.view.name)}: no trial has succeeded yet{self._ongoing()}"]
        text_lines: list[str] = []
        writes = parts.metric_formats(result.metrics for result in self.view.results)
        for number, (trial, model) in enumerate(zip(self.trials, self.models, strict=True), 1):
            text_lines += [""] if text_lines else []
            text_lines += _lines(trial, self.metric, number if len(self.trials) > 1 else None, writes)
            text_lines += self._case(trial)
            text_lines += [f"  model       {formatting.plain(model)}"] if model is not None else []
        return [*text_lines, *([f"so far: {self._ongoing()[2:]}"] if self._ongoing() else [])]

    def _case(self, trial: TrialView) -> list[str]:
        """The line about the case of the trial, where it has others."""
        if self.metric is None or self.view.spec.replication.size == 1:
            return []
        case = self.view.as_outcome().cases[self.view.spec.replication.case(trial.result.id)]
        return [f"  case        {case.id}: {formatting.plain(self.metric)} {measured(case, self.metric)}"]

    def document(self) -> dict[str, Any]:
        """The JSON object for programs."""
        trials = [
            {**trial_json(trial.result), "model": model, "checkpoint": _checkpoint(trial)}
            for trial, model in zip(self.trials, self.models, strict=True)
        ]
        names_of = {"name": self.view.name, "directory": self.view.directory, "state": str(self.view.state)}
        return {"version": VERSION, **names_of, "metric": self.metric, "mode": self.mode, "best": trials}

    def _ongoing(self) -> str:
        missing = self.view.remaining
        return "" if self.view.complete or not missing else f"; {formatting.count(missing, 'trial')} without a result"


def best_in(place: RunLocation, view: RunView, metric: str | None, direction: str | None, top: int) -> Best:
    """The `top` best trials, by the run's own metric and mode unless others are named. Blocks on the store.

    Raises SpecError when no trial has the metric, or there is none to compare by.
    """
    if top < 1:
        raise SpecError(f"--top ({top}) must be at least 1")
    by = metric_name(metric, "--metric") or view.spec.metric
    succeeded = [trial for trial in view.trials if trial.result.status is TrialStatus.SUCCEEDED]
    _check_metric(by, succeeded, view)
    way = mode_of(by, direction or (view.spec.mode if by == view.spec.metric or not succeeded else None), "--mode")
    trials = succeeded if by is None else _ranked(view, by, way)
    trials = trials[:top]
    models = tuple(model_of(place.store, place.layout, trial.result) for trial in trials)
    return Best(view, by, way, tuple(trials), models)


def _check_metric(by: str | None, succeeded: Sequence[TrialView], view: RunView) -> None:
    metrics = names(trial.result.metrics for trial in succeeded)
    if by is None and len(succeeded) > 1:
        choices = ", ".join(metrics) or "their results have none"
        raise SpecError(f"run {view.name} has no metric to compare its trials by: name one with --metric ({choices})")
    if by is not None and succeeded and by not in metrics:
        hint = did_you_mean(by, metrics) or ";"
        raise SpecError(f"no trial of run {view.name} has a metric {by!r}{hint} there are {', '.join(metrics)}")


def _ranked(view: RunView, by: str, way: str) -> list[TrialView]:
    result = replace(view.as_outcome(), metric=by, mode=way)
    trials = {trial.result.id: trial for trial in view.trials}
    first = {view.spec.replication.case(trial.id): trial for trial in reversed(result.ranked)}  # the best of each case
    return [trials[first[case.id].id] for case in result.ranked_cases]


def _lines(
    trial: TrialView, by: str | None, number: int | None, writes: Mapping[str, Callable[[float], str]]
) -> list[str]:
    result = trial.result
    place = "" if number is None else f"{number}. "
    metrics = parts.metrics(parts.objective_first(result.metrics, by), writes)
    lines = [f"{place}trial {result.id}: {metrics or 'no metrics'}"]
    lines += [f"  parameters  {formatting.params(result.params)}"] if result.params else []
    if trial.checkpoint is not None:
        steps = formatting.count(trial.checkpoint.step, "step")
        lines.append(f"  checkpoint  after {steps}: {formatting.plain(trial.manifest or '')}")
    return [*lines, *([f"  log         {formatting.plain(result.log)}"] if result.log else [])]


def _checkpoint(trial: TrialView) -> dict[str, Any] | None:
    return None if trial.checkpoint is None else {"step": trial.checkpoint.step, "path": trial.manifest}
