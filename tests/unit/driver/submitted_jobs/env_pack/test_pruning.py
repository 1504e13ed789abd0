"""Old packs are found, listed and removed; other files stay."""

import os
from pathlib import Path

from sparktrain.driver.submitted_jobs.env_pack.pack import old_packs, remove
from sparktrain.store.localfs import LocalStore

DAY_S = 86400.0


def made(folder: Path, name: str, size: int, modified: float) -> str:
    (folder / name).write_bytes(bytes(size))
    os.utime(folder / name, (modified, modified))
    return name


def test_all_packs_but_one_are_old_and_other_files_are_no_packs(tmp_path: Path) -> None:
    newer = made(tmp_path, "sparktrain-python3.11-bbbbbbbbbbbbbbbb.tar.gz", 2048, 9 * DAY_S)
    older = made(tmp_path, "sparktrain-python3.12-cccccccccccccccc.tar.gz", 1024, 5 * DAY_S)
    kept = made(tmp_path, "sparktrain-python3.11-aaaaaaaaaaaaaaaa.tar.gz", 1, DAY_S)
    mine = made(tmp_path, "environment.tar.gz", 1, DAY_S)
    store = LocalStore(tmp_path)

    old = old_packs(store, kept)
    assert [each.line(10 * DAY_S) for each in old] == [
        f"{older}  1.0 KiB  5 days ago",
        f"{newer}  2.0 KiB  24:00:00 ago",
    ]
    remove(store, old)
    assert store.list() == [mine, kept]
    assert old_packs(store, kept) == []


def test_what_only_looks_like_a_pack_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "sparktrain-python-backup").mkdir()
    pack = "sparktrain-python3.11-0123456789abcdef.tar.gz"
    made(elsewhere, pack, 1, DAY_S)
    made(tmp_path, "sparktrain-python-backup/thesis.tar.gz", 1, DAY_S)
    made(tmp_path, f"sparktrain-python-backup/{pack}", 1, DAY_S)
    made(tmp_path, "sparktrain-python3.11-mine.tar.gz", 1, DAY_S)
    (tmp_path / pack).symlink_to(elsewhere / pack)
    assert old_packs(LocalStore(tmp_path), "") == []
