"""The zygote and its handle: preload, fork, and the errors of waiting calls after its loss."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sparktrain.base import process_tree
from sparktrain.executor.zygote_process import ZygoteLostError, ZygoteProcess
from tests.process.harness import GONE_WITHIN_S, MARK, Bench, alive, eventually, marked


async def test_a_zygote_preloads_several_times_and_names_failed_imports(tmp_path: Path, mark: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "fine.py").write_text("import os; LOADED_BY = os.getpid()")
    (tmp_path / "lib" / "leaves.py").write_text("raise SystemExit(4)")
    (tmp_path / "lib" / "takes_signals.py").write_text(
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.set_wakeup_fd(-1)"
    )
    zygote = ZygoteProcess(tmp_path, sys_path=[str(tmp_path / "lib"), *os.sys.path], env={MARK: mark})
    zygote.start()

    assert await zygote.preload(["fine", "takes_signals"]) == {}
    failed = await zygote.preload(["leaves", "not_there"])

    def train():
        import fine

        return fine.LOADED_BY

    trial = await Bench(zygote, tmp_path).run(train)
    assert failed == {"leaves": "SystemExit: 4", "not_there": "ModuleNotFoundError: No module named 'not_there'"}
    assert trial.metrics == {"result": zygote.pid}
    await zygote.close()


async def test_every_waiting_call_raises_when_the_zygote_is_lost(bench: Bench, tmp_path: Path) -> None:
    child, _ = await bench.start(signal.pause)
    (tmp_path / "zygote.log").write_text("its last line\n")
    waiting = [asyncio.create_task(child.wait()), asyncio.create_task(bench.zygote.wait_lost())]
    os.kill(bench.zygote.pid, signal.SIGSTOP)
    waiting += [asyncio.create_task(bench.zygote.preload(["json"])), asyncio.create_task(bench.zygote.fork())]
    await asyncio.sleep(0)
    os.kill(bench.zygote.pid, signal.SIGKILL)

    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ended] == [ZygoteLostError, type(None), ZygoteLostError, ZygoteLostError]
    with pytest.raises(ZygoteLostError, match=r"(?s)was ended by SIGKILL \(out of memory\?\).*its last line"):
        await bench.zygote.fork()
    child.kill(0.0)


async def test_a_zygote_that_does_not_answer_is_lost(tmp_path: Path, mark: str) -> None:
    zygote = ZygoteProcess(tmp_path, env={MARK: mark}, answer_timeout_s=0.05, end_timeout_s=0.05)
    zygote.start()
    os.kill(zygote.pid, signal.SIGSTOP)

    with pytest.raises(ZygoteLostError, match=r"did not answer Fork within 0.05 s"):
        await zygote.fork()


async def test_a_zygote_that_cannot_start_reports_the_cause(tmp_path: Path, mark: str) -> None:
    zygote = ZygoteProcess(tmp_path, env={MARK: mark, "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"})
    zygote.start()

    with pytest.raises(ZygoteLostError, match=r"(?s)exited with code 1; its last lines:.*encodings"):
        await zygote.preload([])
    await zygote.close()


async def test_a_cancelled_fork_leaves_no_child(bench: Bench, mark: str) -> None:
    await bench.zygote.fork()
    os.kill(bench.zygote.pid, signal.SIGSTOP)
    fork = asyncio.create_task(bench.zygote.fork())
    await asyncio.sleep(0)
    fork.cancel()
    await asyncio.wait({fork})
    os.kill(bench.zygote.pid, signal.SIGCONT)

    other = await bench.zygote.fork()
    await eventually(lambda: len(marked(mark)) == 3, 1.0, "zygote, first and last child")
    assert alive(other.pid)


async def test_a_zygote_ends_at_once_when_its_agent_ends_during_its_imports(tmp_path: Path, mark: str) -> None:
    (tmp_path / "slow.py").write_text("import ctypes; open('importing', 'w'); ctypes.CDLL(None).sleep(1000)")
    zygote = ZygoteProcess(tmp_path, sys_path=[str(tmp_path), *os.sys.path], env={MARK: mark})
    zygote.start()
    preload = asyncio.create_task(zygote.preload(["slow"]))
    await eventually((tmp_path / "importing").exists, 5.0)
    os.kill(zygote.pid, signal.SIGTERM)  # what the kernel sends when the agent dies

    async with asyncio.timeout(GONE_WITHIN_S):
        await zygote.wait_lost()
    with pytest.raises(ZygoteLostError):
        await preload


async def test_children_are_found_on_kernels_that_do_not_list_them(
    zygote: ZygoteProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = process_tree.children()
    monkeypatch.setattr(os.path, "exists", lambda path: False)

    assert process_tree.children() == listed
    assert zygote.pid in listed


async def test_a_zygote_can_be_closed_in_any_state(tmp_path: Path, mark: str) -> None:
    await ZygoteProcess(tmp_path).close()
    zygote = ZygoteProcess(tmp_path, env={MARK: mark})
    zygote.start()
    await zygote.close()
    await zygote.close()
    with pytest.raises(ZygoteLostError):
        await zygote.preload([])


async def test_two_zygotes_do_not_affect_each_other(bench: Bench, tmp_path: Path, mark: str) -> None:
    (tmp_path / "other").mkdir()
    before = process_tree.children()
    other = ZygoteProcess(tmp_path / "other", env={MARK: mark})
    other.start()
    child = await bench.zygote.fork()
    await other.fork()
    await other.close()

    assert alive(child.pid)
    assert (await bench.run(lambda: 1)).metrics == {"result": 1.0}
    assert bench.zygote.pid in before
    assert process_tree.children() == before
