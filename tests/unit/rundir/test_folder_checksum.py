"""The checksum of a folder finds what bad memory and partial writes leave."""

from pathlib import Path

import numpy as np
import pytest

from sparktrain.rundir.folder_checksum import folder_checksum

BLOCK = 2**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    content = np.random.default_rng(0).integers(0, 256, 3 * BLOCK + 1003, np.uint8)
    (tmp_path / "tensors").write_bytes(content.tobytes())
    (tmp_path / "document").write_bytes(b'{"step": 3}')
    (tmp_path / "empty").touch()
    return tmp_path


@pytest.mark.parametrize("place", [0, 7, 8, BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 999, 3 * BLOCK + 1002])
def test_a_changed_bit_is_found(folder: Path, place: int) -> None:
    before, content = folder_checksum(folder), bytearray((folder / "tensors").read_bytes())
    content[place] ^= 1 << place % 8
    (folder / "tensors").write_bytes(content)
    assert folder_checksum(folder) != before


def test_files_that_are_mapped_have_the_same_checksum(folder: Path) -> None:
    mapped = {"tensors": np.memmap(folder / "tensors", np.uint8, "r+")}
    before = folder_checksum(folder, mapped)
    assert before == folder_checksum(folder)
    mapped["tensors"][2 * BLOCK + 5] ^= 1
    assert before != folder_checksum(folder, mapped) == folder_checksum(folder)


def test_equal_folders_have_equal_checksums(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for each in sorted(folder.iterdir(), reverse=True):
        (other / each.name).write_bytes(each.read_bytes())
    assert folder_checksum(other) == folder_checksum(folder)


def test_lost_pages_and_exchanged_blocks_are_found(folder: Path) -> None:
    content = (folder / "tensors").read_bytes()
    found = {folder_checksum(folder)}
    for wrong in (
        content[:4096] + bytes(4096) + content[8192:],
        content[BLOCK : 2 * BLOCK] + content[:BLOCK] + content[2 * BLOCK :],
        content[:-1],
        content + b"\0",
        b"",
    ):
        (folder / "tensors").write_bytes(wrong)
        found.add(folder_checksum(folder))
    (folder / "tensors").write_bytes(content)
    (folder / "tensors").rename(folder / "others")
    found.add(folder_checksum(folder))
    assert len(found) == 7
