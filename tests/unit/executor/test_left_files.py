"""What is found in a folder that a training function has filled."""

import os
from pathlib import Path

import pytest

from sparktrain.executor.left_files import find, open_regular


def test_regular_files_are_found_at_any_depth_and_in_order(tmp_path: Path) -> None:
    files = [tmp_path / "files" / name for name in ("b", "a/z", "a/y/x", "c")]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "files" / "link").symlink_to(tmp_path / "files" / "a")
    (tmp_path / "files" / "a" / "up").symlink_to("..")
    found = find(tmp_path / "files")
    assert found.files == tuple(sorted(files))
    assert found.problems == ()


def test_entries_that_cannot_be_uploaded_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    os.mkdir(os.fsencode(folder) + b"/\xff")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff/file")).touch()
    found = find(folder)
    assert found.files == ()
    assert found.problems == ("files/\\xff: its name is not UTF-8", "files/pipe: is no file but a named pipe")


def test_a_path_that_is_too_long_for_the_system_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    (folder / "good").touch()
    found = find(folder)
    assert found.files == (folder / "good",)
    [problem] = found.problems
    assert problem.startswith("files/ddd")
    assert problem.endswith(": File name too long")


def test_no_folder_is_an_empty_one(tmp_path: Path) -> None:
    assert find(tmp_path / "none").files == ()
    (tmp_path / "link").symlink_to(tmp_path)
    assert find(tmp_path / "link").files == ()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "path"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    with pytest.raises(OSError, match="path"):
        open_regular(path)
