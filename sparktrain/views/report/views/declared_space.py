"""What a run declares of its parameters: the lists and distributions of its space, also those that trials name."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.config.distribution import Distribution
from sparktrain.errors import SpecError
from sparktrain.runs.plan import Plan
from sparktrain.search.sampled_space import Leaf
from sparktrain.search.space_json import stored_leaves
from sparktrain.state.records import AnyRecord, TrialAnswered


def declared_leaves(plan: Plan | None, records: Sequence[AnyRecord]) -> dict[str, Leaf]:
    """The lists and distributions by their paths; none of a space that lists whole cases, or cannot be read."""
    leaves: dict[str, Leaf] = {}
    for record in records:
        if isinstance(record, TrialAnswered):
            leaves |= _suggested(record.memo.get("distributions"))
    if plan is None:
        return leaves
    try:
        return leaves | stored_leaves(plan.space)
    except (SpecError, KeyError, TypeError, ValueError):  # of a newer version
        return leaves


def _suggested(distributions: object) -> dict[str, Leaf]:
    """The distributions of Optuna's JSON that a trial of `sparktrain.optuna` named by its calls of `suggest_`."""
    if not isinstance(distributions, Mapping):
        return {}
    leaves = {name: _leaf(json.loads(text)) for name, text in distributions.items()}
    return {name: leaf for name, leaf in leaves.items() if leaf is not None}


def _leaf(document: Mapping[str, Any]) -> Leaf | None:
    kind = document.get("name")
    arguments = document.get("attributes", {})
    if kind == "CategoricalDistribution":
        return Distribution("choice", tuple(arguments["choices"]))
    ends = arguments.get("low"), arguments.get("high")
    if kind == "IntDistribution" and arguments.get("step", 1) == 1:
        return Distribution("lograndint" if arguments.get("log") else "randint", ends)
    if kind in ("IntDistribution", "FloatDistribution"):
        step = arguments.get("step")
        if step is not None:
            return Distribution("quniform", (*ends, step))
        return Distribution("loguniform" if arguments.get("log") else "uniform", ends)
    return None
