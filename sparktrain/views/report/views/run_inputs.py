"""What the views of a run are made from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparktrain.config.distribution import Distribution
from sparktrain.errors import SpecError
from sparktrain.runs.plan import Plan
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.view import RunState, RunView
from sparktrain.search.sampled_space import Leaf
from sparktrain.search.space_json import stored_leaves
from sparktrain.state.records import AnyRecord, TrialAnswered
from sparktrain.views.report.views.report_columns import ReportColumns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """A run at one moment. Times are in seconds since 1970."""

    view: RunView
    records: Sequence[AnyRecord] = ()
    """The records of its journal, in their order."""
    reports: "pa.Table | None" = None
    """Its reports that count, as `read_table` returns them; None where they cannot be read."""
    plan: Plan | None = None
    """The plan of the newest driver; None where it cannot be read."""
    problems: tuple[str, ...] = ()
    """What could not be read, one line each, with the next step."""
    now: float
    """When it was read."""

    @cached_property
    def columns(self) -> ReportColumns:
        """The reports that count, as columns."""
        return ReportColumns.of(self.reports)

    @cached_property
    def leaves(self) -> dict[str, Leaf]:
        """The lists and distributions of its space by their paths, as far as they are known."""
        return declared_leaves(self.plan, self.records)

    @cached_property
    def outcome(self) -> SweepOutcome:
        """The run as in `results.json`."""
        return self.view.as_outcome()

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each trial that has one: 0 is the best."""
        return {trial.id: place for place, trial in enumerate(self.outcome.ranked)}

    @property
    def end(self) -> float:
        """When the run has ended: now, or its newest record."""
        # Gangs of a killed driver end at its newest record. Up to now, bars, slot-hours and losses would grow by the
        # time under no driver.
        return self.now if self.view.state is RunState.RUNNING else self.view.times.last_record or self.now


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
