"""The warnings at the end of a run: what trials noticed, and which ones have no checkpoint of their last state."""

from sparktrain.base import formatting
from sparktrain.runs.sweep_outcome import SweepOutcome

_MOST_WARNINGS = 5


def warning_lines(result: SweepOutcome) -> list[str]:
    """A line for each warning, once for all trials that share it."""
    trials: dict[str, list[int]] = {}
    if unsaved := [trial for trial in result.trials if trial.unsaved]:
        trials[unsaved[0].unsaved] = [trial.id for trial in unsaved]
    for trial in result.trials:
        for notice in trial.notices:
            trials.setdefault(notice, []).append(trial.id)
    return [_line(text, ids) for text, ids in list(trials.items())[:_MOST_WARNINGS]]


def _line(text: str, trials: list[int]) -> str:
    suffix = f", and {formatting.count(len(trials) - 1, 'other trial')} likewise" if len(trials) > 1 else ""
    return f"warning: trial {trials[0]}: {formatting.plain(text)}{suffix}"
