"""The end of a run, for programs (`results.json`) and for people (the final table)."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.driver import text
from sparktrain.driver.results import SweepResult, TrialResult
from sparktrain.driver.table import STYLES, TrialTable, headline
from sparktrain.errors import SpecError
from sparktrain.state.outcome import Failure
from sparktrain.state.trial import TrialStatus

VERSION = 1
"""Of the format of `results.json`. It grows when a reader of the old one would misread the new one."""

_TABLE_WIDTH = 160
"""At most, however wide the terminal is, or a file."""
_TOLD_CAUSES = 10
_TOLD_LINES = 8
_TOLD_TRIALS = 8


def to_json(result: SweepResult) -> dict[str, Any]:
    """`result` as the content of `results.json`, which docs/results.md describes: JSON's own types only."""
    return {
        "version": VERSION,
        "name": result.name,
        "status": str(result.status),
        "reason": result.reason,
        "metric": result.metric,
        "mode": result.mode,
        "seconds": json_value(result.seconds),
        "directory": result.directory,
        "best": _best(result),
        "trials": [trial_json(trial) for trial in result.trials],
    }


def to_bytes(result: SweepResult) -> bytes:
    """`results.json` itself: strict JSON in UTF-8, one object, its keys always in the same order."""
    written = json.dumps(to_json(result), indent=2, ensure_ascii=True, allow_nan=False)
    return written.encode() + b"\n"


def from_json(data: Mapping[str, Any]) -> SweepResult:
    """The result that `to_json` wrote. Numbers that JSON does not have come back as NaN in metrics, None elsewhere.

    Raises SpecError when it is no such thing, or of a newer version.
    """
    version = data.get("version")
    if version != VERSION:
        raise SpecError(f"results of version {version!r} cannot be read: this sparktrain reads version {VERSION}")
    try:
        return msgspec.convert(_with_nan(data), SweepResult)
    except (msgspec.ValidationError, TypeError, AttributeError, KeyError) as error:
        raise SpecError(f"results cannot be read: {error}") from error


def summary_table(result: SweepResult) -> "Summary":
    """What the command line shows at the end, as a rich renderable: headline, trials, and why trials failed."""
    return Summary(result)


class Summary:
    """A rich renderable."""

    def __init__(self, result: SweepResult) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(headline(self._result), style="bold")
        if self._result.trials:
            yield Text()
        yield from console.render(TrialTable(self._result), options.update(width=min(options.max_width, _TABLE_WIDTH)))
        groups = _causes(self._result)
        for trials in groups[:_TOLD_CAUSES]:
            yield Text()
            yield from _explained(trials, options.max_width)
        if len(groups) > _TOLD_CAUSES:
            yield Text(f"\n{text.count(len(groups) - _TOLD_CAUSES, 'other cause')}: see the logs of the trials")
        if self._result.directory is not None:
            yield Text(f"\nresults and logs: {text.plain(self._result.directory)}", style="dim")


class Lines:
    """A rich renderable: lines as they are, the first one bold, broken only where the terminal ends."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self._lines):
            style = "" if number else "bold"
            yield from (Text(part, style, no_wrap=True) for part in chop_cells(text.plain(line), options.max_width))


def _causes(result: SweepResult) -> list[list[TrialResult]]:
    """Failed and lost trials, those with the same root cause together."""
    groups: dict[str, list[TrialResult]] = {}
    for trial in result.trials:
        if trial.error is not None and trial.status in (TrialStatus.FAILED, TrialStatus.LOST):
            groups.setdefault(f"{trial.status} {trial.error.summary}", []).append(trial)
    return list(groups.values())


def _explained(trials: list[TrialResult], width: int) -> Iterator[Text]:
    """The root cause first, then where it happened, then where to read on."""
    first = trials[0]
    if first.error is None:
        return
    ids = ", ".join(str(trial.id) for trial in trials[:_TOLD_TRIALS])
    more = f" and {len(trials) - _TOLD_TRIALS} more" if len(trials) > _TOLD_TRIALS else ""
    noun = "trial" if len(trials) == 1 else "trials"
    line = Text(f"{noun} {ids}{more} {first.status}: ", style=STYLES[first.status])
    yield line.append(text.plain(first.error.summary), style="bold")
    lines = first.error.traceback.rstrip().splitlines() or first.error.log_tail
    for told in lines[-_TOLD_LINES:]:
        yield from _indented(text.plain(told), width)
    if first.log is not None:
        of = f" of trial {first.id}" if len(trials) > 1 else ""
        yield from _indented(f"log{of}: {text.plain(first.log)}", width, "dim")


def _indented(line: str, width: int, style: str = "") -> Iterator[Text]:
    """`line`, broken only where the terminal ends: a path that is broken at its words cannot be copied."""
    yield from (Text(part, style=style, no_wrap=True) for part in chop_cells(f"    {line}", width))


def _best(result: SweepResult) -> dict[str, Any] | None:
    best = result.best
    return None if best is None else trial_json(best)


def trial_json(trial: TrialResult) -> dict[str, Any]:
    """One of `trials` of `results.json`."""
    return {
        "id": trial.id,
        "params": json_value(trial.params),
        "metrics": json_value(trial.metrics),
        "status": str(trial.status),
        "seconds": json_value(trial.seconds),
        "log": trial.log,
        "error": None if trial.error is None else _failure(trial.error),
        "generations": trial.generations,
        "host": trial.host,
        "members": [{**asdict(member), "role": str(member.role)} for member in trial.members],
        "restarts": [json_value(msgspec.to_builtins(restart)) for restart in trial.restarts],
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "kind": str(failure.kind),
        "summary": failure.summary,
        "traceback": failure.traceback,
        "log_tail": list(failure.log_tail),
        "rank": failure.rank,
        "host": failure.host,
        "loss": failure.loss and str(failure.loss),
    }


def json_value(value: Any) -> Any:
    """`value` in JSON's own types. A parameter may be anything: what has no place in JSON becomes its text."""
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


def _with_nan(data: Mapping[str, Any]) -> dict[str, Any]:
    trials = [
        {**trial, "metrics": {name: math.nan if value is None else value for name, value in trial["metrics"].items()}}
        for trial in data.get("trials", [])
    ]
    return {**data, "trials": trials}
