"""What is sent to a Connect server, as PySpark's own messages read it, and what its answers mean."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.connect.proto.base_pb2 import ReattachExecuteRequest, ReleaseExecuteRequest

from sparktrain.config.connect_server import ConnectOperation, ConnectServer
from sparktrain.protocol.connect_calls import ConnectCaller, Touch
from sparktrain.protocol.grpc_without_fork_handlers import grpc

SESSION = "a0c84ff6-9ba1-4d51-b7c3-8fbffb64c813"
OPERATION = "126f3811-c512-46d5-86b8-07ff38c15aa5"
NAMED = ConnectOperation(user="älice" + 200 * "x", session=SESSION, operation=OPERATION)
NAMELESS = ConnectOperation(user="", session=SESSION, operation=OPERATION)


class Server(grpc.GenericRpcHandler):
    """In place of a Connect server: it notes requests, and answers with an error where the test sets one."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []
        self.error: tuple[Any, str] | None = None

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]

        def note(request: bytes, context: Any) -> bytes:
            self.requests.append((name, request, dict(context.invocation_metadata())))
            if self.error is not None:
                context.abort(*self.error)
            return b""

        if name == "ReattachExecute":
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([note(request, context)]))
        return grpc.unary_unary_rpc_method_handler(note)


@contextmanager
def serving() -> Iterator[tuple[Server, ConnectCaller]]:
    handler = Server()
    server = grpc.server(ThreadPoolExecutor(2), handlers=(handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    target = ConnectServer(targets=(f"127.0.0.1:{port}",), headers=(("authorization", "Bearer t"),))
    caller = ConnectCaller(target)
    try:
        yield handler, caller
    finally:
        caller.close()
        server.stop(None).wait()


@pytest.mark.parametrize("operation", [NAMED, NAMELESS])
def test_a_touch_attaches_to_the_operation(operation: ConnectOperation) -> None:
    with serving() as (server, caller):
        assert caller.touch(operation) == Touch()
    [(name, content, headers)] = server.requests
    assert (name, headers["authorization"]) == ("ReattachExecute", "Bearer t")
    request = ReattachExecuteRequest.FromString(content)
    assert (request.session_id, request.operation_id) == (SESSION, OPERATION)
    assert request.user_context.user_id == operation.user
    assert not request.HasField("last_response_id")


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("INTERNAL", "[INVALID_CURSOR.POSITION_NOT_AVAILABLE] The cursor", Touch()),
        ("INTERNAL", "[INVALID_CURSOR.DISCONNECTED] by another", Touch()),
        ("INTERNAL", "[INVALID_HANDLE.OPERATION_ABANDONED] The handle", Touch(gone=True)),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_CLOSED] The handle", Touch(gone=True)),
        ("UNAUTHENTICATED", "no token\nmore", Touch(problem="UNAUTHENTICATED: no token")),
        ("INTERNAL", "a bug", Touch(problem="INTERNAL: a bug")),
    ],
)
def test_what_an_error_means_for_the_operation(code: str, details: str, expected: Touch) -> None:
    with serving() as (server, caller):
        server.error = getattr(grpc.StatusCode, code), details
        assert caller.touch(NAMED) == expected


def test_a_check_releases_nothing_that_exists() -> None:
    with serving() as (server, caller):
        assert caller.check(NAMED) == ""
        server.error = grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_NOT_FOUND] another server"
        assert caller.check(NAMED) == "INTERNAL: [INVALID_HANDLE.SESSION_NOT_FOUND] another server"
    request = ReleaseExecuteRequest.FromString(server.requests[0][1])
    assert (request.session_id, request.user_context.user_id) == (SESSION, NAMED.user)
    assert request.HasField("release_all")
    assert request.operation_id not in ("", OPERATION)


def test_a_server_that_does_not_answer_is_a_problem() -> None:
    gone = ConnectCaller(ConnectServer(targets=("127.0.0.1:1",)))
    assert gone.touch(NAMED) == Touch(problem="UNAVAILABLE: Connection refused")
    assert gone.check(NAMED) == "UNAVAILABLE: Connection refused"
    gone.close()
