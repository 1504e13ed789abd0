"""A server before strangers: slow ones, many of them, and readers who must get their answers all the same."""

import http.client
import select
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from sparktrain.protocol.strangers import PRECEDENCE_S
from sparktrain.views.webserve.serving import ReaderLimit
from sparktrain.views.webserve.token_guard import TokenGuard
from sparktrain.views.webserve.web_server import HEAD_S, STRANGERS_OF_ADDRESS, WebServer
from tests.support.processes import wait_until
from tests.unit.driver.stored import HandClock

TOKEN, MOST_ANSWERS = "right-token", 3
LIMIT_S = 10.0


class Site:
    """A server with an application that answers `/held` when the test lets it, and all else at once."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.release = threading.Event()
        guarded = TokenGuard(ReaderLimit(self._answer, MOST_ANSWERS), TOKEN, "cookie", subject="page")
        self.server = WebServer(socket.create_server(("127.0.0.1", 0)), guarded, self.clock)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._opened: list[socket.socket] = []
        self._thread.start()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"start "
        if environ["PATH_INFO"] == "/held":
            self.release.wait(LIMIT_S)
        yield b"end"

    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.server.server_port), LIMIT_S)
        self._opened.append(connection)
        connection.sendall(sent)
        return connection

    def ask(self, path: str = "/", token: str = TOKEN) -> int:
        """The status of an answer; 0 where the connection ends without one."""
        reader = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=LIMIT_S)
        try:
            reader.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = reader.getresponse()
            answer.read()
            return answer.status
        except OSError:
            return 0
        finally:
            reader.close()

    def close(self) -> None:
        self.release.set()
        for connection in self._opened:
            connection.close()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site()
    yield opened
    opened.close()


def ended(connection: socket.socket) -> bool:
    """Whether the server has ended the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: page\r\nX-Long: "])
def test_strangers_that_never_end_their_head_keep_no_reader_out(site: Site, sent: bytes) -> None:
    connections = [site.connect(sent) for _ in range(2 * STRANGERS_OF_ADDRESS)]

    def refused() -> int:
        return sum(bool(select.select([connection], [], [], 0)[0]) for connection in connections)

    # Those without a place must have been refused: after a step of the clock they would be younger than the others.
    wait_until(lambda: refused() == STRANGERS_OF_ADDRESS, LIMIT_S, "half of the strangers have their places")
    site.clock.at += PRECEDENCE_S
    assert [site.ask() for _ in range(5)] == [200] * 5


def test_a_head_has_a_deadline_though_its_bytes_keep_coming(site: Site) -> None:
    slow = site.connect(b"GET / HT")
    wait_until(lambda: site.server.strangers.count() == 1, LIMIT_S, "the stranger has a place")
    site.clock.at += HEAD_S / 2
    slow.sendall(b"TP")
    site.clock.at += HEAD_S / 2
    wait_until(lambda: ended(slow), LIMIT_S, "the slow connection ends")


def test_readers_have_places_of_their_own(site: Site) -> None:
    held = b"GET /held HTTP/1.0\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    readers = [site.connect(held) for _ in range(MOST_ANSWERS)]
    for reader in readers:
        assert reader.recv(12).startswith(b"HTTP/1.0 200")
    assert site.ask() == 503
    assert site.ask(token="wrong") == 403, "strangers learn nothing of readers"
    assert site.server.strangers.count() == 0
    site.release.set()
    wait_until(lambda: site.ask() == 200, LIMIT_S, "a reader has gone")


def test_a_reader_that_goes_away_gives_its_place_back(site: Site) -> None:
    for _ in range(3 * MOST_ANSWERS):
        site.connect(b"GET / HTTP/1.0\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n").close()
    wait_until(lambda: site.ask() == 200, LIMIT_S, "all places are free again")
