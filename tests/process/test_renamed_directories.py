"""Runs that are resumed in a renamed or copied directory: members read and write there, and nowhere else."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.support.functions import square


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Pool]:
    with st.pool(st.local(slots=1)) as pool:
        pool.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(tmp_path_factory.mktemp("warm")))
        yield pool


def fail_once(x: int, ctx: Any) -> dict[str, float]:
    """Fail after two checkpoints, and continue from the newest one."""
    restored = ctx.checkpoint.restore()
    first = restored.step + 1 if restored else 1
    for step in range(first, first + 2):
        ctx.checkpoint.save(step, at=step)
    ctx.checkpoint.wait()
    if restored is None:
        raise ValueError("the first time")
    return {"from": float(restored.step)}


@pytest.fixture
def directory(pool: st.Pool, tmp_path: Path) -> Path:
    result = pool.sweep(fail_once, {"x": [1]}, metric="from", mode="max", dir=str(tmp_path), name="run")
    assert [trial.status for trial in result.trials] == ["failed"]
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def steps_in(folder: Path) -> set[int]:
    return {int(path.name.removeprefix("manifest-")) for path in folder.rglob("manifest-*")}


def test_a_copy_continues_from_its_own_checkpoint_and_leaves_the_original(directory: Path) -> None:
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    before = contents(directory)
    assert st.resume(str(copy), spark=st.local(slots=1), retry_failed=True, progress=False).trials[0].metrics == {
        "from": 2.0
    }
    assert contents(directory) == before
    assert steps_in(copy) == {3, 4}


def test_a_renamed_directory_continues(directory: Path) -> None:
    renamed = directory.with_name("renamed")
    os.rename(directory, renamed)
    result = st.resume(str(renamed), spark=st.local(slots=1), retry_failed=True, progress=False)
    assert result.trials[0].metrics == {"from": 2.0}
    assert (result.name, result.directory) == ("renamed", str(renamed))
    assert not directory.exists()


def test_a_lost_checkpoint_file_costs_seconds(directory: Path) -> None:
    for path in directory.rglob("manifest-00000002"):
        path.unlink()
    started = time.monotonic()
    result = st.resume(str(directory), spark=st.local(slots=1), retry_failed=True, progress=False)
    assert result.trials[0].metrics == {"from": 1.0}
    assert time.monotonic() - started < 30
