"""What a check has found: how good or bad it is, what is so, and what to do about it."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How good or bad."""

    PASS = "pass"
    WARN = "warn"  # it costs something, or bites under conditions that the text names
    FAIL = "fail"  # a run, or a gang, cannot do its work


class Finding(Struct, frozen=True):
    """One line of the report."""

    check: str
    """What was looked at, in one or two words."""
    level: Level
    told: str
    fix: str = ""
    """The next step; empty for what passes."""


def passed(check: str, told: str) -> Finding:
    """All is well."""
    return Finding(check, Level.PASS, told)


def warned(check: str, told: str, fix: str) -> Finding:
    """It costs something."""
    return Finding(check, Level.WARN, told, fix)


def failed(check: str, told: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(check, Level.FAIL, told, fix)


def of_message(check: str, level: Level, message: str) -> Finding:
    """From the text of an error of ours, which ends with the next step."""
    told, fix = _split(message)
    return Finding(check, level, told, fix)


def worst(findings: Sequence[Finding]) -> Level:
    """The level of the worst of them."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.PASS)


def _split(message: str) -> tuple[str, str]:
    """A message before and after its last colon or semicolon that is not within brackets."""
    depth, cut = 0, None
    for place, character in enumerate(message):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character in ":;" and message[place + 1 : place + 2] == " ":
            cut = place
    return (message, "") if cut is None else (message[:cut], message[cut + 2 :])
