"""The calls of Spark Connect for processes that stand in for a client that is gone.

A server ends an operation that no client has been attached to for a while, and a session that no call has used. Each
call of `touch` attaches to an operation for a moment, which restarts both times. It asks for the responses from the
first one on. The client has released that one long ago, so the server answers with an error and detaches this process,
which is as good. A client that is attached meanwhile is disconnected, and attaches again at once; so nothing touches
an operation while its client lives.

The messages are written here field by field: an executor's Python has gRPC, and perhaps not the packages of a client.
"""

import uuid
from contextlib import suppress
from typing import Any

from msgspec import Struct

from sparktrain.config.connect_server import ConnectOperation, ConnectServer
from sparktrain.protocol.grpc_without_fork_handlers import grpc

CALL_S = 10.0
"""How long one call may take."""
_SERVICE = "/spark.connect.SparkConnectService"
_MOST_TEXT = 300
_GONE = ("INVALID_HANDLE.OPERATION_", "INVALID_HANDLE.SESSION_")
"""What the error of an operation has that the server does not run any more."""


class Touch(Struct, frozen=True):
    """What a touch has shown."""

    gone: bool = False
    """The server does not run the operation, or has closed its session."""
    problem: str = ""
    """Why nothing is known: the server was not reached, or it refuses this process."""


class ConnectCaller:
    """Calls one server, at the first of its targets. For one thread at a time; `close` ends it."""

    def __init__(self, server: ConnectServer) -> None:
        self._headers = server.headers
        target = server.targets[0]
        # gRPC itself connects again after each failure.
        if server.secure:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials())
        else:
            self._channel = grpc.insecure_channel(target)

    def check(self, operation: ConnectOperation) -> str:
        """Why this is not the server that has the session of an operation, or does not answer; empty where it is.

        Blocks for `CALL_S` at most. It releases an operation that does not exist: of the calls that open no session on
        a server that does not have it, this is the one that changes nothing.
        """
        request = b"".join(
            (_text(1, operation.session), _user(operation.user), _text(3, str(uuid.uuid4())), _field(5, b""))
        )
        try:
            self._channel.unary_unary(f"{_SERVICE}/ReleaseExecute")(request, timeout=CALL_S, metadata=self._headers)
        except grpc.RpcError as error:
            return _problem(error)
        return ""

    def touch(self, operation: ConnectOperation) -> Touch:
        """Restart the times after which the server would end the operation. Blocks for `CALL_S` at most."""
        request = b"".join((_text(1, operation.session), _user(operation.user), _text(3, operation.operation)))
        call = self._channel.unary_stream(f"{_SERVICE}/ReattachExecute")
        try:
            for _ in call(request, timeout=CALL_S, metadata=self._headers):
                pass
        except grpc.RpcError as error:
            details = error.details() or ""
            if any(name in details for name in _GONE):
                return Touch(gone=True)
            # Attached for as long as this call lasted, or until the server found the first response released.
            attached = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or "INVALID_CURSOR." in details
            return Touch() if attached else Touch(problem=_problem(error))
        return Touch()

    def close(self) -> None:
        """End its connection."""
        with suppress(Exception):
            self._channel.close()


def _problem(error: Any) -> str:
    """The kind of an error, and the innermost cause in the first line of its text."""
    text = (error.details() or "").partition("\n")[0]
    cause = text.rpartition(": ")[2] if error.code() is grpc.StatusCode.UNAVAILABLE else text
    return f"{error.code().name}: {cause[:_MOST_TEXT]}"


def _user(user: str) -> bytes:
    return _field(2, _text(1, user) if user else b"")


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
