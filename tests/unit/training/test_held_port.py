"""A held port: another socket of the backend can bind it, and a member that restarts takes it again, or an error."""

import socket
from contextlib import closing

import pytest

from sparktrain.training.collectives.barrier import HeldPort

HERE = "127.0.0.1"


@pytest.fixture
def left() -> int:
    """A port that a server had, with a connection that is not forgotten yet: the server closed it first."""
    with socket.socket() as server:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((HERE, 0))
        server.listen()
        with closing(socket.create_connection(server.getsockname())) as client:
            server.accept()[0].close()
            client.recv(1)
            number = server.getsockname()[1]
    return number


def test_the_port_of_a_server_that_has_ended_is_held_again(left: int) -> None:
    again = HeldPort(HERE, left)
    assert again.number == left
    with socket.socket() as backend:
        backend.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        backend.bind((HERE, left))
        backend.listen()
    again.release()


def test_a_backend_takes_the_bound_socket_itself() -> None:
    held = HeldPort(HERE)
    with socket.socket(fileno=held.take()) as backend:
        held.release()
        assert backend.getsockname() == (HERE, held.number)
        backend.listen()
        with socket.create_connection((HERE, held.number)):
            pass


@pytest.mark.parametrize("listens", [False, True])
def test_a_port_that_another_process_has_is_refused_though_it_would_share_it(listens: bool) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((HERE, 0))
        if listens:
            other.listen()
        with pytest.raises(OSError, match="in use"):
            HeldPort(HERE, other.getsockname()[1])


def test_any_free_port_is_held() -> None:
    first, second = HeldPort(HERE), HeldPort(HERE)
    assert first.number != second.number
    first.release()
    second.release()
