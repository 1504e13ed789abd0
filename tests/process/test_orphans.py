"""No process outlives the member, zygote or agent that it belongs to, whichever of them is killed."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparktrain.executor.zygote_process import ZygoteProcess
from sparktrain.protocol import pipe_messages as m
from tests.process.harness import FAMILY, GONE_WITHIN_S, MARK, Bench, alive, eventually, family, grow, see_out


async def _all_gone(pids: list[int], within_s: float = GONE_WITHIN_S) -> None:
    await eventually(lambda: not any(map(alive, pids)), within_s, f"of {pids}: {[p for p in pids if alive(p)]}")


def _hold(ctx):
    grow(ctx.log_dir)
    ctx.report(0)
    while True:
        signal.pause()


async def _until_reported(child) -> None:
    while not isinstance(await child.receive(), m.Reported):
        pass


async def test_a_member_that_returns_leaves_none(bench: Bench) -> None:
    trial = await bench.run(lambda ctx: len(grow(ctx.log_dir)))

    assert trial.metrics == {"result": FAMILY}
    assert trial.exited is not None
    assert trial.exited.orphans == FAMILY
    assert not any(map(alive, family(trial))), "none is left when Exited arrives"


async def test_a_member_that_is_killed_leaves_none(bench: Bench) -> None:
    child, trial = await bench.start(_hold)
    await _until_reported(child)
    os.kill(trial.pid, signal.SIGKILL)
    await see_out(child, trial)

    assert trial.exited is not None
    assert (trial.exited.status, trial.exited.orphans) == (-signal.SIGKILL, FAMILY)
    assert not any(map(alive, family(trial)))


async def test_a_member_with_the_name_of_a_spare_leaves_none(bench: Bench) -> None:
    def disguised(ctx):
        from sparktrain.base import process_tree

        process_tree.name_process("member-waiting")
        return len(grow(ctx.log_dir))

    trial = await bench.run(disguised)

    assert trial.exited is not None
    assert trial.exited.orphans == FAMILY
    assert not any(map(alive, family(trial)))


async def test_the_end_of_a_spare_spares_the_daemons_of_a_running_member(bench: Bench) -> None:
    child, trial = await bench.start(_hold)
    spare = await bench.zygote.fork()
    await _until_reported(child)
    spare.kill(0.0)

    assert (await spare.wait()).orphans == 0
    assert all(map(alive, family(trial)))
    child.kill(0.0)
    await child.wait()
    assert not any(map(alive, family(trial)))


async def test_a_closed_zygote_leaves_none(bench: Bench) -> None:
    child, trial = await bench.start(_hold)
    await _until_reported(child)
    async with asyncio.timeout(GONE_WITHIN_S):
        await bench.zygote.close()

    assert not any(map(alive, [bench.zygote.pid, trial.pid, *family(trial)]))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_lost_zygote_leaves_none(bench: Bench, signum: signal.Signals) -> None:
    child, trial = await bench.start(_hold)
    await _until_reported(child)
    os.kill(bench.zygote.pid, signum)
    async with asyncio.timeout(GONE_WITHIN_S):
        await bench.zygote.wait_lost()

    assert not any(map(alive, [bench.zygote.pid, trial.pid, *family(trial)]))
    assert await child.receive() is None


async def test_a_suspended_zygote_is_closed_too(bench: Bench) -> None:
    child, trial = await bench.start(_hold)
    await _until_reported(child)
    os.kill(bench.zygote.pid, signal.SIGSTOP)
    await bench.zygote.close()

    assert not any(map(alive, [bench.zygote.pid, trial.pid, *family(trial)]))


async def test_an_event_loop_that_ends_before_its_zygote_leaves_none(tmp_path: Path, mark: str) -> None:
    pids = []

    async def forget() -> None:
        zygote = ZygoteProcess(tmp_path, env={MARK: mark})
        zygote.start()
        child, trial = await Bench(zygote, tmp_path).start(_hold)
        await _until_reported(child)
        pids.extend([zygote.pid, child.pid, *family(trial)])

    await asyncio.to_thread(asyncio.run, forget())

    assert not any(map(alive, pids))


async def test_other_children_of_the_agent_are_spared(bench: Bench) -> None:
    await bench.zygote.fork()
    own = await asyncio.create_subprocess_exec("sleep", "1000")
    os.kill(bench.zygote.pid, signal.SIGKILL)
    await bench.zygote.wait_lost()

    assert own.returncode is None
    own.kill()
    await own.wait()


@pytest.fixture
async def holder(tmp_path: Path) -> AsyncIterator[tuple[Process, list[int]]]:
    """The process of an agent, and the pids of its zygote, member, spare and the processes of the member."""
    command = [sys.executable, "-m", "tests.process.holder", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    pids = [int(pid) for pid in (await process.stdout.readline()).split()]
    assert len(pids) == 3 + FAMILY
    yield process, pids
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    await _all_gone(pids)


async def test_a_killed_agent_leaves_none(holder: tuple[Process, list[int]]) -> None:
    process, pids = holder
    process.kill()

    await _all_gone(pids)


async def test_an_agent_whose_zygote_is_killed_ends_the_rest(holder: tuple[Process, list[int]]) -> None:
    process, pids = holder
    os.kill(pids[0], signal.SIGKILL)

    await _all_gone(pids)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"lost\n"


async def test_members_die_with_the_zygote_while_the_agent_is_suspended(holder: tuple[Process, list[int]]) -> None:
    process, pids = holder
    zygote, member, spare, *_ = pids
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(zygote, signal.SIGKILL)

    await _all_gone([zygote, member, spare])
    os.kill(process.pid, signal.SIGCONT)
    await _all_gone(pids)
