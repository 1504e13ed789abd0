"""Snapshots of a member in shared memory: whole, in place, with the chief's part, and with too little memory."""

from pathlib import Path

import pytest

from tests.training import snapshots
from tests.training.gangs import run_gang


def test_two_folders_take_turns_and_are_overwritten_in_place(tmp_path: Path) -> None:
    [found] = run_gang(snapshots.alternate, 1, "none", folder=str(tmp_path))
    assert found["steps"] == [1, 2, 3, 4, 5]
    assert found["folders"] == ["a", "b", "a", "b", "a"]
    assert found["in place"] == [True, False], "an array more from step 4 on: new files"
    assert found["restored"] == [4, 1, 4, 4]
    assert found["beside"]


def test_a_copy_has_the_values_after_its_step_when_later_steps_overtake_it(tmp_path: Path) -> None:
    [found] = run_gang(snapshots.copy_beside_steps, 1, "none", folder=str(tmp_path))
    assert found["beside"] == [True, True, True, False, True]
    assert found["blocked"] == [True] * 5
    assert found["steps"] == [1, 2, 3, 4, 5]


def test_members_get_the_chiefs_part(tmp_path: Path) -> None:
    [found] = run_gang(snapshots.send_part, 1, "none", folder=str(tmp_path))
    assert found["large"] == [True, False, True, False]
    assert found["folders"] == ["1", "1", "1", "2"]
    assert found["best"] == [1e6, 4]
    assert found["drawn after"]


def test_too_little_shared_memory_is_a_notice_and_training_continues(tmp_path: Path) -> None:
    [found] = run_gang(snapshots.lack_memory, 1, "none", folder=str(tmp_path), monkeypatched=1000)
    assert (found["able"], found["taken"]) == (False, 0)
    [notice] = found["notices"]
    assert "of shared memory" in notice
    assert "mount an emptyDir of medium Memory there, as conf/kubernetes/executor.yaml does" in notice
    assert "newest checkpoint in the store" in notice


@pytest.mark.parametrize("backend", ["tensorflow", "horovod"])
@pytest.mark.parametrize("hidden", [False, True])
def test_members_of_one_host_read_the_snapshot_of_rank_0_and_others_get_it_over_the_ring(
    tmp_path: Path, backend: str, hidden: bool
) -> None:
    (source := tmp_path / "source").mkdir()
    content = {"a.txt": "one", "b.txt": "two " * 1000}
    for name, text in content.items():
        (source / name).write_text(text)
    # A ring of Horovod alone heals: there a member has just written the files.
    is_new = backend == "horovod"
    params = {"source": str(source), "target": str(tmp_path / "target"), "hidden": hidden, "is_new": is_new}
    chief, member = run_gang(snapshots.get_files, 2, backend, **params)
    assert (chief["folder"], chief["content"]) == (str(source), content)
    assert (member["folder"], member["content"]) == (str(tmp_path / "target/1" if hidden else source), content)
