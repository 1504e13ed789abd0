"""The gate before the coordinator's port: who comes in, how many at a time, and that bytes are passed on unchanged."""

import errno
import os
import resource
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.protocol import gate
from sparktrain.protocol.gate import (
    PRECEDENCE_S,
    RESERVE,
    SILENCE_S,
    STRANGERS,
    STRANGERS_OF_ADDRESS,
    Gate,
    listen,
    network_of,
    raise_descriptor_limit,
)
from tests.support.processes import wait_until

TIMEOUT_S = 10.0


class SteppedClock(SystemClock):
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at


class Scene:
    """A gate, the server behind it, and peers."""

    def __init__(self, patience_s: float, descriptors: int | None = None, reserve: int = RESERVE) -> None:
        self.clock = SteppedClock()
        listening = listen("127.0.0.1", 0)
        self.address = listening[0].getsockname()
        self.gate = Gate(listening, patience_s, self.clock, descriptors, reserve)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.gate.target)
        self.server.listen(1024)
        self.server.settimeout(TIMEOUT_S)
        self.stack = ExitStack()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        peer = self.stack.enter_context(socket.create_connection(self.address, TIMEOUT_S, (source, 0)))
        peer.settimeout(TIMEOUT_S)
        return peer

    def stranger(self) -> socket.socket:
        """A peer that has a descriptor, and that has not connected yet."""
        peer = self.stack.enter_context(socket.socket())
        peer.settimeout(TIMEOUT_S)
        return peer

    def accept(self) -> tuple[socket.socket, str]:
        """The server's side of the next peer that is let in, and its name."""
        there, name = self.server.accept()
        self.stack.enter_context(there)
        there.settimeout(TIMEOUT_S)
        return there, f"unix:{name}"

    def none_comes(self) -> bool:
        """Whether the server sees no further peer, also after the gate has looked again."""
        return not select.select([self.server], [], [], 0.3)[0]

    def pair(self, source: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
        """A peer that has proved itself, and the server's side."""
        peer = self.connect(source)
        there, name = self.accept()
        assert self.gate.admit(name) == f"{source}:{peer.getsockname()[1]}"
        return peer, there


@contextmanager
def opened(patience_s: float = 5.0, descriptors: int | None = None, reserve: int = RESERVE) -> Iterator[Scene]:
    scene = Scene(patience_s, descriptors, reserve)
    scene.gate.open()
    try:
        yield scene
    finally:
        scene.stack.close()
        scene.gate.close()
        scene.server.close()
    assert not os.path.exists(scene.gate.target)


def closed(peer: socket.socket) -> bool:
    """Whether the gate has closed a connection on which nothing was sent; waits for it."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def is_open(peer: socket.socket, wait_ms: int = 0) -> bool:
    """The same, of one on which nothing comes; waits for its end no longer than `wait_ms`."""
    poller = select.poll()
    poller.register(peer, select.POLLIN)
    return not poller.poll(wait_ms)


def read_all(source: socket.socket) -> bytes:
    found = bytearray()
    while data := source.recv(2**20):
        found += data
    return bytes(found)


def test_bytes_pass_unchanged_both_ways_at_once_however_large() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        up, down = os.urandom(5_000_000), os.urandom(7_000_000)

        def send(which: socket.socket, data: bytes) -> None:
            which.sendall(data)
            which.shutdown(socket.SHUT_WR)

        for which, data in ((peer, up), (there, down)):
            threading.Thread(target=send, args=(which, data), daemon=True).start()
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(there)), daemon=True)
        reader.start()
        assert read_all(peer) == down
        reader.join(TIMEOUT_S)
        assert got == [up]


def test_what_the_server_sent_last_arrives_though_the_peer_goes_on_sending() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        there.sendall(b"x" * 3_000_000)
        there.close()
        peer.sendall(b"y" * 100_000)
        assert read_all(peer) == b"x" * 3_000_000


def test_the_end_of_each_side_reaches_the_other() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        peer.close()
        assert there.recv(1) == b""
        peer, there = scene.pair()
        there.close()
        assert peer.recv(1) == b""


def test_a_peer_that_does_not_read_holds_up_nobody_and_not_without_bound() -> None:
    with opened() as scene:
        (_, stuck), (peer, there) = scene.pair(), scene.pair()
        stuck.settimeout(0.5)
        with pytest.raises(TimeoutError):
            stuck.sendall(bytes(100_000_000))
        peer.sendall(b"a")
        assert there.recv(1) == b"a"


def test_of_one_address_few_strangers_come_in() -> None:
    with opened() as scene:
        good = scene.pair()
        strangers = [scene.connect() for _ in range(STRANGERS_OF_ADDRESS)]
        sides = [scene.accept()[0] for _ in strangers]
        waiting = scene.connect()
        assert scene.none_comes()
        assert all(is_open(each) for each in [*strangers, waiting])
        other, _ = scene.pair("127.0.0.2")
        assert is_open(other)
        good[0].sendall(b"a")
        assert good[1].recv(1) == b"a"
        strangers[3].close()
        sides[3].close()
        there, _ = scene.accept()
        there.sendall(b"b")
        assert waiting.recv(1) == b"b"


def test_of_all_addresses_few_strangers_come_in() -> None:
    with opened() as scene:
        hosts = [f"127.0.1.{number}" for number in range(1, 200)]
        peers = [scene.connect(host) for host in hosts for _ in range(3)]
        for _ in range(STRANGERS):
            scene.accept()
        assert scene.none_comes()
        # A busy machine may accept some only now: their time starts then.
        while any(is_open(peer, 20) for peer in peers):
            scene.clock.at += 5.1


def test_all_agents_of_a_large_host_come_in_one_after_the_other() -> None:
    with opened() as scene:
        peers = [scene.connect() for _ in range(300)]
        for _ in peers:
            there, name = scene.accept()
            scene.gate.admit(name)
            there.sendall(b"a")
        assert {peer.recv(1) for peer in peers} == {b"a"}


def test_of_those_that_wait_one_that_has_spoken_comes_in_first() -> None:
    with opened() as scene:
        strangers = [scene.connect() for _ in range(STRANGERS_OF_ADDRESS)]
        sides = [scene.accept()[0] for _ in strangers]
        scene.connect()
        late = scene.connect()
        late.sendall(b"a")
        strangers[0].close()
        sides[0].close()
        there, _ = scene.accept()
        assert there.recv(1) == b"a"


def test_so_many_connections_of_an_address_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "WAITING_OF_ADDRESS", 3)
    with opened() as scene:
        for _ in range(STRANGERS_OF_ADDRESS):
            scene.connect()
            scene.accept()
        waiting = [scene.connect() for _ in range(3)]
        assert closed(scene.connect())
        assert all(is_open(each) for each in waiting)


def test_a_stranger_that_was_admitted_makes_room_for_others() -> None:
    with opened() as scene:
        for _ in range(10 * STRANGERS_OF_ADDRESS):
            peer, there = scene.pair()
            there.sendall(b"a")
            assert peer.recv(1) == b"a"


@pytest.mark.parametrize(("sent", "after_s"), [(b"", SILENCE_S), (b"a", PRECEDENCE_S)], ids=["silent", "slow"])
def test_a_stranger_that_takes_its_time_gives_way_to_a_newer_one(sent: bytes, after_s: float) -> None:
    with opened() as scene:
        old = [scene.connect() for _ in range(STRANGERS_OF_ADDRESS)]
        for each in old:
            there, _ = scene.accept()
            each.sendall(sent)
            assert there.recv(len(sent)) == sent
        scene.clock.at += 0.9 * after_s
        newer = scene.connect()
        newer.sendall(b"n")
        assert scene.none_comes()
        scene.clock.at += 0.2 * after_s
        there, _ = scene.accept()
        assert there.recv(1) == b"n"
        assert closed(old[0])
        assert all(is_open(each) for each in old[1:])


def test_a_stranger_is_cut_when_its_time_is_over_and_others_stay() -> None:
    with opened(patience_s=5.0) as scene:
        peer, _ = scene.pair()
        stranger = scene.connect()
        there, _ = scene.accept()
        scene.clock.at += 4.9
        stranger.sendall(b"a")
        assert there.recv(1) == b"a"
        scene.clock.at += 0.2
        assert closed(stranger)
        assert is_open(peer)


def test_a_peer_that_keeps_its_end_open_is_cut_after_a_while() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        there.close()
        assert peer.recv(1) == b""
        scene.clock.at += 11.0

        def cut() -> bool:
            try:
                peer.send(b"a")
            except OSError as error:
                return error.errno in (errno.EPIPE, errno.ECONNRESET)
            return False

        wait_until(cut, TIMEOUT_S, "the connection to be cut")


def test_connections_leave_descriptors_for_others() -> None:
    top = os.open(os.devnull, os.O_RDONLY)
    os.close(top)
    with opened(descriptors=top + 100, reserve=20) as scene:
        pairs = [scene.pair() for _ in range(10)]  # of four descriptors each, two of them the gate's
        peers = [scene.connect() for _ in range(80)]  # of one each
        assert closed(peers[-1])
        assert all(is_open(peer) for peer, _ in pairs)


def fill() -> list[int]:
    """All descriptors that the process may have."""
    fillers = []
    while True:
        try:
            fillers.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return fillers


@contextmanager
def filled(above: int) -> Iterator[list[int]]:
    """A process without a descriptor left: yields those that fill it, about 50 above `above`, and closes them."""
    for thread in threading.enumerate():
        if thread.name == "sparktrain-tidy":  # it would give descriptors back that `fill` could not take
            thread.join(TIMEOUT_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (above + 50, hard))
    fillers = fill()
    try:
        yield fillers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def test_a_process_without_descriptors_closes_who_comes_and_goes_on() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        stranger = scene.stranger()
        with filled(stranger.fileno()):
            stranger.connect(scene.address)
            assert closed(stranger)
            there.sendall(b"a")
            assert peer.recv(1) == b"a"
        scene.pair()


def test_it_has_a_spare_descriptor_again_after_another_thread_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    open_file = os.open

    def taking(path: str, flags: int, *arguments: int, **options: int) -> int:
        descriptor = open_file(path, flags, *arguments, **options)
        if taken or threading.current_thread().name != "sparktrain-gate":
            return descriptor
        taken.append(descriptor)
        raise OSError(errno.EMFILE, "another thread was faster")

    with opened() as scene:
        peer, there = scene.pair()
        first, second, third = (scene.stranger() for _ in range(3))
        with filled(third.fileno()) as fillers:
            monkeypatch.setattr(gate.os, "open", taking)
            first.connect(scene.address)
            assert closed(first)
            wait_until(lambda: bool(taken), TIMEOUT_S, "the gate to look for another one")
            os.close(taken[0])
            second.connect(scene.address)
            assert closed(second)
            there.sendall(b"a")
            assert peer.recv(1) == b"a"  # so the gate has continued
            fillers += fill()
            third.connect(scene.address)
            assert closed(third)


def test_the_soft_limit_of_descriptors_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        raised = raise_descriptor_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_the_server_sent_last_arrives_when_the_gate_closes() -> None:
    with opened() as scene:
        peer, there = scene.pair()
        stranger = scene.connect()
        scene.accept()
        there.sendall(b"bye" * 10_000)
        there.close()
        closing = threading.Thread(target=scene.gate.close, daemon=True)
        closing.start()
        assert read_all(peer) == b"bye" * 10_000
        assert closed(stranger)
        peer.close()
        closing.join(TIMEOUT_S)
        with pytest.raises(ConnectionRefusedError):
            scene.connect()


def test_it_listens_at_each_address_of_a_host_with_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(host: str, port: int, **_: object) -> list[object]:
        taken = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", port, 0, 0))  # not of this machine
        mine = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.1", "127.0.0.2")]
        return [taken, *mine, *mine]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    made = listen("here", 0)
    first, second = (each.getsockname() for each in made)
    assert (first[0], second[0]) == ("127.0.0.1", "127.0.0.2")
    assert first[1] == second[1] > 0
    with pytest.raises(OSError, match="already in use"):
        listen("here", first[1])
    for each in made:
        each.close()


def test_a_gate_that_was_never_opened_closes() -> None:
    gate = Gate(listen("127.0.0.1", 0), 1.0)
    gate.close()
    gate.close()
    assert not os.path.exists(os.path.dirname(gate.target))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_an_ipv6_network_counts_as_one(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
