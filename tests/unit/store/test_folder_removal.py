"""Removing folders, whatever is in them."""

import os
import socket
from pathlib import Path

import pytest

from sparktrain.store.folder_removal import discard, remove
from tests.support.mounts import bound


def deep(folder: Path, levels: int, name: str) -> None:
    """A chain of folders below `folder`, each with a file, made one step at a time: its whole path may be too long."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.long
@pytest.mark.parametrize(("levels", "name"), [(1500, "d"), (60, "d" * 200)])
def test_a_tree_of_any_depth_is_removed(tmp_path: Path, levels: int, name: str) -> None:
    deep(tmp_path / "tree", levels, name)
    remove(tmp_path / "tree")
    assert os.listdir(tmp_path) == []


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    for folder in (tree, tree / "below"):
        (folder / "to-folder").symlink_to(tmp_path / "kept")
        (folder / "to-file").symlink_to(tmp_path / "kept" / "file")
        (folder / "to-itself").symlink_to(folder / "to-itself")
    remove(tree)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def test_special_files_and_names_that_are_no_text_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tree / "socket"))
    os.mkdir(os.fsencode(tree) + b"/\xff")
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff/\xfe")).touch()
    (tree / "closed").mkdir()
    (tree / "closed" / "inner").mkdir(mode=0)
    (tree / "closed").chmod(0)
    remove(tree)
    assert os.listdir(tmp_path) == []


def test_the_name_is_free_before_anything_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, there = tmp_path / "member", []
    folder.mkdir()
    (folder / "file").touch()
    unlink = os.unlink

    def watched(*args: object, **kwargs: object) -> None:
        there.append(folder.exists())
        unlink(*args, **kwargs)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(os, "unlink", watched)
    discard(folder)
    assert there == [False]
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_none(tmp_path: Path) -> None:
    discard(tmp_path / "none")
    remove(tmp_path / "none")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", ["tree", "tree/top", "tree/below/deep"])
def test_what_is_mounted_there_stays(tmp_path: Path, place: str) -> None:
    kept, target = tmp_path / "kept", tmp_path / place
    kept.mkdir()
    (kept / "file").write_text("kept")
    target.mkdir(parents=True)
    (tmp_path / "tree" / "ours").touch()
    with bound(kept, target):
        remove(tmp_path / "tree")
        assert (kept / "file").read_text() == "kept"
        assert (target / "file").read_text() == "kept"
    assert (tmp_path / "tree" / "ours").exists() == (place == "tree")
    discard(tmp_path / "tree")
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_the_last_file_goes_when_nothing_else_is_left(tmp_path: Path) -> None:
    kept, target = tmp_path / "kept", tmp_path / "tree" / "mounted"
    kept.mkdir()
    (kept / "file").touch()
    target.mkdir(parents=True)
    (tmp_path / "tree" / "owner").touch()
    with bound(kept, target):
        remove(tmp_path / "tree", last="owner")
        assert (tmp_path / "tree" / "owner").exists()
    remove(tmp_path / "tree", last="owner")
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
