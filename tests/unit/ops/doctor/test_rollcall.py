"""Slots answer the doctor in one process, over the in-memory transport, and connect to each other on loopback."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.ids import AgentId
from sparktrain.config.gang_spec import Role
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import ProtocolError
from sparktrain.executor import checkup
from sparktrain.executor.checkup import Visitor, following, visit
from sparktrain.ops.doctor.rollcall import Shared, SlotSurvey, roll_of
from sparktrain.protocol import messages as m
from sparktrain.protocol.checkup_report import SlotReport, SlotVisit, member, to_json
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import LinkClosedError
from sparktrain.state.topology import MemberAddress
from sparktrain.store.hadoop.token_file import VARIABLE, TokenFile
from sparktrain.store.url import open_store
from tests.unit.clocks import HandClock, settle
from tests.unit.ops.doctor.seen import SLOT

LONG_S = 30.0
WHOLE_S = 100.0
"""How long the whole survey may take."""
HERE = replace(SLOT, address="127.0.0.1", visit=SlotVisit())


def here(slot: int) -> SlotReport:
    return replace(HERE, slot=slot, host=f"h{slot}")


def joining(name: str, executor: int = 0) -> m.Join:
    """The first message of slot 1."""
    return m.Join(agent=AgentId(name), slot=1, host="h1", pid=1, versions={}, executor=executor)


@asynccontextmanager
async def survey(
    slots: int, shared: Shared | None = None, clock: Clock | None = None
) -> AsyncIterator[tuple[SlotSurvey, MemoryTransport]]:
    """A survey that slots may join."""
    transport = MemoryTransport()
    made = SlotSurvey(slots, shared or Shared(), clock or SystemClock(), LONG_S, LONG_S, WHOLE_S)
    await made.open(transport.listener)
    try:
        yield made, transport
    finally:
        await made.close()


async def until(condition: Callable[[], object]) -> None:
    """Let the slots continue until `condition` holds."""
    while not condition():
        await settle()


async def test_all_come_and_reach_each_other() -> None:
    async with survey(3) as (made, transport):
        reports = await asyncio.gather(*(visit(here(slot), transport.dialer(), LONG_S) for slot in range(3)))
    assert made.connected == 3
    for slot, each in enumerate(reports):
        assert (each.visit.problem, each.visit.late, each.visit.store, each.visit.shared) == ("", False, "", None)
        assert [(peer.host, peer.problem) for peer in each.visit.peers] == [
            (f"h{(slot + step) % 3}", "") for step in (1, 2)
        ]
        assert each.visit.ahead_s is not None
        assert abs(each.visit.ahead_s) <= each.visit.margin_s + 0.001


async def test_a_clock_that_is_ahead_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with survey(1) as (_, transport):
        monkeypatch.setattr(checkup, "SystemClock", Ahead)
        report = await visit(here(0), transport.dialer(), LONG_S)
    assert report.visit.ahead_s == pytest.approx(7.0, abs=0.5)
    assert 0 <= report.visit.margin_s < 0.5


class Ahead(SystemClock):
    def wall(self) -> float:
        return super().wall() + 7.0


async def test_slots_try_the_store_and_see_what_the_driver_wrote(tmp_path: Path) -> None:
    (tmp_path / "probe-1").touch()
    for marker, shared in (("probe-1", True), ("probe-2", False)):
        async with survey(1, Shared(StoreAddress(str(tmp_path)), marker)) as (_, transport):
            report = await visit(here(0), transport.dialer(), LONG_S)
        assert (report.visit.store, report.visit.shared) == ("", shared)
    assert os.listdir(tmp_path) == ["probe-1"], "slots leave nothing"


async def test_slots_have_the_tokens_that_the_store_wants_and_only_for_their_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    kept: list[bytes] = []
    monkeypatch.setattr(
        checkup,
        "open_store",
        lambda address: kept.append(Path(os.environ[VARIABLE]).read_bytes()) or open_store(address),
    )
    async with survey(1, Shared(StoreAddress(str(tmp_path)), "probe-1", m.Tokens(b"token"))) as (_, transport):
        report = await visit(here(0), transport.dialer(), LONG_S)
    assert (report.visit.problem, report.visit.store, kept) == ("", "", [b"token"])
    assert VARIABLE not in os.environ


async def test_a_pod_reports_whether_it_resolves_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reported() -> str | None:
        async with survey(1) as (_, transport):
            return (await visit(here(0), transport.dialer(), LONG_S)).visit.dns

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert await reported() is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(checkup, "KUBERNETES_NAME", "localhost")
    assert await reported() == ""
    monkeypatch.setattr(checkup, "KUBERNETES_NAME", "none.invalid")
    assert (await reported() or "").lower().split()[0] in ("name", "temporary", "no")

    async def hang(work: object) -> object:
        return await asyncio.Event().wait()

    monkeypatch.setattr(checkup, "aside", hang)
    monkeypatch.setattr(checkup, "DNS_S", 0.01)
    assert await reported() == "no answer within 0.01 s"


async def test_a_store_that_a_slot_cannot_use_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with survey(1, Shared(StoreAddress(str(tmp_path / "file")), "probe-1")) as (_, transport):
        report = await visit(here(0), transport.dialer(), LONG_S)
    assert "is a file, not a directory" in report.visit.store
    assert report.visit.shared is None
    assert report.visit.problem == ""


async def test_a_store_that_hangs_does_not_hold_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()

    async def hang(work: object) -> bool:
        return await never.wait()

    monkeypatch.setattr(checkup, "aside", hang)
    async with survey(1, Shared(StoreAddress("hdfs://nn:8020/runs"), "probe-1")) as (_, transport):
        report = await visit(here(0), transport.dialer(), LONG_S, store_s=0.05)
    assert report.visit.store.startswith("hdfs://nn:8020/runs did not answer within 0.05 s; ")


async def test_those_that_are_there_form_when_the_time_is_over_and_a_late_one_is_sent_away() -> None:
    async with survey(3, clock=(clock := HandClock())) as (made, transport):
        visits = asyncio.gather(*(visit(here(slot), transport.dialer(), LONG_S) for slot in range(2)))
        await until(lambda: len(made._places) == 2)
        await clock.advance(LONG_S)
        first = await visits
        late = await visit(here(2), transport.dialer(), LONG_S)
    assert [[peer.host for peer in each.visit.peers] for each in first] == [["h1"], ["h0"]]
    assert [each.visit.late for each in (*first, late)] == [False, False, True]
    assert late.visit.peers == ()


async def test_the_time_to_form_starts_with_the_first_slot() -> None:
    async with survey(2, clock=(clock := HandClock())) as (made, transport):
        await settle()
        await clock.advance(LONG_S + 10.0)
        visits = asyncio.gather(*(visit(here(slot), transport.dialer(), LONG_S) for slot in range(2)))
        await until(lambda: made.connected == 2)
        reports = await visits
    assert [each.visit.late for each in reports] == [False, False]


async def test_slots_of_a_slow_start_connect_to_each_other_before_the_job_is_over() -> None:
    async with survey(2, clock=(clock := HandClock())) as (made, transport):
        await settle()
        await clock.advance(WHOLE_S - LONG_S - 1.0)
        first = asyncio.ensure_future(visit(here(0), transport.dialer(), LONG_S))
        await until(lambda: len(made._places) == 1)
        await clock.advance(1.0)
        report = await first
        assert not report.visit.late
        assert (await visit(here(1), transport.dialer(), LONG_S)).visit.late


async def test_nobody_waits_for_one_that_is_lost_after_it_came() -> None:
    async with survey(2) as (_, transport):
        lost = transport.dialer()
        link = await lost.attend(LONG_S)
        visiting = asyncio.create_task(visit(here(0), transport.dialer(), LONG_S))
        link.post(joining("lost", executor=1))
        await link.receive()
        link.post(m.MemberStands(member(1), m.Standing(port=1)))
        while not isinstance(await link.receive(), m.Seating):
            pass
        lost.vanish()
        report = await asyncio.wait_for(visiting, 10.0)
    [peer] = report.visit.peers
    assert (peer.host, peer.problem) == ("h1", "Connection refused")


async def test_one_that_does_not_connect_in_time_holds_nobody() -> None:
    async with survey(2, clock=(clock := HandClock())) as (made, transport):
        slow = await transport.dialer().attend(LONG_S)
        visiting = asyncio.create_task(visit(here(0), transport.dialer(), LONG_S))
        slow.post(joining("slow", executor=1))
        slow.post(m.MemberStands(member(1), m.Standing(port=1)))
        await until(lambda: made._finished)
        await clock.advance(LONG_S)
        report = await asyncio.wait_for(visiting, 10.0)
        assert report.visit.problem == ""
        heard = [type(await slow.receive()) for _ in range(3)]
    assert heard == [m.Welcome, m.Seating, m.Dismiss]


async def test_slots_report_that_the_survey_has_closed() -> None:
    async with survey(2) as (made, transport):
        other = await transport.dialer().attend(LONG_S)
        visiting = asyncio.create_task(visit(here(0), transport.dialer(), LONG_S))
        other.post(joining("other"))
        await other.receive()  # by now the visitor has connected, too
        await made.close()
        report = await asyncio.wait_for(visiting, 10.0)
    assert report.visit.problem.startswith("the visit was cut off: ")


async def test_a_missing_driver_is_reported() -> None:
    report = await visit(here(0), MemoryTransport().dialer(), LONG_S)
    assert "not listening" in report.visit.problem


async def test_a_visit_has_an_end() -> None:
    async with survey(2) as (_, transport):
        report = await visit(here(0), transport.dialer(), LONG_S, visit_s=0.05)
    assert report.visit.problem == "the visit did not end within 0.05 s"


class Silent:
    """A coordinator that sends one message."""

    def __init__(self, message: m.Message) -> None:
        self.message = message

    def post(self, message: m.Message) -> None:
        pass

    async def receive(self) -> m.Message:
        return self.message


@pytest.mark.parametrize("message", [m.Refuse("go away"), m.HeartbeatAck()])
async def test_an_unexpected_message_ends_a_visit(message: m.Message) -> None:
    link: object = Silent(message)
    with pytest.raises(ProtocolError, match=r"go away|HeartbeatAck was not expected"):
        await Visitor(here(0), link, SystemClock(), TokenFile(Path())).run()  # type: ignore[arg-type]


async def test_strangers_are_refused() -> None:
    async with survey(1) as (_, transport):
        link = await transport.dialer().attend(LONG_S)
        link.post(m.Join(agent=AgentId("a"), slot=0, host="h0", pid=1, versions={}))
        link.post(m.Heartbeat())
        await link.receive()
        with pytest.raises(LinkClosedError):
            await link.receive()


def test_a_slot_connects_to_those_that_follow_it() -> None:
    places = tuple(MemberAddress(f"h{i}", f"10.0.0.{i}", 4000, Role.WORKER) for i in range(40))
    assert [place.host for place in following(places[:3], "10.0.0.1", 4000)] == ["h2", "h0"]
    assert [place.host for place in following(places, "10.0.0.38", 4000)] == ["h39", *(f"h{i}" for i in range(15))]


def test_what_a_job_returned_is_read_in_the_order_of_slots() -> None:
    roll = roll_of(3, (to_json(here(1)), to_json(here(0))), "")
    assert [each.slot for each in roll.answers] == [0, 1]
    assert roll.error == ""


def test_an_unreadable_answer_and_the_error_of_a_job_are_reported() -> None:
    assert "does not understand" in roll_of(1, ('{"slot": "x"}',), "").error
    assert roll_of(1, (), "Job aborted").error == "Job aborted"
