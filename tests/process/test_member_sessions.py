"""Members in the sessions of their agents: suspended by a signal, and sent messages before their assignment."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.executor.member_runner import MemberLimits, MemberSession
from sparktrain.executor.memory_holder import MemoryHolder
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.executor.spark_task import Placement
from sparktrain.protocol import messages as m
from sparktrain.protocol.pipe_messages import LocalCode
from sparktrain.state.outcome import FailureKind
from tests.process.harness import Bench, alive
from tests.support.member_calls import member_call

TIMEOUT_S = 1.0
MEMBER = Member(RunId("run"), TrialId(0), Generation(1))
PLACE = Placement(0, "host", os.getpid(), os.getpid(), None, (), (), {})

Posted = asyncio.Queue[m.FromAgent]


def session_of(
    function: Callable[..., Any], folder: Path, memory: MemoryHolder, posted: Posted, size: int = 1
) -> MemberSession:
    """The session of a member that trains `function` in a gang of `size`."""
    (folder / "function").write_bytes(cloudpickle.dumps(function))
    start = m.StartMember(member=MEMBER, call=member_call(size=size))
    code = LocalCode(str(folder / "function"), False, ())
    snapshots = CheckpointStorer(folder, AgentId("a"), posted.put_nowait)
    limits = MemberLimits(frozen_s=TIMEOUT_S)
    return MemberSession(start, code, folder / "home", SystemClock(), snapshots, memory, limits=limits)


@pytest.mark.parametrize("size", [1, 2])
async def test_a_suspended_member_is_ended_alone_and_in_a_gang(bench: Bench, tmp_path: Path, size: int) -> None:
    def stand_still():
        import time

        time.sleep(60)

    posted = Posted()
    session = session_of(stand_still, tmp_path, MemoryHolder(None), posted, size)
    child = await bench.zygote.fork()
    # Of a gang the others never come: it waits for them, which is as good as training.
    wanted = m.MemberStarted if size == 1 else m.MemberStands
    training = asyncio.create_task(session.train(child, PLACE, posted.put_nowait))
    try:
        assert isinstance(await asyncio.wait_for(posted.get(), 10.0), wanted)
        os.kill(child.pid, signal.SIGSTOP)
        ended = await asyncio.wait_for(posted.get(), TIMEOUT_S + 5.0)
        assert isinstance(ended, m.MemberEnded)
        assert ended.outcome.failure is not None
        assert ended.outcome.failure.kind is FailureKind.LOST
        assert f"process {child.pid} was stopped by a signal" in ended.outcome.failure.summary
        await asyncio.wait_for(training, 5.0)
        assert not alive(child.pid)
    finally:
        child.kill(0.0)
        await asyncio.wait({training}, timeout=5.0)


class SharingMemory(MemoryHolder):
    """Another member shares a value while this agent prepares the memory of its own."""

    session: MemberSession

    async def start_member(self, start: m.StartMember) -> str:
        """See base class."""
        self.session.pass_on(m.PeerShared(MEMBER, "ring/1", b"address"))
        return await super().start_member(start)


async def test_a_member_gets_its_assignment_first(bench: Bench, tmp_path: Path) -> None:
    posted = Posted()
    memory = SharingMemory(None)
    memory.session = session = session_of(lambda: 7.0, tmp_path, memory, posted)
    child = await bench.zygote.fork()
    await asyncio.wait_for(session.train(child, PLACE, posted.put_nowait), 30.0)
    messages = [posted.get_nowait() for _ in range(posted.qsize())]
    [outcome] = [message.outcome for message in messages if isinstance(message, m.MemberEnded)]
    assert (outcome.failure, outcome.metrics) == (None, {"result": 7.0})
