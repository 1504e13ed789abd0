"""The row of a run by a few small files: of one that has ended without its journal, of a corrupt one what there is."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.writer import driver_of
from sparktrain.runs import plan as plans
from sparktrain.runs.history import MOST_BYTES, read_overview
from sparktrain.runs.listing.run_row import (
    RunClock,
    RunLabel,
    RunLineage,
    RunOwner,
    RunRow,
    SlotUse,
    best_of,
    owner_of,
    parents_of,
)
from sparktrain.runs.listing.run_states import STATES, UNREADABLE
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.results_json import VERSION
from sparktrain.state.trial import TrialStatus

FIRST_TERM = 1


class _Best(Struct, frozen=True):
    """A trial or a case of `results.json`."""

    id: int
    params: dict[str, Any]
    metrics: dict[str, float | None]


class _Trial(_Best, frozen=True, kw_only=True):
    """What a row has of each trial of `results.json`."""

    status: TrialStatus
    restarts: list[msgspec.Raw] = []


class _Results(Struct, frozen=True, kw_only=True):
    """What a row has of `results.json`."""

    version: int
    status: str
    reason: str | None
    seconds: float
    best: _Best | None
    best_case: _Best | None = None
    trials: list[_Trial]


def ended_row(place: RunLocation, journal_files: Sequence[str]) -> RunRow | None:
    """The row of a run that its only driver has ended; None for any other run, which needs its journal. Blocks.

    `journal_files` are the names in the folder of its journal. The driver writes `results.json` last, from its journal,
    and the next driver, which has another term, may replace it: with one term alone the file has what the journal has.
    Raises OSError from the store; RunDirectoryError where the files cannot be read.
    """
    store = place.store
    layout = place.layout
    claims = [name for name in journal_files if name.startswith(("term-", "removal-"))]
    if claims != [layout.journal.term(FIRST_TERM).rpartition("/")[2]]:
        return None
    try:
        results = from_json(store.read(layout.results), _Results)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if results.version != VERSION or results.status not in STATES:
        return None
    overview = read_overview(store, layout)
    plan = plans.read(store, layout, str(overview["plan"]))
    spec = plan.spec
    metric = spec["metric"]
    is_replicated = spec.get("repeats", 1) * spec.get("folds", 1) > 1
    leader: _Best | None = results.best_case if is_replicated else results.best
    if leader is None and metric is None and len(results.trials) == 1:
        leader = results.trials[0]
    total = overview.get("trials")
    started = overview.get("started")
    return RunRow(
        id=layout.path,
        state=results.status,
        label=_label(place, {**overview, "kind": plan.kind, "function": plan.function, **spec}),
        best=None if leader is None else best_of(leader.id, leader.params, leader.metrics, metric),
        counts={str(status): number for status, number in Counter(trial.status for trial in results.trials).items()},
        total=total if isinstance(total, int) else None,
        owner=owner_of(driver_of(store, layout.journal, FIRST_TERM)),
        clock=RunClock(started=_number(started), seconds=results.seconds),
        slots=SlotUse(_members(spec.get("gang"))),
        restarts=sum(len(trial.restarts) for trial in results.trials),
        lineage=RunLineage(parents=parents_of(plan)),
        problem=results.reason or "",
    )


def partial_row(place: RunLocation, problem: str) -> RunRow:
    """What can be read of a run that cannot be read as a whole, such as one of another version. Blocks.

    Of `run.json` any field may be missing, or mean something else. Raises OSError from the store.
    """
    overview = _any_overview(place)
    total = overview.get("trials")
    return RunRow(
        id=place.layout.path,
        state=UNREADABLE,
        label=_label(place, overview),
        total=total if isinstance(total, int) else None,
        owner=_any_owner(place),
        clock=RunClock(started=_number(overview.get("started"))),
        slots=SlotUse(_members(overview.get("gang"))),
        problem=problem,
    )


def _label(place: RunLocation, facts: dict[str, Any]) -> RunLabel:
    def text(name: str) -> str:
        value = facts.get(name)
        return value if isinstance(value, str) else ""

    return RunLabel(
        name=place.layout.path,
        directory=place.where,
        kind=text("kind"),
        function=text("function"),
        metric=text("metric") or None,
        mode=text("mode") or "max",
    )


def _any_overview(place: RunLocation) -> dict[str, Any]:
    try:
        content = json.loads(place.store.read_range(place.layout.spec, 0, MOST_BYTES))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _any_owner(place: RunLocation) -> RunOwner:
    names = place.store.entries(place.layout.journal.path)
    terms = [int(name[5:]) for name in names if name.startswith("term-") and name[5:].isdecimal()]
    try:
        return owner_of(driver_of(place.store, place.layout.journal, max(terms, default=0)))
    except (RunDirectoryError, FileNotFoundError):
        return RunOwner()


def _members(gang: Any) -> int:
    if not isinstance(gang, dict):
        return 1
    numbers = [gang.get(name, 0) for name in ("workers", "ps", "evaluator")]
    return max(1, sum(number for number in numbers if isinstance(number, int)))


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
