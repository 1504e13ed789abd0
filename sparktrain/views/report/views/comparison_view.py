"""Several runs beside each other: what differs in their plans, their best trials, and their curves over each other."""

import difflib
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from msgspec import Struct

from sparktrain.views.report.views.headline_view import Headline
from sparktrain.views.report.views.report_document import ReportDocument
from sparktrain.views.report.views.run_detail import facts_of
from sparktrain.views.report.views.value_axis import ValueAxis, lines_axis

MOST_RUNS = len(ascii_uppercase)
_MOST_CODE_LINES = 400


class ComparedRun(Struct, frozen=True):
    """One of the runs."""

    letter: str
    headline: Headline
    slot_s: float | None
    """What its gangs took, in seconds of slots; None where that is unknown."""


class ComparedValue(Struct, frozen=True):
    """A name, and its value in each run: None where a run has none."""

    name: str
    values: tuple[Any, ...]


class ComparedLine(Struct, frozen=True):
    """A line of one run."""

    run: int
    x: tuple[float, ...]
    y: tuple[float | None, ...]


class ComparedCurves(Struct, frozen=True):
    """The curve of each run's best trial."""

    metric: str
    lines: tuple[ComparedLine, ...]
    y: ValueAxis | None


class CodeDifference(Struct, frozen=True):
    """How the source of the training function differs between two runs."""

    letters: str
    lines: tuple[str, ...]


class RunComparison(Struct, frozen=True, kw_only=True):
    """Several runs as their page shows them."""

    version: int = 1
    kind: str = "comparison"
    made: float
    sparktrain: str
    runs: tuple[ComparedRun, ...]
    differences: tuple[ComparedValue, ...]
    """Facts of the plans and versions that are not the same in all runs."""
    best_params: tuple[ComparedValue, ...]
    history: tuple[ComparedLine, ...]
    """The best value so far by the number of trials that have ended; only of runs with the first one's metric."""
    history_y: ValueAxis | None
    curves: tuple[ComparedCurves, ...]
    code: tuple[CodeDifference, ...]


def comparison_of(documents: Sequence[ReportDocument]) -> RunComparison:
    """The comparison of at least two and at most 26 runs. Pure."""
    best = [document.headline.best.params if document.headline.best is not None else {} for document in documents]
    history = _history(documents)
    return RunComparison(
        made=max(document.made for document in documents),
        sparktrain=documents[0].sparktrain,
        runs=tuple(
            ComparedRun(letter, document.headline, None if document.views.cost is None else document.views.cost.slot_s)
            for letter, document in zip(ascii_uppercase, documents, strict=False)
        ),
        differences=tuple(fact for fact in _side_by_side(list(map(_facts, documents))) if len(set(fact.values)) > 1),
        best_params=_side_by_side(best) if any(best) else (),
        history=history,
        history_y=_axis(history, documents[0].headline.run.mode),
        curves=_curves(documents),
        code=_code(documents),
    )


def _facts(document: ReportDocument) -> dict[str, Any]:
    return {**facts_of(document.headline, document.views.environment)}


def _side_by_side(columns: Sequence[dict[str, Any]]) -> tuple[ComparedValue, ...]:
    names = dict.fromkeys(name for column in columns for name in column)
    return tuple(ComparedValue(name, tuple(column.get(name) for column in columns)) for name in names)


def _history(documents: Sequence[ReportDocument]) -> tuple[ComparedLine, ...]:
    metric = documents[0].headline.run.metric
    lines = []
    for number, document in enumerate(documents):
        view = document.views.history
        if view is not None and document.headline.run.metric == metric:
            lines.append(ComparedLine(number, tuple(range(1, len(view.best) + 1)), view.best))
    return tuple(lines)


def _curves(documents: Sequence[ReportDocument]) -> tuple[ComparedCurves, ...]:
    metric_lines: dict[str, list[ComparedLine]] = {}
    for number, document in enumerate(documents):
        best = None if document.headline.best is None else document.headline.best.trial
        for curves in document.views.curves:
            line = next((line for line in curves.lines if line.trial == best), None)
            if line is not None:
                metric_lines.setdefault(curves.metric, []).append(ComparedLine(number, curves.steps, line.values))
    modes = {curves.metric: curves.mode for document in documents for curves in document.views.curves}
    return tuple(
        ComparedCurves(metric, tuple(lines), _axis(lines, modes.get(metric))) for metric, lines in metric_lines.items()
    )


def _axis(lines: Sequence[ComparedLine], mode: str | None) -> ValueAxis | None:
    return lines_axis((line.y for line in lines), mode)


def _code(documents: Sequence[ReportDocument]) -> tuple[CodeDifference, ...]:
    """Each run against the first one."""
    first = documents[0].views.environment.source
    differences = []
    for letter, document in zip(ascii_uppercase[1:], documents[1:], strict=False):
        lines = difflib.unified_diff(
            first.splitlines(), document.views.environment.source.splitlines(), "A", letter, lineterm=""
        )
        if shown := list(lines)[:_MOST_CODE_LINES]:
            differences.append(CodeDifference(f"A and {letter}", tuple(shown)))
    return tuple(differences)
