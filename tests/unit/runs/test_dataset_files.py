"""Files of datasets in a run directory: what gc deletes, and what fsck finds."""

from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.config.data_sources import sources_of
from sparktrain.driver.data.run_data import plan_data, write_data
from sparktrain.runs.dataset_files import corrupt_files, unnamed_files
from tests.unit.driver.stored import ScriptedRun, typical
from tests.unit.runs.upkeep.test_fsck import examined
from tests.unit.runs.upkeep.test_gc import tidier


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """A run with a dataset in its directory."""
    run = typical(tmp_path / "runs")
    run.end()
    plan = plan_data(sources_of({"train": pa.table({"x": list(range(100))})}), 10.0)
    write_data(plan, plan.documents, run.store, run.place.layout, lambda line: None)
    return run


def files(run: ScriptedRun) -> list[Path]:
    return sorted(Path(run.store.where("mnist/data")).glob("*/*.arrow"))


def data_findings(run: ScriptedRun) -> list[str]:
    return [each.problem for each in examined(run, True).findings if each.subject == "data"]


def test_intact_data_is_no_finding_and_is_kept(run: ScriptedRun) -> None:
    assert list(corrupt_files(run.store, run.place.layout, fast=False)) == []
    assert unnamed_files(run.store, run.place.layout) == []
    assert tidier(run).find().orphans == ()


def test_files_of_lost_attempts_are_deleted(run: ScriptedRun) -> None:
    left = files(run)[0].with_name("00001-0-deadbeef-0.arrow")
    left.write_bytes(b"rows of an attempt that Spark gave up")
    found = tidier(run, older_than_s=0.0, after_s=1e9).find()
    assert [Path(each.path) for each in found.orphans] == [left]
    assert tidier(run, after_s=-1e9).find().orphans == ()  # it may belong to a job that runs


def test_no_file_is_deleted_beside_a_manifest_that_cannot_be_read(run: ScriptedRun) -> None:
    manifest = next(Path(run.store.where("mnist/data")).glob("*/manifest.json"))
    manifest.write_bytes(b"{")
    assert unnamed_files(run.store, run.place.layout) == []
    [(_, problem)] = corrupt_files(run.store, run.place.layout, fast=True)
    assert "is no manifest of a dataset" in problem


@pytest.mark.parametrize(("fast", "count"), [(True, 0), (False, 1)])
def test_a_changed_byte_is_found_by_reading_it(run: ScriptedRun, fast: bool, count: int) -> None:
    [file] = files(run)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    found = [each for each in examined(run, fast).findings if each.subject == "data"]
    assert len(found) == count
    assert all(str(file) in each.problem for each in found)


def test_lost_and_cut_files_are_found_by_their_size(run: ScriptedRun) -> None:
    [file] = files(run)
    file.write_bytes(file.read_bytes()[:-1])
    assert "in place of" in data_findings(run)[0]
    file.unlink()
    [found] = data_findings(run)
    assert "is missing: put a copy back" in found
