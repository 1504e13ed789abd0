"""An agent that holds its members' snapshots in memory, beyond their processes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import CheckpointError
from sparktrain.executor import memory_holder
from sparktrain.executor.memory_holder import MemoryHolder, shared_memory
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.state.memory_snapshots import MemoryBase
from tests.process.harness import eventually
from tests.support.member_calls import member_call


def start_of(generation: int, base: MemoryBase | None = None, trial: int = 3, size: int = 2) -> m.StartMember:
    member = Member(RunId("run"), TrialId(trial), Generation(generation), Rank(1))
    return m.StartMember(member=member, call=member_call(size=size), memory=base)


def taken(folder: str, name: str, step: int) -> pm.MemoryWritten:
    """The member's snapshot, as its process leaves it."""
    path = Path(folder) / name
    path.mkdir()
    (path / "tensors").write_text(f"of step {step}")
    return pm.MemoryWritten(step, str(path), folder_checksum(path))


def base_of(snapshot: pm.MemoryWritten, generation: int = 1) -> MemoryBase:
    return MemoryBase(Generation(generation), snapshot.step, snapshot.checksum)


def snapshots(root: Path) -> set[str]:
    return {path.read_text() for path in root.glob("*/*/tensors")}


async def trained(holder: MemoryHolder) -> pm.MemoryWritten:
    """A member of generation 1 takes two snapshots and ends; returns the newest."""
    start = start_of(1)
    folder = await holder.start_member(start)
    newest = [taken(folder, name, step) for name, step in (("a", 5), ("b", 9))]
    assert all(holder.accept(start, each) for each in newest)
    holder.ended()
    return newest[-1]


async def test_the_next_member_gets_the_newest_snapshot(tmp_path: Path) -> None:
    holder = MemoryHolder(tmp_path)
    newest = await trained(holder)
    again = start_of(2, base_of(newest))
    assert await holder.start_member(again) != Path(newest.folder).parent
    assert (Path(await holder.restore_dir(again)) / "tensors").read_text() == "of step 9"
    await eventually(lambda: not (Path(newest.folder).parent / "a").exists(), 5.0)


@pytest.mark.parametrize("step", [5, 9])
async def test_the_newest_two_of_a_part_stay_for_others_may_lack_the_newest(tmp_path: Path, step: int) -> None:
    holder = MemoryHolder(tmp_path)
    start = start_of(1)
    folder = await holder.start_member(start)
    snapshots = [replace(taken(folder, str(number), number), layout=(0, 1), parts=(1, 0)) for number in (2, 5, 9)]
    assert all(holder.accept(start, snapshot) for snapshot in snapshots)
    holder.ended()
    [base] = [base_of(snapshot) for snapshot in snapshots if snapshot.step == step]
    again = start_of(2, base)
    await holder.start_member(again)
    assert (Path(await holder.restore_dir(again)) / "tensors").read_text() == f"of step {step}"
    await eventually(lambda: len(list(Path(folder).iterdir())) == 1, 5.0)


async def test_a_snapshot_that_changed_in_memory_is_refused(tmp_path: Path) -> None:
    holder = MemoryHolder(tmp_path)
    newest = await trained(holder)
    (Path(newest.folder) / "tensors").write_text("of step 8")
    again = start_of(2, base_of(newest))
    await holder.start_member(again)
    with pytest.raises(CheckpointError, match="step 9 in memory has changed"):
        await holder.restore_dir(again)


@pytest.mark.parametrize("change", ["older", "other trial", "other generation"])
async def test_another_snapshot_than_the_held_one_is_refused(tmp_path: Path, change: str) -> None:
    holder = MemoryHolder(tmp_path)
    base = base_of(await trained(holder))
    if change == "older":
        base = replace(base, step=5)
    again = start_of(2, base_of(pm.MemoryWritten(9, "", base.checksum), 7) if change == "other generation" else base)
    if change == "other trial":
        again = start_of(2, base, trial=4)
    await holder.start_member(again)
    with pytest.raises(CheckpointError, match="holds no snapshot"):
        await holder.restore_dir(again)


async def test_nothing_stays_of_what_no_gang_resumes_from(tmp_path: Path) -> None:
    holder = MemoryHolder(tmp_path)
    await trained(holder)
    holder.forget()
    await eventually(lambda: not list(tmp_path.iterdir()), 5.0)
    await trained(holder)
    await holder.start_member(start_of(1, trial=4))
    await eventually(lambda: len(list(tmp_path.iterdir())) == 1, 5.0)
    holder.forget()  # before the process of the member is gone
    holder.ended()
    await eventually(lambda: not list(tmp_path.iterdir()), 5.0)


async def test_a_snapshot_without_a_successor_expires(tmp_path: Path) -> None:
    holder = MemoryHolder(tmp_path, held_s=0.05)
    await trained(holder)
    await eventually(lambda: not list(tmp_path.iterdir()), 5.0)


async def test_a_base_stays_whole_until_its_member_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member may still read it when it has taken a snapshot of its own."""
    holder = MemoryHolder(tmp_path)
    newest = await trained(holder)
    again = start_of(2, base_of(newest))
    folder = await holder.start_member(again)
    removals: list[Callable[[], None]] = []
    monkeypatch.setattr(memory_holder, "spawn", removals.append)
    assert holder.accept(again, taken(folder, "a", 12))
    assert removals == []
    holder.ended()
    assert snapshots(tmp_path) >= {"of step 9", "of step 12"}
    [remove] = removals
    remove()
    assert snapshots(tmp_path) == {"of step 12"}


async def test_folders_of_others_and_links_are_refused(tmp_path: Path) -> None:
    holder = MemoryHolder(tmp_path)
    start = start_of(1)
    folder = await holder.start_member(start)
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (Path(folder) / "link").symlink_to(outside)
    for wrong in (str(outside), f"{folder}/link", folder, f"{folder}/a/b"):
        assert not holder.accept(start, pm.MemoryWritten(3, wrong, "c"))


async def test_a_gang_of_one_and_a_host_without_shared_memory_have_no_folder(tmp_path: Path) -> None:
    assert await MemoryHolder(tmp_path).start_member(start_of(1, size=1)) == ""
    assert await MemoryHolder(None).start_member(start_of(1)) == ""
    with shared_memory(str(tmp_path / "none")) as folder:
        assert folder is None


async def test_a_full_shared_memory_lets_the_member_train(tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.touch()
    assert await MemoryHolder(root).start_member(start_of(1)) == ""


def test_shared_memory_is_removed_at_the_end(tmp_path: Path) -> None:
    with shared_memory(str(tmp_path)) as folder:
        assert folder is not None
        (folder / "a").mkdir()
    assert not list(tmp_path.iterdir())
