"""Why trials of a run failed, for people: each cause once, where it happened, and where to read on. Pure."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby

from rich.cells import chop_cells
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display.parts import STYLES
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.trial_result import FAILED_OR_LOST, TrialResult

_SHOWN_CAUSES = 10
_SHOWN_LINES = 12
_LOG_LINES = 8
_SHOWN_TRIALS = 8
_FRAME = re.compile(r'\s*(?:\| )?File "([^"]*)", line \d+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")


def explained(result: SweepOutcome, width: int) -> Iterator[Text]:
    """Lines for all causes of `result`, each broken only where `width` ends, an empty one before each cause."""
    groups = _causes(result.trials)
    for trials in groups[:_SHOWN_CAUSES]:
        yield Text()
        yield from _explained(trials, width)
    if len(groups) > _SHOWN_CAUSES:
        yield Text(f"\n{formatting.count(len(groups) - _SHOWN_CAUSES, 'other cause')}: see the logs of the trials")


def shortened(traceback: str, most: int = _SHOWN_LINES) -> list[str]:
    """The lines of a traceback; a long one loses the frames of libraries before the last frame, then its start."""
    lines = traceback.rstrip().splitlines()
    if len(lines) <= most:
        return lines
    frames = [list(frame) for _, frame in groupby(zip(_numbered(lines), lines, strict=True), key=lambda pair: pair[0])]
    blocks = [[line for _, line in frame] for frame in frames]
    # The error was raised in the last frame: it stays though it is of a library.
    last = max((number for number, block in enumerate(blocks) if _FRAME.match(block[0])), default=0)
    shown_lines: list[str] = []
    for is_library, group in groupby(enumerate(blocks), lambda pair: pair[0] != last and _is_library(pair[1])):
        group_blocks = [block for _, block in group]
        hidden = [[f"  ... {formatting.count(len(group_blocks), 'frame')} of libraries"]]
        shown_lines += chain.from_iterable(hidden if is_library else group_blocks)
    return shown_lines[-most:]


def _numbered(lines: Iterable[str]) -> Iterator[int]:
    """The number of the frame of each line: a frame starts where a file is named, or where the indentation ends."""
    number = 0
    within = False
    for line in lines:
        if _FRAME.match(line):
            number = number + 1
            within = True
        elif within and not line.startswith("    "):
            number = number + 1
            within = False
        yield number


def _is_library(frame: list[str]) -> bool:
    named = _FRAME.match(frame[0])
    return named is not None and _LIBRARY.search(named[1]) is not None


def _causes(trials: Iterable[TrialResult]) -> list[list[TrialResult]]:
    """Failed and lost trials, those with the same root cause together."""
    groups: dict[str, list[TrialResult]] = {}
    for trial in trials:
        if trial.error is not None and trial.status in FAILED_OR_LOST:
            groups.setdefault(f"{trial.status} {trial.error.summary}", []).append(trial)
    return list(groups.values())


def _explained(trials: list[TrialResult], width: int) -> Iterator[Text]:
    """The root cause first, then where it happened, then where to read on."""
    first = trials[0]
    if first.error is None:
        return
    ids = ", ".join(str(trial.id) for trial in trials[:_SHOWN_TRIALS])
    suffix = f" and {len(trials) - _SHOWN_TRIALS} more" if len(trials) > _SHOWN_TRIALS else ""
    noun = "trial" if len(trials) == 1 else "trials"
    line = Text(f"{noun} {ids}{suffix} {first.status}: ", style=STYLES[first.status])
    yield line.append(formatting.plain(first.error.summary), style="bold")
    for detail in shortened(first.error.traceback) or first.error.log_tail[-_LOG_LINES:]:
        yield from _indented(formatting.plain(detail), width)
    if first.log is not None:
        of = f" of trial {first.id}" if len(trials) > 1 else ""
        yield from _indented(f"log{of}: {formatting.plain(first.log)}", width, "dim")


def _indented(line: str, width: int, style: str = "") -> Iterator[Text]:
    """`line`, broken only where the terminal ends: a path that is broken at its words cannot be copied."""
    yield from (Text(part, style=style, no_wrap=True) for part in chop_cells(f"    {line}", width))
