"""The rendezvous of Gloo answers its own process, and no other."""

import http.client
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparktrain.training.collectives.gloo_rendezvous import MAX_VALUE_BYTES, Rendezvous

STRANGER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
try:
    connection.request(sys.argv[2], "/scope/key", b"poison")
    print(connection.getresponse().status)
except (ConnectionError, http.client.RemoteDisconnected) as error:
    print("refused")
"""


class QueueExchange:
    def __init__(self, gives: "queue.Queue[tuple[str, bytes]]", takes: "queue.Queue[tuple[str, bytes]]") -> None:
        self.gives, self.takes = gives, takes

    def share(self, key: str, value: bytes) -> None:
        self.gives.put((key, value))

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        try:
            return self.takes.get(timeout=max(timeout_s, 1e-6))
        except queue.Empty:
            return None


@contextmanager
def pair() -> Iterator[tuple[Rendezvous, Rendezvous]]:
    """The rendezvous of ranks 0 and 1."""
    one: queue.Queue[tuple[str, bytes]] = queue.Queue()
    other: queue.Queue[tuple[str, bytes]] = queue.Queue()
    with (
        Rendezvous(0, QueueExchange(one, other), {}) as first,
        Rendezvous(1, QueueExchange(other, one), {"0/early/key": b"early"}) as second,
    ):
        yield first, second


def ask(rendezvous: Rendezvous, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*rendezvous.address, timeout=10)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_a_member_gets_what_another_one_puts() -> None:
    with pair() as (first, second):
        assert ask(second, "GET", "/global/0") == (404, b"")
        assert ask(first, "PUT", "/global/0", b"\x00address") == (200, b"")
        assert ask(first, "GET", "/global/0") == (200, b"\x00address")
        assert ask(second, "GET", "/global/0") == (200, b"\x00address")
        assert ask(second, "DELETE", "/global/0") == (200, b"")


def test_the_rendezvous_has_the_addresses_that_were_put_before_its_start() -> None:
    with pair() as (first, second):
        assert ask(second, "GET", "/early/key") == (200, b"early")
        assert second.heard == {0, 1}
        assert first.heard == {0}


def test_the_rendezvous_refuses_large_values_and_other_methods() -> None:
    with pair() as (first, _):
        assert ask(first, "PUT", "/a/b", bytes(MAX_VALUE_BYTES))[0] == 200
        assert ask(first, "POST", "/a/b", b"")[0] == 501
        with socket.create_connection(first.address, timeout=10) as announced:
            announced.sendall(b"PUT /a/b HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (MAX_VALUE_BYTES + 1))
            assert announced.recv(100).startswith(b"HTTP/1.0 413 ")
        with socket.create_connection(first.address, timeout=10) as unannounced:
            unannounced.sendall(b"PUT /a/b HTTP/1.0\r\n\r\n")
            assert unannounced.recv(100).startswith(b"HTTP/1.0 411 ")


def test_requests_for_values_that_never_come_break_off() -> None:
    arriving: queue.Queue[tuple[str, bytes]] = queue.Queue()
    is_over = threading.Event()
    with Rendezvous(0, QueueExchange(arriving, queue.Queue()), {"1/global/1": b"one"}, is_over.is_set) as rendezvous:
        assert ask(rendezvous, "GET", "/global/2") == (404, b"")
        is_over.set()
        assert ask(rendezvous, "GET", "/global/1") == (200, b"one")
        with pytest.raises(http.client.RemoteDisconnected):
            ask(rendezvous, "GET", "/global/2")


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_the_rendezvous_refuses_other_processes(method: str) -> None:
    with pair() as (first, _):
        ask(first, "PUT", "/scope/key", b"secret")
        command = [sys.executable, "-c", STRANGER, str(first.address[1]), method]
        stranger = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)

        assert stranger.stdout == "refused\n"
        assert ask(first, "GET", "/scope/key") == (200, b"secret")


def test_the_rendezvous_closes_its_port() -> None:
    with pair() as (first, _):
        address = first.address

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)
