"""The report of an examination, for people and for programs."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.ops.doctor.examine import Examination

VERSION = 1
"""The version of the format of `--json`; it grows when a reader of the old format would misread the new one."""

_STYLES = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
_WIDTH = 160
"""The most columns of the report, also in a wider terminal or a file."""


def document(examination: Examination) -> dict[str, Any]:
    """The report in JSON types, as docs/doctor.md describes it."""
    answers = examination.roll.answers if examination.roll is not None else ()
    return {
        "version": VERSION,
        "level": str(examination.level),
        "findings": [{**msgspec.to_builtins(finding), "fix": finding.fix or None} for finding in examination.findings],
        "unseen": list(examination.unseen),
        "slots": [answer.document() for answer in answers],
    }


class DoctorReport:
    """A rich renderable: one line for each finding, its fix below it."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for finding in self._examination.findings:
            grid.add_row(Text(finding.level.upper(), _STYLES[finding.level]), finding.check, _message(finding))
        yield from console.render(grid, options.update(width=min(options.max_width, _WIDTH)))
        yield Text()
        yield from (Text(f"not checked: {area}", "dim") for area in self._examination.unseen)
        yield Text(", ".join(_counts(self._examination)), "bold")


def _message(finding: Finding) -> Text:
    text = Text(formatting.plain(finding.message))
    return text.append(f"\nfix: {formatting.plain(finding.fix)}", "bold") if finding.fix else text


def _counts(examination: Examination) -> Iterator[str]:
    counts = Counter(finding.level for finding in examination.findings)
    yield from (f"{counts[level]} {level.upper()}" for level in reversed(Level))
