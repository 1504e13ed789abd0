"""`ctx.mgr` of a member: its state, its queues, and the feeds that the driver sends rows to."""

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import StreamError

if TYPE_CHECKING:
    from sparktrain.training.data.stream.stream_data import StreamData

ERROR = "error"
"""An entry in this queue makes a member fail at its end."""
NOT_FED = ("output", ERROR, "control")
"""Queues that no call of the driver feeds."""


class NodeHandle:
    """`ctx.mgr`: state and queues of one member, in its own process. One thread at a time uses it."""

    def __init__(self, feeds: tuple[str, ...], stream: "Callable[[str], StreamData]") -> None:
        self._values: dict[str, Any] = {"state": "running"}
        self._queues: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in NOT_FED}
        self._feeds = feeds
        self._stream = stream

    def get(self, key: str) -> Any:
        """The value of `key`, such as `state`; None when it has none."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        """Set the value of `key`."""
        self._values[key] = value

    def get_queue(self, name: str) -> "queue.Queue[Any]":
        """A queue of this member: output, error or control. Raises StreamError for a feed, and an unknown name."""
        if name in self._feeds:
            raise StreamError(
                f"ctx.mgr.get_queue({name!r}): the rows of a feed travel in batches, without a queue of rows; read "
                f"them by ctx.get_data_feed(qname_in={name!r}).next_batch(n)"
            )
        if name not in self._queues:
            raise StreamError(f"ctx.mgr.get_queue({name!r}): {self._hint(name, NOT_FED)}")
        return self._queues[name]

    def stream(self, name: str) -> "StreamData":
        """The rows of a feed for this member. Blocks until a socket listens. Raises StreamError for an unknown name."""
        if name not in self._feeds:
            where = "" if self._feeds else " (a cluster with InputMode.TENSORFLOW has no feed)"
            raise StreamError(f"qname {name!r} is no feed of this cluster: {self._hint(name, self._feeds)}{where}")
        return self._stream(name)

    def _hint(self, name: str, names: tuple[str, ...]) -> str:
        return f"it has {', '.join(map(repr, names)) or 'none'}{did_you_mean(name, names)}"
