"""A folder under a known name, in a directory where others may have put something there first."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.store.private_folder import private_folder


def as_nobody(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    path.mkdir()
    os.chown(path, 65534, 65534)


def as_link(path: Path) -> None:
    target = path.parent / "target"
    target.mkdir()
    path.symlink_to(target)


@pytest.mark.parametrize("squat", [as_nobody, as_link, Path.touch])
def test_a_name_that_others_have_taken_is_left_to_them(tmp_path: Path, squat: Callable[[Path], None]) -> None:
    squat(tmp_path / "name")
    before = (tmp_path / "name").lstat()
    folder = private_folder(tmp_path, "name")
    assert folder.name.startswith("name-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path, "name") == folder, "processes of this user share it"
    assert (tmp_path / "name").lstat() == before


def test_the_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "new", "name")
    assert folder == tmp_path / "new" / "name"
    folder.chmod(0o777)
    assert private_folder(tmp_path / "new", "name").stat().st_mode & 0o777 == 0o700
