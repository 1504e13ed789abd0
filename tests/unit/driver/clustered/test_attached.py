"""`sparktrain.attach` to directories that it refuses."""

import shutil
import zlib
from pathlib import Path

import pytest

import sparktrain as st
from tests.unit.driver.stored import ScriptedRun, spoil

LATER = b'{"version":2,"sparktrain":"3.1.0"}'


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """The first file of the journal of a run."""
    run = ScriptedRun(tmp_path).begin()
    run.add({"lr": 0.1})
    return min((tmp_path / run.layout.path / "journal").glob("batch-*"))


def test_a_run_of_a_later_version_is_refused(batch: Path) -> None:
    batch.write_bytes(b"%08x %b\n" % (zlib.crc32(LATER), LATER))
    with pytest.raises(st.RunDirectoryError, match=r"was written by sparktrain 3\.1\.0 .*: use that version"):
        st.attach(batch.parent.parent)


def test_a_corrupt_run_is_refused(batch: Path) -> None:
    spoil(batch)
    with pytest.raises(st.RunDirectoryError, match="fsck"):
        st.attach(batch.parent.parent)


def test_the_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(st.RunDirectoryError, match=r"it has thesis\.txt, and neither run\.json nor a folder with one"):
        st.attach(tmp_path)


def test_a_copy_that_nothing_has_resumed_is_refused(batch: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(batch.parent.parent, tmp_path / "copy")
    with pytest.raises(st.RunDirectoryError, match=r"copy is a copy of a run, which no driver has resumed: .*resume"):
        st.attach(copy)
