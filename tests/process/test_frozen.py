"""A member that is suspended by a signal holds its slot for a few seconds at most."""

import asyncio
import os
import signal
from pathlib import Path

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


@pytest.mark.parametrize("size", [1, 2])
async def test_a_suspended_member_is_ended_alone_and_in_a_gang(bench: Bench, tmp_path: Path, size: int) -> None:
    def stand_still():
        import time

        time.sleep(60)

    (tmp_path / "function").write_bytes(cloudpickle.dumps(stand_still))
    member = Member(RunId("run"), TrialId(0), Generation(1))
    start = m.StartMember(member=member, call=member_call(size=size))
    posted: asyncio.Queue[m.FromAgent] = asyncio.Queue()
    post = posted.put_nowait
    code = LocalCode(str(tmp_path / "function"), False, ())
    snapshots, limits = CheckpointStorer(tmp_path, AgentId("a"), post), MemberLimits(frozen_s=TIMEOUT_S)
    session = MemberSession(start, code, tmp_path / "home", SystemClock(), snapshots, MemoryHolder(None), limits=limits)
    place = Placement(0, "host", os.getpid(), os.getpid(), None, (), (), {})
    child = await bench.zygote.fork()
    # Of a gang the others never come: it waits for them, which is as good as training.
    wanted = m.MemberStarted if size == 1 else m.MemberStands
    training = asyncio.create_task(session.train(child, place, post))
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
