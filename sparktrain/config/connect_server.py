"""A Spark Connect server as a process beside it needs it, and what it reports of itself in its tasks. Pure."""

import math
import re

from msgspec import Struct

DETACHED_KEY = "spark.connect.execute.manager.detachedTimeout"
"""How long the server keeps an operation that no client is attached to."""
SESSION_KEY = "spark.connect.session.manager.defaultSessionTimeout"
"""How long it keeps a session that no call has used; -1 without end."""
STREAM_KEY = "spark.connect.execute.reattachable.senderMaxStreamDuration"
"""How long a client may be gone before the server notices."""
_LEAST_TOUCH_S = 1.0
_MOST_TOUCH_S = 60.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1e-3}
_TIME = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_TAG = re.compile(
    r"SparkConnect_OperationTag_User_(?P<user>.*?)_Session_(?P<session>[0-9a-fA-F-]{36})"
    r"_Operation_(?P<operation>[0-9a-fA-F-]{36})"
)


class ConnectLimits(Struct, frozen=True, kw_only=True):
    """When a server ends what its client has left, by its configuration; the defaults are Spark's."""

    detached_s: float = 300.0
    session_s: float = 3600.0
    """Negative: it keeps sessions."""
    stream_s: float = 120.0

    @property
    def left_s(self) -> float:
        """How long an operation lasts at most after its client is gone, if no other process stands in for that."""
        return min(self.stream_s + self.detached_s, self._session_s)

    @property
    def touch_s(self) -> float:
        """The pause between two touches of an operation that its client has left."""
        return max(_LEAST_TOUCH_S, min(_MOST_TOUCH_S, min(self.detached_s, self._session_s) / 5))

    @property
    def heartbeat_s(self) -> float:
        """The pause between two heartbeats of a client."""
        return self.touch_s / 2

    @property
    def gone_s(self) -> float:
        """How long a client sends no heartbeat before another process stands in for it.

        The first touch follows within `touch_s`: half of the time that the server waits.
        """
        return 1.5 * self.touch_s

    @property
    def _session_s(self) -> float:
        return self.session_s if self.session_s >= 0 else math.inf


class ConnectServer(Struct, frozen=True, kw_only=True):
    """Where a server is, and how its client proves who it is. It may hold a token: never printed, never stored."""

    targets: tuple[str, ...]
    """Host and port of each address, the likeliest first."""
    secure: bool = False
    """Whether its calls travel in TLS."""
    headers: tuple[tuple[str, str], ...] = ()
    limits: ConnectLimits = ConnectLimits()

    def __repr__(self) -> str:
        return f"ConnectServer({self.targets!r})"


class ConnectOperation(Struct, frozen=True, kw_only=True):
    """One operation of a session, by the names that the server has for it."""

    user: str
    session: str
    operation: str


def operation_in(tags: str | None) -> ConnectOperation | None:
    """The operation that runs a task, by the tags of its job; None where no Connect server runs it."""
    match = _TAG.search(tags or "")
    return None if match is None else ConnectOperation(**match.groupdict())


def seconds_of(text: str | None, default: float) -> float:
    """A time of Spark's configuration in seconds, such as `5m`; without a unit these are milliseconds."""
    match = _TIME.fullmatch(text or "")
    if match is None or (unit := _UNITS.get(match[2].lower())) is None:
        return default
    return int(match[1]) * unit if int(match[1]) >= 0 else -1.0
