"""A resume with other files is refused with the names of those that differ."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import ResumeError
from sparktrain.search.space import grid
from tests.support.run_stages import requested
from tests.unit.datasets.data_files import parquet_bytes
from tests.unit.scripted import of_a_script


@of_a_script
def train(x: int) -> float:
    raise NotImplementedError


def prepared(runs: Path, paths: str | list[str]) -> CheckedCall:
    options = SweepOptions(
        metric="loss", dir=str(runs), name="big", backend="none", preload=[], seed=1, data={"train": paths}
    )
    return compose(train, grid(x=[1]), options)


def write(file: Path, rows: int) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(parquet_bytes(pa.table({"x": list(range(rows))})))
    os.utime(file, (86400.0, 86400.0))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Six files of three rows, on which a run has started."""
    folder = tmp_path / "files"
    for number in range(6):
        write(folder / f"{number}.parquet", 3)
    work = requested(prepared(tmp_path / "runs", str(folder)))
    work.owned.write_data(lambda _: None)
    work.owned.journal.append([work.driver_started])
    return folder


def changes(runs: Path, paths: str | list[str]) -> list[str]:
    """The lines about data of the error."""
    with pytest.raises(ResumeError, match="was started with other data") as caught:
        attach(prepared(runs, paths))
    lines = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    assert lines[0] == "data:"
    return lines[1:]


def names_of(lines: list[str]) -> list[str]:
    return [line.partition(" (")[0].replace("files/", "") for line in lines if "train: " in line]


def test_the_same_files_are_the_same_data(files: Path, tmp_path: Path) -> None:
    attach(prepared(tmp_path / "runs", str(files)))


def test_files_that_came_went_and_changed_are_named(files: Path, tmp_path: Path) -> None:
    write(files / "1.parquet", 1000)
    (files / "4.parquet").unlink()
    write(files / "9.parquet", 5)
    lines = changes(tmp_path / "runs", str(files))

    assert names_of(lines) == [
        "- train: 1.parquet", "+ train: 1.parquet", "- train: 4.parquet", "+ train: 9.parquet"
    ]  # fmt: skip
    assert [line.partition(" in ")[2].partition(" rows")[0] for line in lines[:4]] == ["3", "1,000", "3", "5"]
    assert '+ "rows": 1017' in lines
    assert not [line for line in lines if '"files"' in line]


def test_a_file_with_another_time_is_named(files: Path, tmp_path: Path) -> None:
    os.utime(files / "2.parquet", (2 * 86400.0, 2 * 86400.0))
    one, other = changes(tmp_path / "runs", str(files))

    assert names_of([one, other]) == ["- train: 2.parquet", "+ train: 2.parquet"]
    assert one.partition(", of ")[2] != other.partition(", of ")[2]


def test_of_many_files_the_first_are_named(files: Path, tmp_path: Path) -> None:
    for number in range(6):
        write(files / f"{number}.parquet", 4)
    lines = changes(tmp_path / "runs", str(files))

    assert names_of(lines) == [f"{sign} train: {number}.parquet" for number in range(3) for sign in "-+"]
    assert "... and 3 more files of train" in lines


def test_files_of_another_folder_and_those_of_an_unreadable_manifest_still_differ(files: Path, tmp_path: Path) -> None:
    write(tmp_path / "others" / "0.parquet", 3)
    lines = changes(tmp_path / "runs", str(tmp_path / "others"))
    assert names_of(lines) == [*(f"- train: {number}.parquet" for number in range(3)), "+ train: others/0.parquet"]

    for manifest in (tmp_path / "runs").rglob("manifest.json"):
        manifest.write_bytes(b"cut")
    lines = changes(tmp_path / "runs", str(tmp_path / "others"))
    assert sorted(line.split(":")[0] for line in lines if '"files"' in line) == ['+ "files"', '- "files"']
