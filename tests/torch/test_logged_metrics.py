"""Metrics that a library logs in pieces: one report for each step, and none twice."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sparktrain.errors import CheckpointError, UserError
from sparktrain.testing import LocalContext, local_context
from sparktrain.torch.checkpoint_folder import restored_folder, save_folder
from sparktrain.torch.logged_metrics import LoggedMetrics, must_stop
from sparktrain.training import current_context

pytestmark = pytest.mark.torch


@contextmanager
def trial(folder: Path) -> Iterator[LocalContext]:
    with local_context(directory=folder) as context:
        current_context.enter(context)
        try:
            yield context
        finally:
            current_context._current = None


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[LocalContext]:
    with trial(tmp_path) as context:
        yield context


def steps(ctx: LocalContext) -> list[tuple[int, dict[str, float]]]:
    return [(report.step, dict(report.metrics)) for report in ctx.reports]


def test_pieces_of_a_step_are_one_report(ctx: LocalContext) -> None:
    logged = LoggedMetrics()
    logged.add(4, {"loss": 2.0})
    logged.add(4, {"val_loss": 3.0})
    assert steps(ctx) == []
    logged.add(9, {"loss": 1.0, "val_loss": 3.0})
    logged.flush()
    logged.flush()
    assert steps(ctx) == [(4, {"loss": 2.0, "val_loss": 3.0}), (9, {"loss": 1.0, "val_loss": 3.0})]


def test_what_comes_after_the_report_of_its_step_gets_the_next_one_where_it_is_new(ctx: LocalContext) -> None:
    logged = LoggedMetrics()
    logged.add(4, {"loss": 2.0})
    logged.flush()
    logged.add(4, {"loss": 2.0, "seconds": 7.0})
    logged.add(5, {"loss": 1.0})
    logged.flush()
    assert steps(ctx) == [(4, {"loss": 2.0}), (5, {"seconds": 7.0}), (6, {"loss": 1.0})]


def test_nothing_happens_outside_of_a_trial(tmp_path: Path) -> None:
    logged = LoggedMetrics()
    logged.add(1, {"loss": 2.0})
    logged.flush()
    save_folder(1, tmp_path / "missing")
    assert restored_folder() is None
    assert not must_stop()


def test_a_folder_of_files_is_restored(tmp_path: Path) -> None:
    files = {"model.bin": b"weights", "parts/0.bin": b"", "parts/1.bin": bytes(range(256))}
    with trial(tmp_path / "trial"):
        for name, content in files.items():
            (tmp_path / "saved" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "saved" / name).write_bytes(content)
        save_folder(7, tmp_path / "saved")
    with trial(tmp_path / "trial"):
        folder = Path(restored_folder() or "")
        restored = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.bin")}
    assert restored == files


def test_no_file_of_a_folder_is_in_memory_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    path = tmp_path / "saved" / "weights.bin"
    size = 10 * 2**24 + 3
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 9)
        file.write(b"weights 1")
    tracemalloc.start()
    try:
        with trial(tmp_path / "trial") as ctx:
            save_folder(7, tmp_path / "saved")
            path.write_bytes(b"of the next step")
            ctx.checkpoint.wait()
        with trial(tmp_path / "trial"):
            folder = Path(restored_folder() or "")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (folder / "weights.bin").stat().st_size == size
    with (folder / "weights.bin").open("rb") as file:
        file.seek(size - 9)
        assert file.read() == b"weights 1"
    assert peak_bytes < 2 * 2**24


def test_a_checkpoint_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with trial(tmp_path) as ctx:
        ctx.checkpoint.save(3, weight=1.0)
    with trial(tmp_path), pytest.raises(UserError, match="checkpoint of step 3 is no folder of files"):
        restored_folder()


@pytest.mark.parametrize("name", ["../beside.bin", "parts/../../beside.bin", "/sparktrain-beside.bin"])
def test_a_file_outside_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with trial(tmp_path) as ctx:
        ctx.checkpoint.save(3, files={"model.bin": [np.zeros(1, np.uint8)], name: [np.zeros(1, np.uint8)]})
    with trial(tmp_path), pytest.raises(CheckpointError, match="which is not in its folder"):
        restored_folder()
    assert not [*tmp_path.rglob("beside.bin")]
    assert not Path("/sparktrain-beside.bin").exists()
