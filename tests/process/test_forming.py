"""Members of a gang load their function, hold a port, and enter it with the addresses of all."""

import asyncio
import socket

import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.executor.zygote_process import MemberProcess
from sparktrain.state.agent_messages import Seating
from sparktrain.state.outcome import FailureKind
from sparktrain.state.topology import MemberAddress
from tests.process.harness import MEMBER, Bench, Trial, eventually, see_out


def place(ctx):
    return {"rank": ctx.rank, "size": ctx.size, "local_rank": ctx.local_rank, "index": ctx.index, "port": _port(ctx)}


def _port(ctx):
    return int(ctx.cluster_spec[ctx.role][ctx.index].rpartition(":")[2])


async def gang(bench: Bench, function: object, roles: list[Role]) -> list[tuple[MemberProcess, Trial]]:
    """Start members that call `function`, by rank."""
    run, trial = RunId("run"), TrialId(3)
    members = [Member(run, trial, Generation(1), Rank(rank)) for rank in range(len(roles))]
    return [await bench.start(function, member=member, size=len(roles)) for member in members]


def where(trials: list[Trial], roles: list[Role]) -> tuple[MemberAddress, ...]:
    return tuple(
        MemberAddress("here", "127.0.0.1", each.ports[0], role) for each, role in zip(trials, roles, strict=True)
    )


async def test_members_enter_the_function_with_the_addresses_of_all(bench: Bench) -> None:
    roles = [Role.CHIEF, Role.WORKER, Role.WORKER]
    members = await gang(bench, place, roles)
    seen = [asyncio.create_task(see_out(*each)) for each in members]
    trials = [trial for _, trial in members]
    await eventually(lambda: all(trial.ports for trial in trials), 10)
    assert not any(trial.entered for trial in trials)
    assert len({trial.ports[0] for trial in trials}) == 3
    for child, _ in members:
        child.send(Seating(member=MEMBER, places=where(trials, roles)))
    ended = await asyncio.gather(*seen)
    assert [trial.metrics for trial in ended] == [
        {"rank": 0.0, "size": 3.0, "local_rank": 0.0, "index": 0.0, "port": float(trials[0].ports[0])},
        {"rank": 1.0, "size": 3.0, "local_rank": 1.0, "index": 0.0, "port": float(trials[1].ports[0])},
        {"rank": 2.0, "size": 3.0, "local_rank": 2.0, "index": 1.0, "port": float(trials[2].ports[0])},
    ]


async def test_a_reserved_port_is_held_until_it_is_released(bench: Bench) -> None:
    [(child, trial), _] = await gang(bench, place, [Role.CHIEF, Role.WORKER])
    seeing = asyncio.create_task(see_out(child, trial))
    await eventually(lambda: trial.ports, 10)
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("127.0.0.1", trial.ports[0]))
    child.kill(0.0)
    await seeing


async def test_a_member_without_an_address_of_its_host_fails(bench: Bench) -> None:
    trial = await bench.run(place, size=2, address="192.0.2.1")
    assert trial.failure.kind is FailureKind.FORM
    assert trial.failure.summary.startswith("no port of 192.0.2.1 can be bound: ")
    assert not trial.entered


async def test_a_member_that_waits_for_the_others_can_be_ended(bench: Bench) -> None:
    [(child, trial), _] = await gang(bench, place, [Role.CHIEF, Role.WORKER])
    seeing = asyncio.create_task(see_out(child, trial))
    await eventually(lambda: trial.ports, 10)
    child.kill(0.0)
    assert (await seeing).exited.status == -9
