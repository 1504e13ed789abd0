"""`results.json`: the end of a run, for programs."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from sparktrain.base.decoding import converted
from sparktrain.config.objectives import feasible
from sparktrain.errors import SpecError
from sparktrain.rundir.restart_fields import stored, with_how
from sparktrain.runs.case_result import CaseResult
from sparktrain.runs.pareto import front_of
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.trial import TrialStatus

VERSION = 1
"""The version of `results.json`. It grows when a reader of the old format would misread the new one."""


def to_json(result: SweepOutcome) -> dict[str, Any]:
    """`result` as the content of `results.json`, which docs/results-json.md describes: JSON's own types only."""
    return {
        "version": VERSION,
        "name": result.name,
        "status": str(result.status),
        "reason": result.reason,
        "metric": result.metric,
        "mode": result.mode,
        "seconds": json_value(result.seconds),
        "wall_seconds": json_value(result.wall_seconds),
        "directory": result.directory,
        "best": _best(result),
        "trials": [trial_json(trial) for trial in result.trials],
        **_cases(result),
        **_objectives(result),
    }


def to_bytes(result: SweepOutcome) -> bytes:
    """`results.json` itself: strict JSON in UTF-8, one object, its keys always in the same order."""
    # NaN is no JSON: `allow_nan=False` proves that no value of a trial came through.
    written = json.dumps(to_json(result), indent=2, ensure_ascii=True, allow_nan=False)
    return written.encode() + b"\n"


def from_json(data: Mapping[str, Any]) -> SweepOutcome:
    """The result that `to_json` wrote. Numbers that JSON does not have come back as NaN in metrics, None elsewhere.

    Raises SpecError when the content is something else, or of a newer version.
    """
    version = data.get("version")
    if version != VERSION:
        raise SpecError(f"results of version {version!r} cannot be read: this sparktrain reads version {VERSION}")
    try:
        return converted(_decoded(data), SweepOutcome)
    except (msgspec.ValidationError, TypeError, AttributeError, KeyError) as error:
        raise SpecError(f"results cannot be read: {error}") from error


def _best(result: SweepOutcome) -> dict[str, Any] | None:
    best = next(iter(result.ranked), None)
    return None if best is None else trial_json(best)


def _objectives(result: SweepOutcome) -> dict[str, Any]:
    """What a sweep with other metrics or constraints has beside the others."""
    fields: dict[str, Any] = {}
    if result.other_metrics:
        fields["other_metrics"] = [asdict(objective) for objective in result.other_metrics]
        fields["pareto_front"] = [trial.id for trial in front_of(result)]
    if result.constraints:
        fields["constraints"] = [asdict(constraint) for constraint in result.constraints]
        succeeded = [trial for trial in result.trials if trial.status is TrialStatus.SUCCEEDED]
        fields["infeasible"] = [trial.id for trial in succeeded if not feasible(trial.metrics, result.constraints)]
    return fields


def _cases(result: SweepOutcome) -> dict[str, Any]:
    """What a sweep with repeats or folds has beside the others."""
    if result.replication.size == 1:
        return {}
    best = next(iter(result.ranked_cases), None)
    shape = {"repeats": result.repeats, "folds": result.folds}
    return {**shape, "best_case": best and case_json(best), "cases": [case_json(case) for case in result.cases]}


def case_json(case: CaseResult) -> dict[str, Any]:
    """One of `cases` of `results.json`."""
    return {
        "id": case.id,
        "params": json_value(case.params),
        "metrics": json_value(case.metrics),
        "standard_errors": json_value(case.standard_errors),
        "n": case.n,
        "status": str(case.status),
        "seconds": json_value(case.seconds),
        "trials": list(case.trials),
    }


def trial_json(trial: TrialResult) -> dict[str, Any]:
    """One of `trials` of `results.json`."""
    return {
        "id": trial.id,
        "params": json_value(trial.params),
        "metrics": json_value(trial.metrics),
        "extra": json_value(trial.extra),
        "status": str(trial.status),
        "seconds": json_value(trial.seconds),
        "log": trial.log,
        "error": json_value(msgspec.to_builtins(trial.error)),
        "generations": trial.generations,
        "host": trial.host,
        "members": [_member_json(member) for member in trial.members],
        "restarts": [json_value(stored(restart)) for restart in trial.restarts],
        "unsaved": trial.unsaved,
        "pruned": trial.pruned,
        "notices": list(trial.notices),
        **({"notes": list(trial.notes)} if trial.notes else {}),
        **({"tags": list(trial.tags)} if trial.tags else {}),
        **({"exploits": [json_value(msgspec.to_builtins(copy)) for copy in trial.exploits]} if trial.exploits else {}),
        **({} if trial.case is None else {"case": trial.case, "repeat": trial.repeat, "fold": trial.fold}),
    }


def _member_json(member: MemberResult) -> dict[str, Any]:
    fields = {**asdict(member), "role": str(member.role)}
    return {name: value for name, value in fields.items() if value or name != "exported"}


def json_value(value: Any) -> Any:
    """`value` in JSON's own types. A parameter may be anything: a value that JSON lacks becomes its text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    scalar = getattr(value, "item", None)  # NumPy's numbers, without importing NumPy
    if callable(scalar) and getattr(value, "ndim", None) == 0:
        return json_value(scalar())
    return str(value)


def _decoded(data: Mapping[str, Any]) -> dict[str, Any]:
    trials = [
        {
            **trial,
            "metrics": {name: math.nan if value is None else value for name, value in trial["metrics"].items()},
            "restarts": [with_how(restart) for restart in trial.get("restarts", ())],
        }
        for trial in data.get("trials", [])
    ]
    return {**data, "trials": trials}
