"""A server and its members over real connections: lost answers, strangers, and a server that dies."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import ProtocolError, RingError
from sparktrain.protocol.certificates import RunCertificates, issue
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_client import ShardClient, ShardCopy
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import (
    Endpoint,
    PullValues,
    send_frame,
    tls_context,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import layout_of
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_server import STRANGERS_OF_ADDRESS, ShardServer
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import PushOutcome, Sender
from tests.support.plain_sgd import PlainSgd
from tests.support.processes import wait_until

LAYOUT = layout_of([("float32", 5000), ("float64", 3)])
HERE = Endpoint("127.0.0.1", 0)
RATE = 0.5
TLS_ALERT = b"\x15"


@pytest.fixture(scope="module")
def certificates() -> RunCertificates:
    return issue("a-run")


def served(certificates: RunCertificates) -> ShardServer:
    return ShardServer(HERE, certificates.server, lambda _, values: PlainSgd(RATE))


@pytest.fixture
def server(certificates: RunCertificates) -> Iterator[ShardServer]:
    made = served(certificates)
    yield made
    made.close()


_OPENED: list[ShardClient | socket.socket] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what a test has opened."""
    yield
    while _OPENED:
        _OPENED.pop().close()


class Member:
    """A member that trains: it pulls and pushes one number in all elements."""

    def __init__(self, certificates: RunCertificates, place: list[Endpoint], rank: int = 0, budget_s: float = 10.0):
        self.buffer = memoryview(bytearray(LAYOUT.nbytes))
        self.client = ShardClient(0, LAYOUT, Sender(rank, 0), certificates.agent, lambda: place[-1], budget_s=budget_s)
        _OPENED.append(self.client)

    def fill(self, mode: ServerMode = ServerMode.ASYNC, workers: int = 1, copy: ShardCopy | None = None) -> None:
        start = copy or ShardCopy(0, memoryview(bytes(LAYOUT.nbytes)))
        self.client.fill(ServerSettings(mode, workers), start, b"")

    def push(self, gradient: float) -> PushOutcome:
        sent = memoryview(bytearray(LAYOUT.nbytes))
        for view in LAYOUT.views(sent):
            view[:] = gradient
        return self.client.push(sent).outcome

    def pull(self) -> float:
        self.client.pull(self.buffer)
        values = {float(each) for view in LAYOUT.views(self.buffer) for each in view}
        assert len(values) == 1, "a pull has parts of two versions"
        return values.pop()


class LossyLink:
    """Forwards connections to a server; `cut` ends the next one after so many bytes of its answers."""

    def __init__(self, to: Endpoint) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self.answered: list[int] = []
        """Bytes of the answers of each connection."""
        self.cut: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((self._to.host, self._to.port))
            _OPENED.extend((near, far))
            cut, self.cut = self.cut, None
            self.answered.append(0)
            threading.Thread(target=_forward, args=(near, far), daemon=True).start()
            index = len(self.answered) - 1
            threading.Thread(target=self._answer, args=(far, near, cut, index), daemon=True).start()

    def _answer(self, source: socket.socket, target: socket.socket, cut: int | None, index: int) -> None:
        while (cut is None or self.answered[index] < cut) and (data := _received(source)):
            kept = data if cut is None else data[: cut - self.answered[index]]
            self.answered[index] += len(kept)
            target.sendall(kept)
        _end(source, target)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _forward(source: socket.socket, target: socket.socket) -> None:
    while data := _received(source):
        try:
            target.sendall(data)
        except OSError:
            break
    _end(source, target)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_a_member_pulls_what_it_has_pushed(certificates: RunCertificates, server: ShardServer) -> None:
    member = Member(certificates, [server.endpoint])
    member.fill()
    assert member.pull() == 0.0
    for step in range(1, 4):
        assert member.push(2.0) is PushOutcome.APPLIED
        assert member.pull() == -RATE * 2.0 * step
    other = Member(certificates, [server.endpoint])
    other.fill()
    assert other.pull() == -RATE * 6.0, "a second fill changes nothing"


@pytest.mark.parametrize("lost", [4, 10, 30])
def test_a_push_is_applied_once_when_its_answer_is_lost(
    certificates: RunCertificates, server: ShardServer, lost: int
) -> None:
    link = LossyLink(server.endpoint)
    member = Member(certificates, [link.endpoint])
    member.fill()
    member.pull()
    member.client.close()
    member.push(2.0)
    whole, connections = link.answered[-1], len(link.answered)
    member.client.close()
    link.cut = whole - lost
    assert member.push(2.0) is PushOutcome.APPLIED
    assert len(link.answered) == connections + 2, "the link has cut no connection"
    assert member.pull() == -RATE * 4.0
    assert member.client.version == 2
    link.close()


@pytest.mark.parametrize("cut", [0, 100, 500])
def test_a_handshake_that_is_cut_is_repeated(certificates: RunCertificates, server: ShardServer, cut: int) -> None:
    link = LossyLink(server.endpoint)
    link.cut = cut
    member = Member(certificates, [link.endpoint])
    member.fill()
    assert (member.pull(), len(link.answered)) == (0.0, 2)
    link.close()


def test_members_of_a_round_wait_for_each_other(certificates: RunCertificates, server: ShardServer) -> None:
    members = [Member(certificates, [server.endpoint], rank) for rank in range(2)]
    members[0].fill(ServerMode.SYNC, workers=2)
    for each in members:
        assert each.pull() == 0.0
    found: list[float] = []

    def train(member: Member, gradient: float) -> None:
        for _ in range(5):
            member.push(gradient)
            found.append(member.pull())

    threads = [threading.Thread(target=train, args=each) for each in zip(members, (1.0, 3.0), strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(found, reverse=True) == [-RATE * 2.0 * step for step in range(1, 6) for _ in range(2)]


def test_a_successor_at_another_address_continues_from_the_copy(
    certificates: RunCertificates, server: ShardServer
) -> None:
    place = [server.endpoint]
    member, other = Member(certificates, place), Member(certificates, place, rank=1)
    member.fill(workers=2)
    assert (member.pull(), other.pull()) == (0.0, 0.0)
    member.push(2.0)
    copy = member.client.save()
    member.push(50.0)
    server.close()
    successor = served(certificates)
    place.append(successor.endpoint)
    assert member.push(3.0) is PushOutcome.LATE, "the server is empty"
    member.fill(workers=2, copy=copy)
    assert other.push(7.0) is PushOutcome.LATE, "its gradient is for variables that are lost"
    assert (member.pull(), other.pull()) == (-RATE * 2.0, -RATE * 2.0)
    assert other.push(4.0) is PushOutcome.APPLIED
    assert member.pull() == -RATE * 6.0
    assert member.client.version == 2
    successor.close()


def test_a_process_of_another_run_is_refused(certificates: RunCertificates, server: ShardServer) -> None:
    Member(certificates, [server.endpoint]).fill()
    with pytest.raises(RingError, match=r"did not answer PullValues within 0\.3 s"):
        Member(issue("another-run"), [server.endpoint], budget_s=0.3).pull()
    assert Member(certificates, [server.endpoint]).pull() == 0.0


@pytest.mark.parametrize("tls", [False, True])
def test_a_process_without_certificates_of_the_run_gets_nothing(
    certificates: RunCertificates, server: ShardServer, tls: bool
) -> None:
    Member(certificates, [server.endpoint]).fill()
    connection = socket.create_connection((server.endpoint.host, server.endpoint.port), 5)
    _OPENED.append(connection)
    if tls:
        stranger = tls_context(issue("another-run").agent, server=False)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        connection = stranger.wrap_socket(connection)
        _OPENED.append(connection)
    with suppress(OSError):  # the server may have ended the connection
        send_frame(connection, PullValues(0, 0))
    assert _received(connection)[:1] in (b"", TLS_ALERT)


def test_idle_strangers_cost_few_threads_and_keep_no_member_out(
    certificates: RunCertificates, server: ShardServer
) -> None:
    Member(certificates, [server.endpoint]).fill()
    before = _threads_of_connections()
    idle = [socket.create_connection((server.endpoint.host, server.endpoint.port), 5) for _ in range(300)]
    _OPENED.extend(idle)
    member = Member(certificates, [server.endpoint])
    assert member.pull() == 0.0
    most = before + STRANGERS_OF_ADDRESS + 1
    wait_until(lambda: _threads_of_connections() <= most, 5.0, "strangers have few threads")


def _threads_of_connections() -> int:
    return sum(thread.name == "sparktrain-ps-member" for thread in threading.enumerate())


def test_gradients_of_another_model_are_refused(certificates: RunCertificates, server: ShardServer) -> None:
    member = Member(certificates, [server.endpoint])
    member.fill()
    member.pull()
    with pytest.raises(ProtocolError, match="bytes of payload"):
        member.client.push(memoryview(bytearray(64)))


def test_a_wait_without_variables_has_an_end(certificates: RunCertificates, server: ShardServer) -> None:
    with pytest.raises(RingError, match="it has no variables"):
        Member(certificates, [server.endpoint], budget_s=0.2).pull()


def test_a_server_that_is_gone_is_named(certificates: RunCertificates) -> None:
    gone = served(certificates)
    gone.close()
    with pytest.raises(RingError, match=r"server 0 did not answer LeaveServer within 0\.3 s"):
        Member(certificates, [gone.endpoint], budget_s=0.3).client.leave()


def test_slots_of_another_optimizer_are_refused(certificates: RunCertificates, server: ShardServer) -> None:
    member = Member(certificates, [server.endpoint])
    slots = layout_of([("float32", 4)])
    copy = ShardCopy(3, memoryview(bytes(LAYOUT.nbytes)), slots, memoryview(bytes(slots.nbytes)))
    with pytest.raises(ProtocolError, match="the optimizer has changed"):
        member.fill(copy=copy)
    member.fill()
    assert member.pull() == 0.0, "a refused fill leaves the server empty"


def test_the_member_that_has_filled_a_server_fills_its_successor(certificates: RunCertificates) -> None:
    first = served(certificates)
    places = [first.endpoint]
    keeper, other = Member(certificates, places), Member(certificates, places, rank=1)
    keeper.fill(workers=2)
    other.pull()
    keeper.pull()
    assert other.push(-2.0) is PushOutcome.APPLIED
    assert keeper.pull() == 1.0
    other.client.leave()
    keeper.client.leave(0)
    second = served(certificates)
    try:
        places.append(second.endpoint)
        first.close()
        assert keeper.push(-2.0) is PushOutcome.LATE, "it belongs to the history of the first server"
        assert keeper.pull() == 1.0
        assert other.pull() == 1.0
        assert keeper.client.standing.ended == (0, 1), "the second server knows who has left the first one"
    finally:
        second.close()


def test_replaced_variables_begin_another_history(server: ShardServer, certificates: RunCertificates) -> None:
    member = Member(certificates, [server.endpoint])
    member.fill()
    member.pull()
    values = memoryview(bytearray(LAYOUT.nbytes))
    for view in LAYOUT.views(values):
        view[:] = 7.0
    member.client.fill(ServerSettings(), ShardCopy(5, values), b"", replaces=True)
    assert member.push(1.0) is PushOutcome.LATE
    assert member.pull() == 7.0
    assert member.client.version == 5


def test_a_round_may_last_longer_than_a_silence(server: ShardServer, certificates: RunCertificates) -> None:
    slow = ShardClient(0, LAYOUT, Sender(0, 0), certificates.agent, lambda: server.endpoint, budget_s=0.2, slow_s=20.0)
    _OPENED.append(slow)
    late = Member(certificates, [server.endpoint], rank=1)
    late.fill(ServerMode.SYNC, workers=2)
    late.pull()
    buffer = memoryview(bytearray(LAYOUT.nbytes))
    slow.pull(buffer)
    assert slow.push(memoryview(bytes(LAYOUT.nbytes))).outcome is PushOutcome.COUNTED
    waiting = threading.Thread(target=slow.pull, args=(memoryview(bytearray(LAYOUT.nbytes)),))
    waiting.start()
    waiting.join(1.5)
    assert waiting.is_alive(), "the round was not complete"
    late.push(0.0)
    waiting.join(10)
    assert not waiting.is_alive()
    assert slow.version == 1
