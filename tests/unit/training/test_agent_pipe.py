"""Messages between a member's process and its agent, over a real socket pair."""

import socket
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.state.agent_messages import (
    Advise,
    AskSnapshot,
    Judged,
    PeerShared,
    Seating,
    Standing,
)
from sparktrain.state.topology import MemberAddress
from sparktrain.training.agent_pipe import AgentWire

MEMBER = Member(RunId("run"), TrialId(0), Generation(1))
PLACES = (MemberAddress("here", "127.0.0.1", 4000, Role.CHIEF),)


@pytest.fixture
def ends() -> Iterator[tuple[AgentWire, BlockingPipe[m.FromMember]]]:
    """The member's wire, and the agent's end."""
    mine, theirs = socket.socketpair()
    agent: BlockingPipe[m.FromMember] = BlockingPipe(theirs, m.FromMember)
    yield AgentWire(BlockingPipe(mine, m.ToMember)), agent
    agent.close()
    mine.close()


def test_a_member_that_has_reserved_is_told_the_places_and_keeps_what_came_before(ends) -> None:
    wire, agent = ends
    agent.send(Advise(MEMBER))
    agent.send(PeerShared(MEMBER, "a", b"1"))
    agent.send(Seating(member=MEMBER, places=PLACES))
    agent.send(PeerShared(MEMBER, "b", b"2"))
    assert wire.reserve(4000) == PLACES
    assert agent.receive() == Standing(port=4000)
    assert wire.stop_advised()
    assert [wire.shared(1.0), wire.shared(1.0), wire.shared(0.0)] == [("a", b"1"), ("b", b"2"), None]


def test_each_kind_of_snapshot_that_was_asked_for_is_told_once(ends) -> None:
    wire, agent = ends
    agent.send(AskSnapshot(MEMBER))
    assert wire.take_asked(in_store=True) is False
    assert [wire.take_asked(), wire.take_asked()] == [True, False]
    agent.send(AskSnapshot(MEMBER, in_store=True))
    assert wire.take_asked() is False
    assert [wire.take_asked(in_store=True), wire.take_asked(in_store=True)] == [True, False]


def test_a_member_whose_agent_is_gone_is_not_left_waiting(ends) -> None:
    wire, agent = ends
    agent.close()
    with pytest.raises(OSError, match="Broken pipe"):
        wire.reserve(4000)
    assert wire.shared(60.0) is None
    assert wire.snapshot_answer(60.0) is None


def test_two_threads_that_wait_each_get_their_own(ends) -> None:
    wire, agent = ends
    found: dict[str, object] = {}
    threads = [
        threading.Thread(target=lambda: found.update(shared=wire.shared(30.0))),
        threading.Thread(target=lambda: found.update(kept=wire.snapshot_answer(30.0))),
    ]
    for thread in threads:
        thread.start()
    agent.send(m.SnapshotAnswered(7))
    agent.send(PeerShared(MEMBER, "k", b"v"))
    for thread in threads:
        thread.join(30)
    assert found == {"shared": ("k", b"v"), "kept": m.SnapshotAnswered(7)}


def test_a_member_waits_for_what_rules_make_of_its_report_only_where_some_judge_it(ends) -> None:
    wire, agent = ends
    assert wire.judged(0, 60.0) is None
    agent.send(Judged(MEMBER, -1))
    assert wire.judged(0, 0.0) is False
    threading.Timer(0.05, lambda: agent.send(Judged(MEMBER, 3))).start()
    assert wire.judged(3, 60.0) is True
    assert not wire.stop_advised()
    agent.send(Judged(MEMBER, 4, next=8))
    assert wire.judged(4, 0.0) is None
    assert wire.judged(7, 60.0) is None
    assert wire.judged(8, 0.0) is False
    agent.send(Judged(MEMBER, 5, stops=True))
    assert wire.judged(9, 60.0) is True, "nothing is left to wait for"
    assert wire.stop_advised()


def test_a_member_that_rules_judge_waits_before_it_has_heard_of_them() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        wire = AgentWire(BlockingPipe(mine, m.ToMember), judged=True)
        assert wire.judged(0, 0.0) is False


def test_a_member_without_an_agent_waits_for_no_rule(ends) -> None:
    wire, agent = ends
    agent.send(Judged(MEMBER, -1))
    agent.close()
    assert wire.judged(0, 60.0) is True


def test_a_member_that_heals_hears_of_the_loss_of_another_one_while_it_does_not_look(ends) -> None:
    wire, agent = ends
    agent.send(Seating(member=MEMBER, places=PLACES))
    heard: list[tuple[int, int]] = []
    called = threading.Event()

    def on_broken(ring: int) -> None:
        heard.append((ring, wire.ring))
        called.set()

    wire.on_ring_broken(on_broken)
    agent.send(Seating(member=MEMBER, ring=1))
    assert called.wait(30.0)
    assert heard == [(1, 1)], "the callback may use the connection, and comes once for each ring"
    assert wire.next_ring(0.0) is None, "the places are those of the ring before"
    agent.send(Seating(member=MEMBER, places=PLACES * 2, ring=1))
    assert (formed := wire.next_ring(30.0)) is not None
    assert (formed.ring, formed.places, formed.ranks) == (1, PLACES * 2, ())


def test_a_prepared_process_waits_for_the_first_ring_in_which_it_has_a_place(ends) -> None:
    wire, agent = ends
    agent.send(Seating(member=MEMBER, places=PLACES))
    assert wire.reserve(4000) == PLACES
    agent.send(Seating(member=MEMBER, places=PLACES * 2, ring=3))
    assert wire.await_place(bound=False) == Seating(member=MEMBER, places=PLACES * 2, ring=3)
    held = Standing(port=4000, bound=False)
    stands = [Standing(port=4000), replace(held, waits=True), held]
    assert [agent.receive() for _ in stands] == stands


def test_a_prepared_process_waits_no_longer_than_its_agent_lives(ends) -> None:
    wire, agent = ends
    agent.close()
    with pytest.raises(BrokenPipeError):
        wire.await_place(bound=False)


def test_a_member_knows_of_a_process_that_waits_until_that_is_withdrawn_or_its_ring_breaks(ends) -> None:
    wire, agent = ends
    offer = Seating(member=MEMBER, ring=2, places=PLACES * 2, moving=Rank(1))
    assert wire.offer is None
    agent.send(offer)
    assert wire.offer == offer
    agent.send(Seating(member=MEMBER, ring=1, places=PLACES, joined=True))
    assert wire.offer is None
    agent.send(offer)
    agent.send(Seating(member=MEMBER, ring=3))
    assert wire.offer is None
    wire.stand(leaves=2, step=41)
    assert agent.receive() == Standing(leaves=2, step=41)


def test_a_loss_that_came_first_is_told_to_the_callback_at_once(ends) -> None:
    wire, agent = ends
    agent.send(Seating(member=MEMBER, ring=1))
    agent.send(Seating(member=MEMBER, ring=2))
    heard: list[int] = []
    wire.on_ring_broken(heard.append)
    assert heard == [2]


def test_a_member_that_heals_reports_it_and_waits_no_longer_than_its_agent_lives(ends) -> None:
    wire, agent = ends
    wire.stand(heals=True)
    wire.stand(ring=1, step=40)
    assert [agent.receive(), agent.receive()] == [Standing(heals=True), Standing(heals=True, ring=1, step=40)]
    agent.send(Seating(member=MEMBER, ring=2))
    agent.close()
    assert wire.next_ring(60.0) is None


def test_a_member_trains_on_once_all_have_joined_its_ring_or_one_is_lost(ends) -> None:
    wire, agent = ends
    agent.send(Seating(member=MEMBER, ring=1, places=PLACES, joined=True))
    assert wire.await_joined(1, 60.0)
    assert not wire.await_joined(2, 0.0), "that was the ring before"
    agent.send(Seating(member=MEMBER, ring=3))
    assert wire.await_joined(2, 60.0)
    agent.close()
    assert wire.await_joined(3, 60.0)
