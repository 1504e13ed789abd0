"""What a splice forwards when one of its connections breaks."""

import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.protocol.splice import Splice

LIMIT_S = 10.0


class Pair:
    """A peer and a server that a splice connects; the test moves the bytes itself."""

    def __init__(self, folder: Path) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(folder / "server"))
        listening.listen()
        self.peer, self.outer = _tcp_pair()
        self.inner = socket.socket(socket.AF_UNIX)
        self.selector = selectors.DefaultSelector()
        self.splice = Splice("unix:peer", self.outer, self.inner, self.selector, SystemClock())
        self.splice.admitted = True
        self.splice.connect(str(folder / "peer"), str(folder / "server"))
        self.server, _ = listening.accept()
        listening.close()
        self.peer.settimeout(LIMIT_S)

    def move(self, side: socket.socket) -> None:
        """Forward what one side has to read, once it has."""
        found = dict.fromkeys(key.fileobj for key, _ in self.selector.select(LIMIT_S))
        assert side in found
        self.splice.move(side, selectors.EVENT_READ)

    def close(self) -> None:
        for each in (self.peer, self.server):
            each.close()
        self.splice.close()
        self.selector.close()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        return peer, listening.accept()[0]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def test_the_servers_last_words_reach_a_peer_that_still_sends(pair: Pair) -> None:
    pair.server.sendall(b"last words")
    pair.server.close()
    pair.peer.sendall(b"more")
    pair.move(pair.outer)  # The server takes no more, and what it has sent still waits.
    pair.move(pair.inner)
    assert pair.peer.recv(100) == b"last words"
    pair.move(pair.inner)
    assert pair.peer.recv(100) == b""


def test_a_peer_that_is_gone_ends_both_connections(pair: Pair) -> None:
    pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # It closes by a reset.
    pair.peer.close()
    pair.move(pair.outer)
    assert pair.splice.over
