"""Masters that are named wrong are found before Spark tries them."""

import errno
import socket

import pytest

from sparktrain.cluster import spark_session
from sparktrain.errors import SessionError


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]", "yarn"])
def test_a_master_without_an_address_is_not_tried(master: str) -> None:
    def connect(host: str, port: int) -> None:
        raise AssertionError(f"{host}:{port} was tried")

    spark_session.check_reachable(master, connect)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (socket.gaierror(-2, "Name or service not known"), r"the host name 'head' is unknown on this machine"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), r"head:7077: Connection refused"),
        (TimeoutError("timed out"), r"head:7077: timed out"),
    ],
)
def test_a_master_that_cannot_be_reached_is_named_with_the_reason(error: OSError, expected: str) -> None:
    def connect(host: str, port: int) -> None:
        raise error

    with pytest.raises(SessionError, match=rf"the master spark://head:7077 cannot be reached: {expected}; correct"):
        spark_session.check_reachable("spark://head:7077", connect)


@pytest.mark.parametrize(
    ("master", "tried"),
    [
        ("spark://one:7077,two:7078", [("one", 7077), ("two", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("k8s://https://api.example:6443", [("api.example", 6443)]),
        ("k8s://https://api.example", [("api.example", 443)]),
    ],
)
def test_one_address_that_answers_is_enough(master: str, tried: list[tuple[str, int]]) -> None:
    seen: list[tuple[str, int]] = []

    def connect(host: str, port: int) -> None:
        seen.append((host, port))
        if (host, port) != tried[-1]:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

    spark_session.check_reachable(master, connect)
    assert seen == tried


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(SessionError, match=r"write spark://HOST:7077"):
        spark_session.check_reachable("spark://a b:x")


def test_a_real_port_that_nobody_listens_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(SessionError, match="Connection refused"):
            spark_session.check_reachable(f"spark://127.0.0.1:{taken.getsockname()[1]}")
