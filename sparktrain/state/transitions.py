"""Legal moves of a state machine, as a table."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from sparktrain.errors import IllegalMoveError

S = TypeVar("S", bound=Enum)


def check_move(subject: str, old: S, new: S, legal: Mapping[S, Collection[S]], story: Iterable[object] = ()) -> S:
    """`new`, when the table has the move; else IllegalMoveError with the last events of the subject."""
    if new not in legal.get(old, ()):
        events = "; ".join(map(str, story)) or "none"
        raise IllegalMoveError(f"{subject} cannot go {old.name} -> {new.name}; last events: {events}")
    return new
