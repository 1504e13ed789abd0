"""What a Spark Connect session shows of its server: where it is, and when it ends what its client has left."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktrain.config.connect_server import (
    DETACHED_KEY,
    SESSION_KEY,
    STREAM_KEY,
    ConnectLimits,
    ConnectServer,
    seconds_of,
)

if TYPE_CHECKING:
    from sparktrain.cluster.spark_facts import Session

_HOST_KEY = "spark.driver.host"
_PORT_KEY = "spark.connect.grpc.binding.port"


def limits_of(session: "Session") -> ConnectLimits:
    """The limits of the server of a session; Spark's defaults where it does not report them. Blocks."""
    defaults = ConnectLimits()
    get = _getter(session)
    return ConnectLimits(
        detached_s=seconds_of(get(DETACHED_KEY), defaults.detached_s),
        session_s=seconds_of(get(SESSION_KEY), defaults.session_s),
        stream_s=seconds_of(get(STREAM_KEY), defaults.stream_s),
    )


def server_of(session: "Session") -> ConnectServer:
    """The server of a session, as this client reaches it, and as its executors may. Blocks.

    A client behind a tunnel has an address that is only its own; executors reach the host of Spark's driver, which is
    the server itself.
    """
    builder: Any = getattr(getattr(session, "client", None), "_builder", None)
    secure = bool(getattr(builder, "secure", False))
    endpoint = getattr(builder, "endpoint", None)
    targets = [endpoint] if isinstance(endpoint, str) else []
    get = _getter(session)
    host = get(_HOST_KEY)
    port = get(_PORT_KEY)
    # With TLS something stands before the server: its own port does not speak TLS, and would get the token in the open.
    if host and port and not secure:
        targets.append(f"{host}:{port}")
    headers = [(name, str(value)) for name, value in (builder.metadata() if hasattr(builder, "metadata") else ())]
    if token := getattr(builder, "token", None):
        headers.append(("authorization", f"Bearer {token}"))
    return ConnectServer(
        targets=tuple(dict.fromkeys(targets)), secure=secure, headers=tuple(headers), limits=limits_of(session)
    )


def _getter(session: "Session") -> Callable[[str], str | None]:
    def get(key: str) -> str | None:
        try:
            return session.conf.get(key, None)
        except Exception:  # a server of another kind may refuse a key; its errors have no common root
            return None

    return get
