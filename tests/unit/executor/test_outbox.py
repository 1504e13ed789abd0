"""What an agent sends again to the next coordinator, and what it does not."""

from typing import Any

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.executor.outbox import Outbox
from sparktrain.protocol import messages as m
from sparktrain.state.outcome import Outcome, Report

MEMBER = Member(RunId("run"), TrialId(0), Generation(1))


def report(step: int) -> m.MemberReported:
    return m.MemberReported(MEMBER, (Report(step, {"y": 1.0}),))


def attached(outbox: Outbox) -> list[Any]:
    """What the next coordinator gets, and all that follows."""
    heard: list[Any] = []
    outbox.attach(heard.append)
    return heard


def test_what_is_not_settled_is_sent_again_in_its_order_before_what_comes_next() -> None:
    outbox = Outbox(keeps=True)
    first = attached(outbox)
    for step in range(1, 4):
        outbox.post(report(step))
    assert first == [report(1), report(2), report(3)]
    outbox.settle(1)
    outbox.detach()
    outbox.post(report(4))
    second = attached(outbox)
    outbox.post(report(5))
    assert second == [report(2), report(3), report(4), report(5)]
    outbox.settle(3)
    assert attached(outbox) == [report(5)], "the count starts with each stream"


def test_of_the_standings_of_a_member_only_the_newest_is_sent_again() -> None:
    outbox = Outbox(keeps=True)
    attached(outbox)
    stands = [m.MemberStands(MEMBER, m.Standing(port=4000, heals=heals)) for heals in (False, True)]
    for message in (stands[0], report(1), stands[1], report(2)):
        outbox.post(message)
    assert attached(outbox) == [report(1), stands[1], report(2)]
    assert outbox.standing == stands[1].standing


def test_a_large_message_counts_as_the_parts_that_are_sent() -> None:
    outbox = Outbox(keeps=True)
    first = attached(outbox)
    large = tuple(Report(step, {f"metric-{number:060d}": 1.0 for number in range(100)}) for step in range(200))
    outbox.post(m.MemberReported(MEMBER, large))
    assert len(first) > 1
    outbox.settle(len(first) - 1)
    assert attached(outbox) == first[-1:]


def test_the_end_of_a_member_is_sent_again_though_it_is_settled_and_comes_last() -> None:
    outbox = Outbox(keeps=True)
    attached(outbox)
    ended, stored = m.MemberEnded(MEMBER, Outcome(1.0, metrics={"y": 1.0})), m.MemberStored(MEMBER)
    for message in (ended, stored):
        outbox.post(message)
    outbox.settle(1)
    outbox.detach()
    outbox.post(report(9))
    assert attached(outbox) == [report(9), ended, stored]
    outbox.clear()
    assert attached(outbox) == []


def test_a_question_is_sent_again_until_it_has_its_answer() -> None:
    outbox = Outbox(keeps=True)
    attached(outbox)
    question = m.MemberAsked(MEMBER, 1, b"?")
    outbox.post(question)
    outbox.settle(1)
    assert attached(outbox) == [question]
    outbox.answered(1)
    outbox.settle(1)
    assert attached(outbox) == []


def test_above_its_limit_nothing_is_kept_and_the_member_cannot_be_held() -> None:
    outbox = Outbox(keeps=True, limit_bytes=1000)
    heard = attached(outbox)
    for step in range(100):
        outbox.post(report(step))
    assert len(heard) == 100
    assert not outbox.is_whole
    assert attached(outbox) == []


def test_an_agent_without_another_coordinator_keeps_nothing() -> None:
    outbox = Outbox(keeps=False)
    heard = attached(outbox)
    outbox.post(report(1))
    assert heard == [report(1)]
    assert attached(outbox) == []
