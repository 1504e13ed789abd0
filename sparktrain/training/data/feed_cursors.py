"""The positions of feeds that a user's loop passes on as objects: those of `ctx.shard` and `ctx.dataset`.

A feed of TensorFlow is a dataset, and datasets that are made of it by `map` and the like have its position too.
"""

from typing import Any
from weakref import WeakKeyDictionary

from sparktrain.training.data.position import Cursor

_CURSORS: "WeakKeyDictionary[Any, Cursor]" = WeakKeyDictionary()


def note_cursor(feed: Any, cursor: Cursor) -> None:
    """Note that `feed` starts its passes by `cursor`."""
    _CURSORS[feed] = cursor


def cursor_of(value: Any) -> Cursor | None:
    """The position of a feed, or of a dataset that is made of one; None for anything else."""
    inputs = getattr(value, "_inputs", None)
    if not (callable(inputs) and type(value).__module__.startswith("tensorflow.")):
        return None
    if value in _CURSORS:
        return _CURSORS[value]
    cursors = [cursor for source in inputs() if (cursor := cursor_of(source)) is not None]
    return cursors[0] if len(cursors) == 1 else None
