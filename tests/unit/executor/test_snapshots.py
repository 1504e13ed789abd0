"""An agent that keeps its member's snapshots, with a store on the local disk and a coordinator made of data."""

import asyncio
import errno
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import CheckpointError
from sparktrain.executor.snapshots import CheckpointStorer, SnapshotRetryPolicy
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.checkpoints import MANIFEST, listed
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.training.checkpoint.saver import CheckpointSaver
from tests.process.harness import eventually
from tests.support.member_calls import member_call
from tests.unit.store.gated import GatedStore, drop

TRIAL = TrialId(3)
QUICK = SnapshotRetryPolicy(store_s=30.0, acknowledge_s=30.0, fetch_s=30.0, between_s=0.0)


class Desk:
    """A keeper, the store that it writes to, and a coordinator that acknowledges all that is posted, or nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LocalStore(folder / "runs")
        self.store.put_if_absent(RunLayout("run").spec, b"{}")
        self.gate: Callable[[str, Callable[[], Any]], Any] = lambda name, effect: effect()
        self.written: list[m.CheckpointStored] = []
        self.acknowledges = True
        self.parts: list[m.PartStored] = []
        self.keeper = self.new_keeper(QUICK)

    def new_keeper(self, policy: SnapshotRetryPolicy, scratch: str = "scratch") -> CheckpointStorer:
        return CheckpointStorer(self.folder / scratch, AgentId("agent-1"), self._post, policy, self._open)

    def _open(self, address: StoreAddress) -> Store:
        assert address.url == str(self.folder / "runs")
        return GatedStore(self.store, lambda name, effect: self.gate(name, effect))

    def _post(self, message: m.FromAgent) -> None:
        if isinstance(message, m.PartStored):
            self.parts.append(message)
            return
        assert isinstance(message, m.CheckpointStored)
        self.written.append(message)
        if self.acknowledges:
            self.keeper.acknowledged(m.AckCheckpoint(message.member, message.checkpoint))

    def start(self, generation: int = 1, checkpoint: Checkpoint | None = None, rank: int = 0) -> m.StartMember:
        member = Member(RunId("run"), TRIAL, Generation(generation), Rank(rank))
        return m.StartMember(
            member=member,
            call=member_call(),
            store=StoreAddress(str(self.folder / "runs")),
            checkpoint=checkpoint,
        )

    def home(self, generation: int = 1, rank: int = 0) -> Path:
        home = self.folder / f"home-{generation}-{rank}"
        home.mkdir(exist_ok=True)
        return home

    def snapshot(self, step: int, generation: int = 1) -> pm.Snapshot:
        folder = self.home(generation) / f"snapshot-{step}"
        folder.mkdir()
        (folder / "state.json").write_text(f"step {step}")
        (folder / "tensors-00000.safetensors").write_bytes(b"\0" * step)
        return pm.Snapshot(step, str(folder), keep=2, score=0.5)

    async def keep(self, step: int) -> pm.SnapshotAnswered:
        return await self.keeper.store(self.start(), self.home(), self.snapshot(step))

    def garble(self) -> None:
        for path in self.store.list("run/trials"):
            Path(self.store.where(path)).write_bytes(b"garbled")

    def local(self, scratch: str = "scratch") -> list[str]:
        """All files that the keeper has on the local disk, without the digest of their checkpoint."""
        top = self.folder / scratch  # walked, for a thread may be deleting
        found = [Path(folder, name).relative_to(top) for folder, _, names in os.walk(top) for name in names]
        return sorted(f"{path.parts[0]}/{path.name}" for path in found)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def texts(folder: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in Path(folder).iterdir() if path.name != MANIFEST}


def gone(name: str, effect: Callable[[], Any]) -> Any:
    raise AssertionError(f"the store was asked to {name}")


async def test_a_snapshot_becomes_a_checkpoint(desk: Desk) -> None:
    assert await desk.keep(7) == pm.SnapshotAnswered(7)
    [message] = desk.written
    assert (message.member, message.checkpoint.step, message.checkpoint.score) == (desk.start().member, 7, 0.5)
    assert not (desk.home() / "snapshot-7").exists()
    assert desk.local() == [f"checkpoints/{name}" for name in (MANIFEST, "state.json", "tensors-00000.safetensors")]


async def test_a_restart_on_the_same_host_reads_nothing_from_the_store(desk: Desk) -> None:
    await desk.keep(7)
    await desk.keep(8)
    checkpoint = desk.written[-1].checkpoint
    desk.gate = gone
    shutil.rmtree(desk.home())
    for generation in (2, 3):
        keeper = desk.new_keeper(QUICK)  # as after a broken stream
        home = desk.home(generation)
        folder = await keeper.restore_dir(desk.start(generation, checkpoint), home)
        assert folder == str(home / "restore")
        assert texts(folder) == {"state.json": "step 8", "tensors-00000.safetensors": "\0" * 8}
        shutil.rmtree(home)


async def test_another_host_fetches_once(desk: Desk) -> None:
    await desk.keep(7)
    checkpoint = desk.written[-1].checkpoint
    other = desk.new_keeper(QUICK, "elsewhere")
    first = await other.restore_dir(desk.start(2, checkpoint, 1), desk.home(2, 1))
    desk.gate = gone
    again = await other.restore_dir(desk.start(3, checkpoint, 1), desk.home(3, 1))
    assert texts(first) == texts(again) == {"state.json": "step 7", "tensors-00000.safetensors": "\0" * 7}


async def test_nothing_to_resume_from(desk: Desk) -> None:
    assert await desk.keeper.restore_dir(desk.start(), desk.home()) == ""


async def test_a_corrupt_checkpoint_is_refused_at_once(desk: Desk) -> None:
    await desk.keep(7)
    checkpoint = desk.written[-1].checkpoint
    desk.garble()
    reads: list[str] = []
    desk.gate = lambda name, effect: (reads.append(name), effect())[1]
    with pytest.raises(CheckpointError, match="is corrupt"):
        await desk.new_keeper(QUICK, "elsewhere").restore_dir(desk.start(2, checkpoint), desk.home(2))
    assert reads == ["read", "exists"]
    assert texts(await desk.keeper.restore_dir(desk.start(3, checkpoint), desk.home(3)))["state.json"] == "step 7"


async def test_each_checkpoint_knows_the_one_before_it(desk: Desk) -> None:
    await desk.keep(7)
    await desk.keep(8)
    first, second = [each.checkpoint for each in desk.written]
    await desk.keeper.store(desk.start(2, second), desk.home(2), desk.snapshot(9, generation=2))
    third = desk.written[-1].checkpoint
    parents = [desk.store.read(each.manifest).decode() for each in (first, second, third)]
    assert '"parent":""' in parents[0]
    assert f'"parent":"{first.digest}"' in parents[1]
    assert f'"parent":"{second.digest}"' in parents[2]


class Pipe:
    """The member's end of the connection to its agent, which runs its loop in another thread."""

    def __init__(self, desk: Desk, start: m.StartMember, home: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._keep = lambda snapshot: desk.keeper.store(start, home, snapshot)
        self._answers: queue.Queue[pm.SnapshotAnswered] = queue.Queue()

    def take_asked(self, *, in_store: bool = False) -> bool:
        return False

    def send(self, message: pm.Snapshot) -> None:
        keeping = asyncio.run_coroutine_threadsafe(self._keep(message), self._loop)
        keeping.add_done_callback(lambda done: self._answers.put(done.result()))

    def snapshot_answer(self, timeout_s: float) -> pm.SnapshotAnswered | None:
        return self._answers.get(timeout=timeout_s)


async def test_from_a_training_function_to_the_next_generation(desk: Desk) -> None:
    def train(checkpoints: CheckpointSaver, until: int) -> list[float]:
        restored = checkpoints.restore()
        weights = restored["weights"] if restored else np.zeros(3)
        for step in range(restored.step if restored else 0, until):
            weights = weights + step
            checkpoints.save(step + 1, weights=weights)
        checkpoints.wait(30.0)
        checkpoints.finish(30.0)
        return weights.tolist()

    checkpoint = None
    for generation, until in ((1, 4), (2, 7)):
        start, home = desk.start(generation, checkpoint), desk.home(generation)
        folder = await desk.keeper.restore_dir(start, home)
        mine = CheckpointSaver(Pipe(desk, start, home), home / "snapshots", folder, 0, SystemClock())
        weights = await asyncio.to_thread(train, mine, until)
        checkpoint = desk.written[-1].checkpoint
        assert checkpoint.step == until
    assert weights == [float(sum(range(7)))] * 3


# ---- what goes wrong


@pytest.mark.parametrize("operation", ["create", "write", "publish", "pieces", "put", "read"])
async def test_an_operation_of_a_store_that_fails_once_is_retried(desk: Desk, operation: str) -> None:
    failures = [OSError(errno.EIO, "the store failed")]

    def gate(name: str, effect: Callable[[], Any]) -> Any:
        result = effect()
        if name == operation and failures:
            drop(result)
            raise failures.pop()
        return result

    desk.gate = gate
    assert await desk.keep(7) == pm.SnapshotAnswered(7)
    assert not failures
    checkpoint = desk.written[-1].checkpoint
    assert texts(await desk.keeper.restore_dir(desk.start(2, checkpoint), desk.home(2)))["state.json"] == "step 7"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
async def test_a_full_store_is_reported_and_the_checkpoint_before_stays(desk: Desk, code: int) -> None:
    await desk.keep(7)
    before, calls = desk.local(), []

    def gate(name: str, effect: Callable[[], Any]) -> Any:
        calls.append(name)
        if name == "write":
            raise OSError(code, errno.errorcode[code])
        return effect()

    desk.gate = gate
    kept = await desk.keep(8)
    assert kept.step == 8
    assert errno.errorcode[code] in kept.problem
    assert QUICK.attempts <= calls.count("write") <= 2 * QUICK.attempts, "files are written side by side"
    await _settled(lambda: desk.local() == before)
    desk.gate = gone
    checkpoint = desk.written[-1].checkpoint
    assert texts(await desk.keeper.restore_dir(desk.start(2, checkpoint), desk.home(2)))["state.json"] == "step 7"


async def test_a_replaced_chief_gets_an_error(desk: Desk) -> None:
    path = RunLayout("run").generation(TRIAL, Generation(1)).manifest(7)
    desk.store.put_if_absent(path, b"{}")
    kept = await desk.keep(7)
    assert "exists already with other content: another chief has written it" in kept.problem
    assert desk.written == []


async def test_without_an_acknowledgement_it_does_not_count(desk: Desk) -> None:
    await desk.keep(7)
    before = desk.local()
    desk.acknowledges = False
    desk.keeper = desk.new_keeper(SnapshotRetryPolicy(acknowledge_s=0.01))
    kept = await desk.keep(8)
    assert "the coordinator did not acknowledge it within 0 s: it does not count" in kept.problem
    await _settled(lambda: desk.local() == before)
    desk.keeper.acknowledged(m.AckCheckpoint(desk.written[-1].member, desk.written[-1].checkpoint))


async def test_a_store_that_hangs_blocks_no_wait_and_publishes_nothing(desk: Desk) -> None:
    free = threading.Event()

    def gate(name: str, effect: Callable[[], Any]) -> Any:
        if name == "create":
            assert free.wait(30.0)
        return effect()

    desk.gate = gate
    desk.keeper = desk.new_keeper(SnapshotRetryPolicy(store_s=0.05))
    kept = await desk.keep(7)
    assert "was not stored in" in kept.problem
    assert "within 0 s: see whether the store is overloaded" in kept.problem
    free.set()
    await _settled(lambda: not any(each.name == "sparktrain-store" for each in threading.enumerate()))
    assert listed(desk.store, RunLayout("run"), TRIAL) == []
    assert desk.local() == []


async def test_a_run_directory_that_this_host_does_not_have_is_named(desk: Desk) -> None:
    await desk.keep(7)
    checkpoint = desk.written[-1].checkpoint
    shutil.rmtree(desk.folder / "runs" / "run")
    keeper = desk.new_keeper(SnapshotRetryPolicy(absent_s=0.0), "elsewhere")
    async with asyncio.timeout(10.0):  # the store answers: it is not waited for as for one that does not
        with pytest.raises(OSError, match=r"run.json is not there on host .* dir must be on storage that all hosts"):
            await keeper.restore_dir(desk.start(2, checkpoint), desk.home(2))
        kept = await keeper.store(desk.start(), desk.home(), desk.snapshot(8))
    assert "run.json is not there on host" in kept.problem


async def test_a_fetch_that_hangs_ends(desk: Desk) -> None:
    await desk.keep(7)
    checkpoint, free = desk.written[-1].checkpoint, threading.Event()
    desk.gate = lambda name, effect: (free.wait(30.0), effect())[1]
    keeper = desk.new_keeper(SnapshotRetryPolicy(fetch_s=0.05), "elsewhere")
    with pytest.raises(TimeoutError, match=r"was not fetched from .* within 0 s"):
        await keeper.restore_dir(desk.start(2, checkpoint), desk.home(2))
    free.set()
    await _settled(lambda: not any(each.name == "sparktrain-store" for each in threading.enumerate()))


async def test_a_member_that_is_gone_leaves_nothing(desk: Desk) -> None:
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()
    free = threading.Event()

    def gate(name: str, effect: Callable[[], Any]) -> Any:
        loop.call_soon_threadsafe(entered.set)
        assert free.wait(30.0)
        return effect()

    desk.gate = gate
    keeping = asyncio.create_task(desk.keep(7))
    await asyncio.wait_for(entered.wait(), 30.0)
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    free.set()
    await _settled(lambda: not any(each.name == "sparktrain-store" for each in threading.enumerate()))
    assert (desk.written, desk.local(), listed(desk.store, RunLayout("run"), TRIAL)) == ([], [], [])


@pytest.mark.parametrize("folder", ["/etc", "{home}/../elsewhere", "{home}"])
async def test_a_snapshot_must_lie_in_the_member_s_home(desk: Desk, folder: str) -> None:
    kept = await desk.keeper.store(desk.start(), desk.home(), pm.Snapshot(1, folder.format(home=desk.home()), 2))
    assert "must lie in the member's directory" in kept.problem


async def test_a_snapshot_that_is_not_there(desk: Desk) -> None:
    kept = await desk.keeper.store(desk.start(), desk.home(), pm.Snapshot(1, str(desk.home() / "none"), 2))
    assert "No such file" in kept.problem


async def _settled(holds: Callable[[], bool]) -> None:
    """Wait for threads that clean up behind an answer."""
    await eventually(holds, 30.0, "threads have cleaned up")


async def test_a_local_disk_that_hangs_is_reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    released, desk.keeper = threading.Event(), desk.new_keeper(replace(QUICK, local_s=0.05))
    monkeypatch.setattr(Path, "rename", lambda self, target: released.wait(30.0))
    kept = await desk.keep(7)
    released.set()
    assert kept == pm.SnapshotAnswered(7, f"the local disk below {desk.home()} did not answer within 0.05 s")
    assert desk.written == []


async def test_a_checkpoint_that_counts_is_kept_although_there_is_no_copy_at_hand(desk: Desk) -> None:
    (desk.folder / "scratch").mkdir()
    (desk.folder / "scratch" / "checkpoints").write_text("in the way")
    assert await desk.keep(7) == pm.SnapshotAnswered(7)
    assert [message.checkpoint.step for message in desk.written] == [7]
