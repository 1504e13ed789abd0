"""A run as one row of a list: what `sparktrain ls` and the page of all runs show of it. Pure."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.runs.flat_params import flat
from sparktrain.runs.listing.run_states import UNREADABLE
from sparktrain.runs.plan import Plan
from sparktrain.runs.results_json import json_value
from sparktrain.runs.trial_result import FAILED_OR_LOST
from sparktrain.runs.view import RunState, RunView
from sparktrain.state.records import AnyRecord, DriverStarted
from sparktrain.state.trial import TrialStatus

_MOST_PARAMS = 60
_MOST_METRICS = 20
_LONGEST_TEXT = 200


class RunLabel(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a run is: nothing of it changes."""

    name: str
    directory: str
    """The run directory, a path or a URL."""
    kind: str = ""
    """`sweep` or `run`."""
    function: str = ""
    metric: str | None = None
    mode: str = "max"


class BestOfRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The best trial, or the best case of a sweep with repeats or folds; of a run without a metric its only trial."""

    trial: int
    """The number of the trial, or of the case."""
    value: float | None = None
    """Of the run's metric."""
    params: dict[str, Any] = {}
    """By their paths; long values are cut."""
    metrics: dict[str, float | None] = {}


class RunOwner(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who started the newest driver, and where."""

    user: str = ""
    host: str = ""
    sparktrain: str = ""
    """The version of its sparktrain."""


class RunClock(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When the run ran, in seconds since 1970 by its drivers' clocks."""

    started: float | None = None
    seconds: float = 0.0
    """How long drivers have run it, without the one that runs."""
    since: float | None = None
    """When the driver that runs started; None without one."""

    def seconds_at(self, now: float) -> float:
        """How long drivers have run it until `now`, with the one that runs."""
        return self.seconds + (0.0 if self.since is None else max(0.0, now - self.since))


class SlotUse(Struct, frozen=True, omit_defaults=True):
    """What a run takes of a cluster."""

    per_trial: int = 1
    busy: int = 0
    """Slots that members hold now."""


class RunParent(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run that another one continues from."""

    link: str
    """`refit` or `warm start`."""
    directory: str
    trial: int | None = None
    """The trial that a refit takes checkpoint or parameters from."""


class RunLineage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a run comes from."""

    parents: tuple[RunParent, ...] = ()
    extended: tuple[int | None, ...] = ()
    """How many trials the sweep had before each extension."""


class RunRow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of several runs."""

    id: str
    """The name of its folder, which no other run of the directory has."""
    state: str
    """One of `run_states.STATES`, or `UNREADABLE`."""
    label: RunLabel
    best: BestOfRun | None = None
    counts: dict[str, int] = {}
    """Trials by status; only those that there are."""
    total: int | None = None
    """How many trials there will be; None where that is unknown."""
    owner: RunOwner = RunOwner()
    clock: RunClock = RunClock()
    slots: SlotUse = SlotUse()
    restarts: int = 0
    """Of gangs and members, in all trials."""
    lineage: RunLineage = RunLineage()
    problem: str = ""
    """Why the run cannot be read, or the reason with which it ended."""

    @property
    def done(self) -> int:
        """Trials with a final status."""
        return sum(number for status, number in self.counts.items() if TrialStatus(status).final)

    @property
    def failed(self) -> int:
        """Trials that failed or were lost."""
        return sum(self.counts.get(str(status), 0) for status in FAILED_OR_LOST)

    @property
    def value(self) -> float | None:
        """The value of the best trial so far."""
        return None if self.best is None else self.best.value

    @property
    def readable(self) -> bool:
        """Whether all of it could be read."""
        return self.state != UNREADABLE


def row_of(identifier: str, view: RunView, plan: Plan, records: Sequence[AnyRecord]) -> RunRow:
    """The row of a run as its journal shows it. `identifier` is the name of its folder."""
    is_running = view.state is RunState.RUNNING
    leader = view.leader
    if leader is None and view.spec.metric is None and len(view.results) == 1:
        leader = view.results[0]
    size = view.spec.gang.size
    return RunRow(
        id=identifier,
        state=str(view.status or ("running" if is_running else "driver gone")),
        label=RunLabel(
            name=view.name,
            directory=view.directory,
            kind=view.kind,
            function=view.function,
            metric=view.spec.metric,
            mode=view.spec.mode,
        ),
        best=None if leader is None else best_of(leader.id, leader.params, leader.metrics, view.spec.metric),
        counts={str(status): number for status, number in view.counts.items() if number},
        total=view.total,
        owner=owner_of(view.driver.identity),
        clock=RunClock(
            started=view.times.started,
            seconds=view.times.ran_s,
            since=view.times.driver_started if is_running else None,
        ),
        slots=SlotUse(size, size * view.counts.get(TrialStatus.RUNNING, 0) if is_running else 0),
        restarts=sum(len(trial.restarts) for trial in view.results),
        lineage=RunLineage(parents=parents_of(plan), extended=_extensions(records)),
        problem="" if view.end is None else view.end.reason,
    )


def best_of(trial: int, params: Mapping[str, Any], metrics: Mapping[str, Any], metric: str | None) -> BestOfRun:
    """The best trial as a row has it."""
    names = sorted(metrics, key=lambda name: name != metric)[:_MOST_METRICS]
    numbers = {name: _finite(metrics[name]) for name in names}
    paths = flat(params)
    return BestOfRun(
        trial=trial,
        value=None if metric is None else numbers.get(metric),
        params={name: _short(paths[name]) for name in list(paths)[:_MOST_PARAMS]},
        metrics=numbers,
    )


def owner_of(driver: DriverIdentity | None) -> RunOwner:
    """The owner by the newest driver; an empty one where no driver has started."""
    if driver is None:
        return RunOwner()
    return RunOwner(user=driver.user, host=driver.host, sparktrain=driver.sparktrain)


def parents_of(plan: Plan) -> tuple[RunParent, ...]:
    """The runs that a plan continues from."""
    parents: list[RunParent] = []
    for source in (plan.origin, plan.refit):
        if source is not msgspec.UNSET:
            parents.append(RunParent(link="refit", directory=source.directory, trial=source.trial))
    sources = () if plan.warm is msgspec.UNSET else plan.warm.sources
    parents += (RunParent(link="warm start", directory=source) for source in sources if _is_directory(source))
    return tuple(parents)


def _is_directory(source: str) -> bool:
    """Tables and points are named by their sizes and digests."""
    return source.startswith("/") or ":/" in source.partition(" ")[0]


def _extensions(records: Iterable[AnyRecord]) -> tuple[int | None, ...]:
    former: int | None = None
    totals: list[int | None] = []
    for record in records:
        if isinstance(record, DriverStarted):
            if record.extends:
                totals.append(former)
            former = former if record.trials is None else record.trials
    return tuple(totals)


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _short(value: Any) -> Any:
    """A value that does not make a row long."""
    plain = json_value(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    text = plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return plain if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
