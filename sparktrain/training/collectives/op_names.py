"""Names of a ring's operations: equal on all members, and unique among those that may be under way together."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import tensorflow as tf

PREFIX = "sparktrain_ring"
"""Begins the name of each operation of a ring in a graph: by it an error of a graph is known as the ring's."""


F = TypeVar("F", bound=Callable[..., Any])


def as_written(function: F) -> F:
    """`function`, and all that it calls, which AutoGraph is not to rewrite when a user's `tf.function` comes by."""
    return cast(F, tf.autograph.experimental.do_not_convert(function))


class OpNames:
    """Counts the uses of a name within a graph.

    A name that is counted while a function is traced, not while it runs, stays equal on members that trace it
    different numbers of times, for each trace begins to count anew. Eager operations come one after the other: they
    need no count.
    """

    def __init__(self) -> None:
        self._uses: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()

    def unique(self, name: str) -> str:
        """`name`, with its number within the function that is traced now."""
        if tf.executing_eagerly():
            return name
        graph = tf.compat.v1.get_default_graph()
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        uses = self._uses.setdefault(graph, Counter())
        uses[name] += 1
        return f"{name}-{uses[name]}"
