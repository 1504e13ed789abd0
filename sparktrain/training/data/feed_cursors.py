"""The positions of feeds that a user's loop passes on as objects: those of `ctx.shard` and `ctx.dataset`.

A feed of TensorFlow is a dataset, and datasets that are made of it by `map` and the like have its position too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparktrain.training.data.position import Cursor

if TYPE_CHECKING:  # a zygote imports this module, and not NumPy
    from sparktrain.training.data.assignment import BatchShare
    from sparktrain.training.data.row_cursor import RowCursor


@dataclass(frozen=True)
class FeedDivision:
    """How the members of a gang of another size divide what is left of a feed."""

    cursor: "RowCursor"
    feed_of: "Callable[[BatchShare], Any]"
    """The feed of a share, with the same element spec; its first pass is what the cursor has divided."""


_CURSORS: "WeakKeyDictionary[Any, Cursor]" = WeakKeyDictionary()
_DIVISIONS: "WeakKeyDictionary[Any, FeedDivision]" = WeakKeyDictionary()


def note_cursor(feed: Any, cursor: Cursor) -> None:
    """Note that `feed` starts its passes by `cursor`."""
    _CURSORS[feed] = cursor


def note_division(feed: Any, cursor: "RowCursor", feed_of: "Callable[[BatchShare], Any]") -> None:
    """Note that the members of a gang of another size can divide what is left of `feed`: see `FeedDivision`."""
    _DIVISIONS[feed] = FeedDivision(cursor, feed_of)


def division_of(feed: Any) -> FeedDivision | None:
    """How fewer members divide what is left of a feed; None where that cannot be, as for what is made of a feed."""
    return _DIVISIONS.get(feed)


def cursor_of(value: Any) -> Cursor | None:
    """The position of a feed, or of a dataset that is made of one; None for anything else."""
    inputs = getattr(value, "_inputs", None)
    if not (callable(inputs) and type(value).__module__.startswith("tensorflow.")):
        return None
    if value in _CURSORS:
        return _CURSORS[value]
    cursors = [cursor for source in inputs() if (cursor := cursor_of(source)) is not None]
    return cursors[0] if len(cursors) == 1 else None
