"""What becomes of a run on a Spark Connect server once its client is gone, in words. Pure."""

import msgspec

from sparktrain.config.connect_server import DETACHED_KEY, SESSION_KEY, STREAM_KEY, ConnectLimits, ConnectServer
from sparktrain.protocol.scouting import ScoutReport

_MINUTE_S = 60.0
_HOUR_S = 3600.0


def reached_server(server: ConnectServer | None, report: ScoutReport) -> ConnectServer | None:
    """The server at the address at which an executor has reached it; None where there is none."""
    if server is None or not report.server:
        return None
    return msgspec.structs.replace(server, targets=(report.server,))


def lifetime_line(server: ConnectServer, report: ScoutReport) -> str:
    """How long the run continues without this client."""
    if report.server:
        return (
            "the run continues without this process: its coordinator stays attached to the Connect server at "
            f"{report.server}"
        )
    return (
        f"{unkept(server.limits)}; the coordinator could keep it, but executors such as {report.host} do not reach the "
        f"server ({report.server_problem})"
    )


def unkept(limits: ConnectLimits, run: str = "the run", client: str = "this process") -> str:
    """When the server ends a run that its client has left, if no coordinator stands in, and by which settings."""
    by_session = 0 <= limits.session_s < limits.stream_s + limits.detached_s
    settings = (
        f"{SESSION_KEY}={_setting(limits.session_s)}"
        if by_session
        else f"{STREAM_KEY}={_setting(limits.stream_s)} and {DETACHED_KEY}={_setting(limits.detached_s)}"
    )
    return (
        f"the Connect server ends {run} {_span(limits.left_s)} after {client} has left, by {settings}; "
        "only the server's own configuration can change that"
    )


def _span(seconds: float) -> str:
    """A time for people: `40 s`, `7 min`, `30 h`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.0f} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.0f} h"


def _setting(seconds: float) -> str:
    """A time as Spark's configuration has it."""
    for unit, of_s in (("d", 24 * _HOUR_S), ("h", _HOUR_S), ("m", _MINUTE_S)):
        if seconds >= of_s and seconds % of_s == 0:
            return f"{seconds / of_s:.0f}{unit}"
    return f"{seconds:g}s"
