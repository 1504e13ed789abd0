"""A finished sweep as a study of Optuna in memory, for its importances, its plots and its dashboard."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sparktrain.base.ids import CHIEF
from sparktrain.config.distribution import TAIL, Distribution
from sparktrain.config.objectives import Constraint, Objective
from sparktrain.config.param_values import value_at
from sparktrain.errors import SpecError
from sparktrain.runs.history import look
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
from sparktrain.runs.run_files import RunFiles
from sparktrain.runs.sweep_outcome import SweepOutcome, metric_names
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.optuna_import import import_optuna
from sparktrain.search.sampled_space import Leaf
from sparktrain.search.space_json import stored_leaves
from sparktrain.state.records import AnyRecord, GangFormed, TrialAnswered, TrialConcluded
from sparktrain.state.trial import TrialStatus

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_STATES = {
    TrialStatus.QUEUED: "WAITING",
    TrialStatus.RUNNING: "RUNNING",
    # A paused trial has no end yet: a study of an unfinished sweep showed it as failed.
    TrialStatus.PAUSED: "RUNNING",
    TrialStatus.SUCCEEDED: "COMPLETE",
    TrialStatus.PRUNED: "PRUNED",
}
"""Optuna's names; every other status is a failure there."""


@dataclass
class _Stored:
    """What only the run directory has, and not the result."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    curves: dict[int, dict[int, float]] = field(default_factory=dict)
    """Values of the metric that the chief reported, by trial and step."""
    distributions: dict[int, dict[str, str]] = field(default_factory=dict)
    """Distributions that the objective of a trial of `sparktrain.optuna` requested, as Optuna's JSON."""


def check_optuna(called: str) -> None:
    """Raise SpecError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise SpecError(f"{called} needs optuna, which is not installed: pip install 'sparktrain[search]'")
    import_optuna()


def study_of(outcome: SweepOutcome, files: RunFiles | None, metric: str | None) -> "Study":
    """`SweepResult.to_study`. Blocks on the store. Raises SpecError, RunDirectoryError, OSError."""
    check_optuna("result.to_study()")
    from optuna.samplers import TPESampler
    from optuna.storages import InMemoryStorage
    from optuna.study import create_study

    chosen = _metric(outcome, metric)
    objectives = _objectives(outcome, chosen, metric)
    stored = _Stored() if files is None else _stored(files, chosen)
    params = {trial.id: _flat(trial.params, stored.leaves) for trial in outcome.trials}
    distributions = _distributions(stored.leaves, params.values())
    study = create_study(
        storage=InMemoryStorage(),
        sampler=TPESampler(seed=0),
        study_name=outcome.name,
        directions=["minimize" if objective.mode == "min" else "maximize" for objective in objectives],
    )
    for name, value in (("metric", chosen), ("directory", outcome.directory)):
        study.set_user_attr(f"sparktrain:{name}", value)
    for trial in outcome.trials:
        study.add_trial(_frozen(trial, params[trial.id], distributions, objectives, outcome.constraints, stored))
    return study


def _objectives(outcome: SweepOutcome, chosen: str, metric: str | None) -> list[Objective]:
    """What the study compares: the metrics of the sweep, or only `metric`."""
    objective = Objective(chosen, "min" if outcome.mode == "min" else "max")
    return [objective, *outcome.other_metrics] if metric is None else [objective]


def _metric(outcome: SweepOutcome, metric: str | None) -> str:
    names = metric_names(outcome)
    chosen = metric if metric is not None else outcome.metric
    if chosen is None:
        raise SpecError(
            f"run {outcome.name} has no metric, and a study compares trials by one: call to_study(metric=...) with one "
            f"of {', '.join(names) or 'those that the function returns'}"
        )
    if metric is not None and metric not in names:
        raise SpecError(
            f"to_study(metric={metric!r}): no trial of run {outcome.name} has that metric; choose one of "
            f"{', '.join(names) or 'none: no trial has a result'}"
        )
    return chosen


# ---- what the run directory has


def _stored(files: RunFiles, metric: str) -> _Stored:
    place = place_of(files.directory, LOOK_TIMEOUT_S)
    stored_run = look(place.store, place.layout)
    stored = _Stored()
    if stored_run is not None:
        stored.leaves = stored_leaves(stored_run.plan.space)
        for record in stored_run.opened.records:
            _note(stored, record)
    history = files.history_columns()
    if metric in history:
        rows = zip(history["rank"], history["trial"], history["step"], history[metric], strict=True)
        for rank, trial, step, value in rows:
            if rank == CHIEF and not math.isnan(value):
                stored.curves.setdefault(int(trial), {})[int(step)] = float(value)
    return stored


def _note(stored: _Stored, record: AnyRecord) -> None:
    match record:
        case GangFormed(trial=trial, at=at) if at:
            stored.started.setdefault(trial, at)
        case TrialConcluded(trial=trial, at=at) if at:
            stored.ended[trial] = at
        case TrialAnswered(trial=trial, memo=memo):
            stored.distributions.setdefault(trial, {}).update(memo.get("distributions", {}))


# ---- parameters


def _flat(params: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> dict[str, Any]:
    """The parameters by path: a dict of the space is one parameter for each of its leaves, any other value is one."""
    leaf_values: dict[str, Any] = {}
    for path in leaves:
        with suppress(KeyError):
            leaf_values[path] = _plain(value_at(params, path))
    covered = [name for name in params if any(f"{path}.".startswith(f"{name}.") for path in leaf_values)]
    return leaf_values | {name: _plain(value) for name, value in params.items() if name not in covered}


def _plain(value: Any) -> Any:
    """A value that every storage of Optuna accepts: lists and dicts become JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value


def _distributions(leaves: Mapping[str, Leaf], params: Iterable[Mapping[str, Any]]) -> "dict[str, BaseDistribution]":
    """A distribution for each parameter: that of the space if it contains all values, or else a choice of them."""
    from optuna.distributions import CategoricalDistribution

    values: dict[str, list[Any]] = {}
    for trial_params in params:
        for path, value in trial_params.items():
            values.setdefault(path, []).append(value)
    distributions: dict[str, BaseDistribution] = {}
    for path, path_values in values.items():
        declared = _distribution(leaves[path]) if path in leaves else None
        distributions[path] = (
            declared
            if declared is not None and _contains_all(declared, path_values)
            else CategoricalDistribution(_unique(path_values))
        )
    return distributions


def _distribution(leaf: Leaf) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(leaf, Distribution) or leaf.kind == "choice":
        return CategoricalDistribution(_unique(map(_plain, leaf if isinstance(leaf, tuple) else leaf.arguments)))
    if leaf.kind == "normal":
        return FloatDistribution(leaf.quantile(TAIL), leaf.quantile(1 - TAIL))
    low, high = leaf.arguments[:2]
    if leaf.kind in ("randint", "lograndint"):
        return IntDistribution(low, high, log=leaf.kind == "lograndint")
    if leaf.kind == "quniform":
        return FloatDistribution(low, leaf.at_step(leaf.steps), step=leaf.arguments[2])
    return FloatDistribution(low, high, log=leaf.kind == "loguniform")


def _contains_all(distribution: "BaseDistribution", values: Iterable[Any]) -> bool:
    try:
        return all(distribution._contains(distribution.to_internal_repr(value)) for value in values)
    except ValueError:
        return False


def _unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order; for Optuna 1, 1.0 and True are the same."""
    return list(dict.fromkeys(values))


# ---- trials


def _frozen(
    trial: TrialResult,
    params: dict[str, Any],
    distributions: "Mapping[str, BaseDistribution]",
    objectives: Sequence[Objective],
    bounds: Sequence[Constraint],
    stored: _Stored,
) -> "FrozenTrial":
    from optuna.distributions import json_to_distribution
    from optuna.trial import TrialState, create_trial

    requested = {path: json_to_distribution(text) for path, text in stored.distributions.get(trial.id, {}).items()}
    curve = stored.curves.get(trial.id, {})
    values = [trial.metrics.get(objective.metric, math.nan) for objective in objectives]
    state = TrialState[_STATES.get(trial.status, "FAIL")]
    if state is TrialState.COMPLETE and any(map(math.isnan, values)):
        state = TrialState.FAIL  # as `study.tell` has it
    if state is TrialState.PRUNED and any(map(math.isnan, values)) and curve and len(values) == 1:
        values = [curve[max(curve)]]
    valued = state in (TrialState.COMPLETE, TrialState.PRUNED) and not any(map(math.isnan, values))
    over = {str(bound): bound.excess(trial.metrics) for bound in bounds}
    frozen_trial = create_trial(
        state=state,
        values=values if valued else None,
        constraints={name: by for name, by in over.items() if math.isfinite(by)},
        params=params,
        distributions={path: requested.get(path, distributions[path]) for path in params},
        user_attrs=_attrs(trial, {objective.metric for objective in objectives}),
        intermediate_values=curve,
    )
    if (started := stored.started.get(trial.id)) is not None:
        frozen_trial.datetime_start = datetime.fromtimestamp(started)
    if (ended := stored.ended.get(trial.id)) is not None and state.is_finished():
        frozen_trial.datetime_complete = datetime.fromtimestamp(ended)
    return frozen_trial


def _attrs(trial: TrialResult, compared: Collection[str]) -> dict[str, Any]:
    """What fits no other field of an Optuna trial; without empty values."""
    attrs = {name: value for name, value in trial.metrics.items() if name not in compared}
    details = {
        "status": trial.status.value,
        "seconds": trial.seconds,
        "generations": trial.generations,
        "host": trial.host,
        "log": trial.log,
        "error": trial.error.summary if trial.error is not None else None,
        "pruned": trial.pruned,
    }
    replica = {} if trial.case is None else {"case": trial.case, "repeat": trial.repeat, "fold": trial.fold}
    attrs |= {f"sparktrain:{name}": value for name, value in replica.items()}
    return attrs | {f"sparktrain:{name}": value for name, value in details.items() if value}
