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

from sparktrain import formatting
from sparktrain.errors import SpecError
from sparktrain.runs.failure_causes import explained
from sparktrain.runs.results import SweepResult, TrialResult, best_of
from sparktrain.runs.trial_table import TrialTable, headline
from sparktrain.state.outcome import Failure

VERSION = 1
"""Of the format of `results.json`. It grows when a reader of the old one would misread the new one."""

_TABLE_WIDTH = 160
"""At most, however wide the terminal is, or a file."""
_MOST_WARNINGS = 5


def to_json(result: SweepResult) -> dict[str, Any]:
    """`result` as the content of `results.json`, which docs/results-json.md describes: JSON's own types only."""
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
        yield from explained(self._result, options.max_width)
        yield from _warnings(self._result)
        if self._result.directory is not None:
            yield Text(f"\nresults and logs: {formatting.plain(self._result.directory)}", style="dim")


class Lines:
    """A rich renderable: lines as they are, the first one bold, broken only where the terminal ends."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self._lines):
            style = "" if number else "bold"
            yield from (
                Text(part, style, no_wrap=True) for part in chop_cells(formatting.plain(line), options.max_width)
            )


def _warnings(result: SweepResult) -> Iterator[Text]:
    """What is worth a warning, each once: trials whose last state is in no checkpoint, and what trials have noticed."""
    trials: dict[str, list[int]] = {}
    if unsaved := [trial for trial in result.trials if trial.unsaved]:
        trials[unsaved[0].unsaved] = [trial.id for trial in unsaved]
    for trial in result.trials:
        for each in trial.notices:
            trials.setdefault(each, []).append(trial.id)
    for each, of in list(trials.items())[:_MOST_WARNINGS]:
        others = f", and {formatting.count(len(of) - 1, 'other trial')} likewise" if len(of) > 1 else ""
        yield Text(f"\nwarning: trial {of[0]}: {formatting.plain(each)}{others}", style="yellow")


def _best(result: SweepResult) -> dict[str, Any] | None:
    best = best_of(result.trials, result.metric, result.mode)
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
        "unsaved": trial.unsaved,
        "notices": list(trial.notices),
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
