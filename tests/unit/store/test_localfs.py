"""What is particular to a directory: crashes, full disks, permissions."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.errors import RunDirectoryError
from sparktrain.store.localfs import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


def test_a_stream_is_visible_at_once(store: LocalStore) -> None:
    stream = store.open_stream("log.txt")
    stream.write(b"step 1\n")
    assert store.read("log.txt") == b"step 1\n"
    stream.close()


def test_a_process_that_dies_before_it_publishes_leaves_nothing(store: LocalStore) -> None:
    script = (
        "import os, signal, sys; from sparktrain.store.localfs import LocalStore;"
        "os.link = lambda *paths: os.kill(os.getpid(), signal.SIGKILL);"
        "LocalStore(sys.argv[1]).put_if_absent('run/results.json', b'{}')"
    )
    ended = subprocess.run([sys.executable, "-c", script, store.where()], timeout=60)
    assert ended.returncode == -9
    assert store.list() == []
    assert store.put_if_absent("run/results.json", b"{}") is True


def test_everything_is_synced_before_it_is_reported(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}").replace(str(store.root), "ROOT"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put_if_absent("a/b/c", b"")
    file = synced.pop(-2)
    assert file.startswith("ROOT/a/b/.tmp-")
    assert synced == [str(store.root.parent), "ROOT", "ROOT/a", "ROOT/a/b"]
    synced.clear()
    store.put_if_absent("a/b/c", b"")
    assert synced == ["ROOT/a/b"]


def test_a_link_whose_answer_was_lost_counts_as_made(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "NFS sent the request twice")

    monkeypatch.setattr(os, "link", link)
    assert store.put_if_absent("a", b"1") is True
    assert store.put_if_absent("a", b"2") is False


def test_a_failed_write_leaves_nothing(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        store.put_if_absent("a", b"1")
    assert list(store.root.iterdir()) == []


def test_probe_names_path_user_cause_and_next_step(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _failing(errno.ENOSPC))
    with pytest.raises(RunDirectoryError) as caught:
        store.probe()
    message = str(caught.value)
    assert message.startswith(f"run directory {store.root} cannot be written by user ")
    assert message.endswith(": the disk is full; free some space, or choose a directory on another disk")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_probe_refuses_a_file_system_without_links(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", _failing(code))
    with pytest.raises(RunDirectoryError, match="its file system has no hard links"):
        store.probe()


@pytest.mark.parametrize("beneath", ["", "/runs", "/runs/2024"])
def test_probe_refuses_a_file(tmp_path: Path, beneath: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match=f"{tmp_path}/file is a file, not a directory"):
        LocalStore(f"{tmp_path}/file{beneath}").probe()


def test_probe_names_an_error_that_it_does_not_know(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EIO))
    with pytest.raises(RunDirectoryError, match="Input/output error; choose another directory"):
        store.probe()


def test_probe_finds_a_store_that_loses_what_is_written(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"")
    with pytest.raises(RunDirectoryError, match="does not read back"):
        store.probe()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_probe_without_permission() -> None:
    script = (
        "import os; from sparktrain.store.localfs import LocalStore; from sparktrain.errors import RunDirectoryError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: LocalStore('/var/sparktrain-test/runs').probe()\n"
        "except RunDirectoryError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True)
    assert "cannot be written by user nobody: permission denied for /var/sparktrain-test; choose" in ended.stdout


def _failing(code: int) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail
