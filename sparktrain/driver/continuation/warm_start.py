"""What a run knows before its first trial: read once, when the run is new, and stored in its plan.

A driver that resumes the run takes it from there: the former runs may be gone by then, or have other results.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.base.ids import TrialId
from sparktrain.config.param_values import plain, shown
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.config.warm_sources import FirstPoints, FormerRun, FormerTable, WarmSource
from sparktrain.errors import ResumeError, RunDirectoryError, SpecError
from sparktrain.rundir.journal.run_claim import run_id
from sparktrain.runs.history import look, observation
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of, run_in
from sparktrain.runs.plan import KnownResult, WarmPlan
from sparktrain.search.cma_source import LEAST_KNOWN
from sparktrain.search.sampler import Observation, ObservedStatus, Sampler
from sparktrain.search.space import Params, Space
from sparktrain.search.warm_sampler import Places, WarmSampler
from sparktrain.state.trial import TrialStatus

NO_STATE = ("nsgaii",)
"""Samplers that count a result only in the generation of trials that they proposed it in."""
_PARAMS = "params."
_METRICS = "metrics."
_ENDED = (TrialStatus.SUCCEEDED, TrialStatus.PRUNED)


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """What a call passes as `warm_start=`, for the space and the sampler of its run."""

    sources: tuple[WarmSource, ...] = ()
    space: Space | None = None
    metric: str | None = None
    points: tuple[Params, ...] = field(default=())
    """The cases of the points, in their order."""
    least: int = 0
    """How many results the sampler needs, where there are any sources of results."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What identifies the sources."""
        return tuple(_label(source) for source in self.sources)

    def read(self, where: str) -> WarmPlan | None:
        """What goes into the plan of a new run at `where`; None without a warm start. Blocks on the stores.

        Raises SpecError, and RunDirectoryError for a directory without a run.
        """
        if not self.sources or self.space is None:
            return None
        if where in self.labels:
            raise SpecError(
                f"warm_start names {where}, the directory of this run itself, and there is no run in it: name a former "
                "run, or leave warm_start out: the same call resumes a run"
            )
        places = Places(self.space)
        lines = []
        results = list[KnownResult]()
        for source, label in zip(self.sources, self.labels, strict=True):
            if isinstance(source, FirstPoints):
                continue
            former_trials = _of_run(source, self.metric) if isinstance(source, FormerRun) else _of_table(source, self)
            usable_results, line = _usable(former_trials, places, label, self.metric or "")
            results += usable_results
            lines.append(line)
        succeeded = sum(result.status == ObservedStatus.SUCCEEDED for result in results)
        if lines and succeeded < self.least:
            have = formatting.count(succeeded, "result")
            raise SpecError(
                f"warm_start has {have} in the space, and sampler='cmaes' takes its first distribution from the best "
                f"tenth of {self.least} at least: add more, use sampler='tpe', or pass the best parameters as dicts"
            )
        if self.points:
            lines.append(f"{formatting.count(len(self.points), 'point')} of warm_start {_are(self.points)} tried first")
        return WarmPlan(
            sources=self.labels,
            lines=tuple(lines),
            points=self.points,
            metric=self.metric,
            known=tuple(results),
            runs=self.run_ids(),
        )

    def run_ids(self) -> tuple[str, ...]:
        """The id of the run of each source; empty for tables, points, and runs that are gone. Blocks on the stores."""
        return tuple(_run_id(source) if isinstance(source, FormerRun) else "" for source in self.sources)


def checked(
    sources: tuple[WarmSource, ...] | None, space: Space, spec: SweepSpec, sampler: Sampler, name: str
) -> WarmStart:
    """What a call passes, once it fits its sampler of that name. Touches no store. Raises SpecError."""
    if not sources:
        return WarmStart()
    if any(not isinstance(source, FirstPoints) for source in sources):
        _check_learns(spec, sampler, name)
    places = Places(space)
    points = list[Params]()
    for row in [row for source in sources if isinstance(source, FirstPoints) for row in source.rows]:
        case, problem = places.find(row)
        if case is None:
            raise SpecError(
                f"warm_start: the point {shown(row)} is outside of the space: {problem}; correct it, or widen the space"
            )
        if case in points:
            raise SpecError(f"warm_start has the point {shown(row)} twice: remove one of them")
        points.append(case)
    if spec.trials is not None and len(points) > spec.trials:
        raise SpecError(
            f"warm_start has {len(points)} points, and trials={spec.trials}: pass more trials, or fewer points"
        )
    return WarmStart(
        sources=sources,
        space=space,
        metric=spec.metric,
        points=tuple(points),
        least=LEAST_KNOWN if name == "cmaes" else 0,
    )


def _check_learns(spec: SweepSpec, sampler: Sampler, name: str) -> None:
    if spec.metric is None:
        raise SpecError(
            "warm_start has results, and the sweep has no metric to read them by: pass metric=, or points alone"
        )
    if spec.other_metrics:
        raise SpecError(
            f"warm_start has results of one metric, and other_metrics has {spec.other_metrics[0].metric!r} too: pass "
            "dicts of parameters to try first, or call sparktrain.extend"
        )
    if not sampler.learns:
        raise SpecError(
            f"warm_start has results to learn from, and sampler={name!r} learns nothing: it would try what is known "
            "again. Use sampler='tpe', pass dicts of parameters to try first, or call sparktrain.extend to give "
            "a finished sweep more values"
        )
    if name in NO_STATE:
        raise SpecError(
            f"sampler={name!r} learns only from trials of its own generations, so results of warm_start would change "
            "nothing: use sampler='tpe', or pass the best parameters as dicts to try first"
        )


def resumed_plan(before: WarmPlan | None, warm_start: WarmStart, where: str) -> WarmPlan | None:
    """The warm start of a run that exists: what it started with. Raises ResumeError when another is asked for.

    Blocks on the stores of former runs that have other paths now.
    """
    stored_sources = before.sources if before else ()
    if warm_start.sources and warm_start.labels != stored_sources and not _are_moved(before, warm_start):
        started = f"started with {', '.join(stored_sources)}" if stored_sources else "started without warm_start"
        raise ResumeError(
            f"the run at {where} {started}, and now warm_start is {', '.join(warm_start.labels)}: a run keeps what it "
            "started with; choose another name for a new run, or leave warm_start out to resume this one"
        )
    return before


def _are_moved(before: WarmPlan | None, warm_start: WarmStart) -> bool:
    """Whether the sources are the same as before, and runs among them have other paths."""
    if before is None or before.runs is msgspec.UNSET:
        return False
    stored = [run or label for run, label in zip(before.runs, before.sources, strict=True)]
    return stored == [run or label for run, label in zip(warm_start.run_ids(), warm_start.labels, strict=True)]


def _run_id(former: FormerRun) -> str:
    place = place_of(former.directory, LOOK_TIMEOUT_S)
    with suppress(OSError, RunDirectoryError):
        return run_id(place.store, place.layout.journal) if place.has_run else ""
    return ""


def with_warm_start(sampler: Sampler, plan: WarmPlan | None) -> Sampler:
    """The sampler, with what the plan has of the warm start."""
    if plan is None:
        return sampler
    metric = plan.metric or ""
    observations = [
        Observation(
            TrialId(-1 - index), result.params, ObservedStatus(result.status), {metric: result.value}, result.step
        )
        for index, result in enumerate(plan.known)
    ]
    return WarmSampler(sampler, plan.points, observations)


# ---- reading


class _Former(Struct, frozen=True):
    """A former trial."""

    params: Mapping[str, Any]
    status: str = ""
    value: float = math.nan
    step: int | None = None


def _of_run(source: FormerRun, metric: str | None) -> list[_Former]:
    place = run_in(source.directory, LOOK_TIMEOUT_S)
    stored = look(place.store, place.layout)
    if stored is None:
        raise SpecError(f"warm_start: {source.directory} is no longer a run directory: its run.json was deleted")
    is_same_metric = stored.plan.spec["metric"] == metric
    trials = []
    for case in stored.sweep().ended_cases():
        if case.status not in _ENDED or (case.status is TrialStatus.PRUNED and not is_same_metric):
            trials.append(_Former(case.params))
            continue
        outcome = observation(case, metric)
        trials.append(_Former(case.params, outcome.status, outcome.metrics.get(metric or "", math.nan), outcome.step))
    return trials


def _of_table(table: FormerTable, warm_start: WarmStart) -> list[_Former]:
    """The rows of a table such as that of `SweepResult.to_pandas`, or with bare names."""
    metric = warm_start.metric or ""
    space = warm_start.space
    assert space is not None
    values = next((name for name in (f"{_METRICS}{metric}", metric) if name in table.columns), None)
    if values is None:
        raise SpecError(
            f"warm_start: the table has no column {metric!r} or '{_METRICS}{metric}', but {', '.join(table.columns)}: "
            "rename the column of the metric"
        )
    prefixed = any(name.startswith(_PARAMS) for name in table.columns)
    trials = []
    for number, cells in enumerate(table.rows):
        row = {name: cell for name, cell in zip(table.columns, cells, strict=True) if cell is not None}
        named = {name.removeprefix(_PARAMS): cell for name, cell in row.items() if name.startswith(_PARAMS) == prefixed}
        chosen = {name: cell for name, cell in named.items() if prefixed or name in space.names}
        params = {name: plain(cell, f"warm_start: row {number}, {name!r}") for name, cell in chosen.items()}
        value = row.get(values)
        status = str(row.get("status", "succeeded"))
        measured = float(value) if isinstance(value, int | float) and status in ("succeeded", "pruned") else math.nan
        trials.append(_Former(params, status, measured))
    return trials


def _usable(former_trials: Sequence[_Former], places: Places, label: str, metric: str) -> tuple[list[KnownResult], str]:
    """The results within the space, and the line about all of them."""
    usable = list[KnownResult]()
    skip_counts = Counter[str]()
    for former_trial in former_trials:
        case, _ = places.find(former_trial.params)
        if not math.isfinite(former_trial.value):
            skip_counts[f"without {metric}"] += 1
        elif case is None:
            skip_counts["outside of the space"] += 1
        else:
            usable.append(KnownResult(case, former_trial.status, former_trial.value, former_trial.step))
    remark = "".join(f"; {count} {why}" for why, count in sorted(skip_counts.items()))
    trials = formatting.count(len(former_trials), "trial")
    return usable, f"{len(usable)} of {trials} of {label} {_are(usable)} in the space, and known to the sampler{remark}"


def _are(of: Sequence[object]) -> str:
    return "is" if len(of) == 1 else "are"


def _label(source: WarmSource) -> str:
    return place_of(source.directory).where if isinstance(source, FormerRun) else str(source)
