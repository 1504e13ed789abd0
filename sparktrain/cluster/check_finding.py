"""The finding of a check: its level, what was found, and what to do about it."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How good or bad a finding is."""

    PASS = "pass"
    WARN = "warn"  # it costs something, or fails under conditions that the message names
    FAIL = "fail"  # a run, or a gang, cannot work


class Finding(Struct, frozen=True):
    """One line of the doctor's report."""

    check: str
    """The subject of the check, in one or two words."""
    level: Level
    message: str
    fix: str = ""
    """The next step; empty for what passes."""


def passed(check: str, message: str) -> Finding:
    """A finding without a problem."""
    return Finding(check, Level.PASS, message)


def warned(check: str, message: str, fix: str) -> Finding:
    """A finding that costs something."""
    return Finding(check, Level.WARN, message, fix)


def failed(check: str, message: str, fix: str) -> Finding:
    """A finding that stops a run."""
    return Finding(check, Level.FAIL, message, fix)


def of_message(check: str, level: Level, message: str) -> Finding:
    """A finding from the text of an error of ours, which ends with the next step."""
    problem, fix = _split(message)
    return Finding(check, level, problem, fix)


def worst(findings: Sequence[Finding]) -> Level:
    """The worst level among `findings`."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.PASS)


def _split(message: str) -> tuple[str, str]:
    """The message before and after its last colon or semicolon outside of brackets."""
    depth = 0
    cut = None
    for place, character in enumerate(message):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character in ":;" and message[place + 1 : place + 2] == " ":
            cut = place
    return (message, "") if cut is None else (message[:cut], message[cut + 2 :])
