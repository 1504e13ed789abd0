"""What an agent names of its member to the next coordinator."""

from pathlib import Path
from typing import Any, cast

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.executor.member_runner import MemberSession
from sparktrain.executor.memory_holder import MemoryHolder
from sparktrain.executor.workbench import Workbench
from sparktrain.protocol import messages as m
from sparktrain.protocol.pipe_messages import LocalCode
from sparktrain.state.topology import MemberAddress
from tests.support.member_calls import member_call

MEMBER = Member(RunId("run"), TrialId(0), Generation(1), Rank(1))
PLACES = tuple(MemberAddress("here", "127.0.0.1", 4000 + rank, Role.WORKER) for rank in range(3))
FORMED = m.Seating(member=MEMBER, places=PLACES)
OFFERED = m.Seating(member=MEMBER, ring=2, places=PLACES[::-1], moving=Rank(0))


@pytest.mark.parametrize(
    ("seatings", "ring", "place"),
    [
        ([], 0, None),
        ([FORMED], 0, PLACES[1]),
        ([FORMED, m.Seating(member=MEMBER, ring=1)], 1, None),
        ([FORMED, OFFERED], 0, PLACES[1]),
        ([FORMED, OFFERED, m.Seating(member=MEMBER, places=PLACES, joined=True)], 0, PLACES[1]),
        ([FORMED, OFFERED, m.Seating(member=MEMBER, ring=2, places=PLACES[1:] * 2, joined=True)], 2, PLACES[2]),
        ([FORMED, m.Seating(member=MEMBER, ring=1, places=PLACES[:2], ranks=(Rank(0), Rank(1)))], 1, None),
    ],
    ids=["alone", "formed", "broken", "offered", "withdrawn", "another one has moved", "shrunk"],
)
async def test_it_names_the_newest_ring_of_the_member(
    tmp_path: Path, seatings: list[m.Seating], ring: int, place: MemberAddress | None
) -> None:
    bench = Workbench(AgentId("a"), tmp_path, None, cast(Any, None), SystemClock(), hold_s=60.0)
    start = m.StartMember(member=MEMBER, call=member_call(size=3))
    code = LocalCode("function", False, ())
    bench.member = MemberSession(start, code, tmp_path, SystemClock(), bench.snapshots, MemoryHolder(None))
    bench.outbox.post(m.MemberStands(MEMBER, m.Standing(port=4001, heals=True)))
    for seating in seatings:
        bench.member.pass_on(seating)
    assert bench.hold()
    held = bench.held
    assert held is not None
    assert (held.ring, held.place, held.standing) == (ring, place, m.Standing(port=4001, heals=True))
    await bench.end()
