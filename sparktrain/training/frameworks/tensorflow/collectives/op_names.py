"""Names of collectives: equal on all members, and unique among those that may run at the same time."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import tensorflow as tf

PREFIX = "sparktrain_ring"
"""Prefix of each collective's name in a graph: it shows that an error of the graph is the ring's."""


F = TypeVar("F", bound=Callable[..., Any])


def as_written(function: F) -> F:
    """`function`, protected together with all that it calls from AutoGraph in a user's `tf.function`."""
    return cast(F, tf.autograph.experimental.do_not_convert(function))


class OpNames:
    """Counts the uses of a name within a graph.

    Counting while a function is traced, not while it runs, gives equal names on members that trace it different
    numbers of times, because each trace starts a new count. Eager operations run one after the other and need none.
    """

    def __init__(self) -> None:
        self._uses: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()

    def unique(self, name: str) -> str:
        """`name` with its number within the function that is being traced."""
        if tf.executing_eagerly():
            return name
        graph = tf.compat.v1.get_default_graph()
        # The branches of a condition are graphs of their own: their names count in the function around them.
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        uses = self._uses.setdefault(graph, Counter())
        uses[name] += 1
        return f"{name}-{uses[name]}"

    def most_uses(self, names: Collection[str]) -> int:
        """The most uses of `names`, together, in one function."""
        return max((sum(uses[name] for name in names) for uses in self._uses.values()), default=0)
