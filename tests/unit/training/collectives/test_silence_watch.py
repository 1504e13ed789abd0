"""A member reports hosts that fall silent, each once for as long as it is silent."""

import socket
import threading
from collections.abc import Iterator

import pytest

from sparktrain.config.gang_spec import Role
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.opened_sockets import PeerConnections, open_sockets
from sparktrain.training.collectives.silence_watch import SilenceWatch

TIMEOUT_S = 10.0


def test_a_silent_host_is_reported_once_until_it_answers_again() -> None:
    reports: list[list[int]] = []
    silent = iter([[], [1], [1], [1, 2], [], [1]])
    watch = SilenceWatch(lambda: next(silent), lambda ranks: reports.append(list(ranks)))
    for _ in range(6):
        watch.look()
    assert reports == [[1], [1, 2], [1]]


def test_a_thread_looks_once_the_watch_has_started() -> None:
    looked = threading.Event()

    def silent() -> list[int]:
        looked.set()
        return []

    watch = SilenceWatch(silent, lambda ranks: None)
    watch.start()
    assert looked.wait(TIMEOUT_S)


def test_the_thread_ends_without_an_agent() -> None:
    ended = threading.Event()

    def report(ranks: object) -> None:
        ended.set()
        raise OSError("the agent is gone")

    watch = SilenceWatch(lambda: [0], report)
    watch.start()
    assert ended.wait(TIMEOUT_S)
    assert watch._thread is not None
    watch._thread.join(TIMEOUT_S)
    assert not watch._thread.is_alive()


@pytest.fixture
def peers() -> Iterator[PeerConnections]:
    before = open_sockets()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        connection, _ = server.accept()
        with connection:
            mine.sendall(b"gradients")
            connection.recv(9)
            yield PeerConnections(open_sockets() - before)


def test_a_host_that_has_acknowledged_all_is_not_silent_however_long_ago(peers: PeerConnections) -> None:
    places = tuple(MemberAddress(f"host-{rank}", f"127.0.0.{2 - rank}", 0, Role.WORKER) for rank in range(2))
    formation = Formation(0, places)
    assert peers.unanswered_ranks(formation, 0.001) == []
    assert peers.silent_ranks(formation) == []
