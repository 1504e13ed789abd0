"""What is specific to a store in a directory: crashes, full disks, permissions."""

import builtins
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import RunDirectoryError, StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.base import OwnsPath, Store, Usage
from sparktrain.store.local_folder import OwnPart
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.support.mounts import bound
from tests.unit.clocks import InstantClock


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


def test_a_stream_is_visible_at_once(store: LocalStore) -> None:
    stream = store.open_stream("log.txt")
    stream.write(b"step 1\n")
    assert store.read("log.txt") == b"step 1\n"
    stream.close()


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


def test_a_link_with_a_lost_answer_counts_as_made(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "NFS sent the request twice")

    monkeypatch.setattr(os, "link", link)
    assert store.put_if_absent("a", b"1") is True
    assert store.put_if_absent("a", b"2") is False


def test_a_failed_write_leaves_nothing(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EIO))
    with pytest.raises(StoreTimeoutError, match="Input/output error, for 0 s; see the kernel's log"):
        LocalStore(store.root, 0.0).put_if_absent("a", b"1")
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


def test_probe_reports_an_unknown_error(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EIO))
    with pytest.raises(RunDirectoryError, match=r"Input/output error; see the kernel's log .* or choose another"):
        store.probe()


def test_probe_detects_a_store_that_loses_data(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "read", lambda store, path: b"")
    with pytest.raises(RunDirectoryError, match="does not read back"):
        store.probe()


# ---- transient errors


class FaultyDisk:
    """A disk with system calls that fail a number of times, and the clock of the store on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = InstantClock()
        self.left = 0
        self._patch = monkeypatch
        self._code = 0

    def at(self, where: object, name: str, code: int, times: int = 3, effect: bool = False) -> None:
        """Make `name` fail `times` times; with `effect`, after it took effect: the answer is lost."""
        real, self.left, self._code = getattr(where, name), times, code

        def call(*arguments: object, **options: object) -> object:
            if self.left > 0:
                self.left -= 1
                if effect:
                    real(*arguments, **options)
                raise OSError(self._code, os.strerror(self._code))
            return real(*arguments, **options)

        self._patch.setattr(where, name, call)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


@pytest.fixture
def faulty(disk: FaultyDisk, tmp_path: Path) -> LocalStore:
    """A store with the clock of `disk`, which lists the pauses between attempts."""
    return LocalStore(tmp_path / "runs", clock=disk.clock)


def _create(store: LocalStore) -> bytes:
    new = store.create("new/b")
    new.write(b"one")
    assert new.publish().size == 3
    return store.read("new/b")


def _stream(store: LocalStore) -> bytes:
    stream = store.open_stream("log/c")
    stream.write(b"one")
    stream.close()
    return store.read("log/c")


OPERATIONS: dict[str, tuple[tuple[str, ...], Callable[[LocalStore], object], object]] = {
    "put": (("link", "fsync", "mkdir", "open"), lambda store: store.put_if_absent("x/y", b"1"), True),
    "put again": (("open",), lambda store: store.put_if_absent("a", b"1"), False),
    "read": (("builtin",), lambda store: store.read("a"), b"first"),
    "pieces": (("builtin",), lambda store: b"".join(store.pieces("a")), b"first"),
    "range": (("builtin",), lambda store: store.read_range("a", 1, 2), b"ir"),
    "stat": (("stat",), lambda store: store.stat("a").size, 5),
    "exists": (("stat",), lambda store: store.exists("a"), True),
    "list": (("scandir",), lambda store: store.list("folder"), ["folder/b"]),
    "entries": (("scandir",), lambda store: store.entries("folder"), ["b"]),
    "create": (("link", "mkdir", "builtin"), _create, b"one"),
    "stream": (("mkdir", "builtin"), _stream, b"one"),
    "delete": (("unlink",), lambda store: store.delete("a"), None),
    "unpublished": (("scandir", "open"), lambda store: store.unpublished("folder", 0.0), []),
    "survey": (("scandir", "open"), lambda store: store.survey("folder", bool).usage.files, 1),
    "delete folder": (("scandir", "open", "unlink", "rmdir"), lambda store: store.delete_folder("folder", bool), None),
}
PLACES = {"builtin": (builtins, "open"), "mkdir": (Path, "mkdir")}
CASES = [(name, call) for name, (calls, _, _) in OPERATIONS.items() for call in calls]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ESTALE])
@pytest.mark.parametrize(("operation", "call"), CASES)
def test_a_transient_error_is_retried(
    faulty: LocalStore, disk: FaultyDisk, operation: str, call: str, code: int
) -> None:
    faulty.put_if_absent("a", b"first")
    faulty.put_if_absent("folder/b", b"second")
    disk.at(*PLACES.get(call, (os, call)), code)
    _, work, expected = OPERATIONS[operation]
    assert work(faulty) == expected
    assert disk.left == 0
    assert disk.clock.pauses == [0.1, 0.2, 0.4]
    assert list(faulty.root.rglob(".tmp-*")) == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_persistent_error_ends_at_the_deadline_with_path_and_step(
    faulty: LocalStore, disk: FaultyDisk, operation: str
) -> None:
    faulty.put_if_absent("a", b"first")
    faulty.put_if_absent("folder/b", b"second")
    (call, *_), work, _ = OPERATIONS[operation]
    disk.at(*PLACES.get(call, (os, call)), errno.EDQUOT, times=10**9)
    with pytest.raises(StoreRefusedError, match=r"the disk quota is used up, for 300 s; free some space") as caught:
        work(faulty)
    assert str(faulty.root) in str(caught.value)
    assert 290 < sum(disk.clock.pauses) < 300


def test_an_error_that_retries_cannot_fix_is_raised_at_once(faulty: LocalStore, disk: FaultyDisk) -> None:
    for code, message in ((errno.EACCES, "permission denied for"), (errno.EROFS, "is mounted read-only")):
        disk.at(os, "link", code, times=1)
        with pytest.raises(StoreRefusedError, match=message):
            faulty.put_if_absent("a", b"1")
    disk.at(os, "link", errno.EFBIG, times=1)
    with pytest.raises(StoreError, match="File too large; choose another directory"):
        faulty.put_if_absent("a", b"1")
    with pytest.raises(FileNotFoundError):
        faulty.read("b")
    assert disk.clock.pauses == []


def test_put_if_absent_knows_its_own_file_after_retries(faulty: LocalStore, disk: FaultyDisk) -> None:
    disk.at(os, "link", errno.EIO, times=1, effect=True)
    assert faulty.put_if_absent("a", b"1") is True
    disk.at(os, "fsync", errno.EIO, times=2)
    assert faulty.put_if_absent("b", b"1") is True
    assert faulty.put_if_absent("a", b"2") is False
    assert faulty.read("a") == b"1"


def test_a_large_file_that_was_not_synced_is_not_published(faulty: LocalStore, disk: FaultyDisk) -> None:
    """A second sync would succeed although the data is lost."""
    new, stream = faulty.create("a"), faulty.open_stream("b")
    new.write(b"1")
    stream.write(b"1")
    disk.at(os, "fsync", errno.EIO, times=2)
    for end in (new.publish, stream.close):
        with pytest.raises(StoreError, match="Input/output error; see the kernel's log"):
            end()
    assert faulty.list() == ["b"]
    assert disk.clock.pauses == []


def test_a_log_continues_where_the_disk_was_full(faulty: LocalStore, disk: FaultyDisk) -> None:
    class Full:
        """A file that takes two bytes at a time, and none every other time."""

        def __init__(self, file: object) -> None:
            self.file, self.turns = file, 0

        def write(self, data: memoryview) -> int:
            self.turns += 1
            if self.turns % 2:
                raise OSError(errno.ENOSPC, "full")
            return self.file.write(data[:2])  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    stream = faulty.open_stream("log")
    stream._file = Full(stream._file)  # type: ignore[attr-defined]
    stream.write(b"12345")
    stream.close()
    assert faulty.read("log") == b"12345"
    assert len(disk.clock.pauses) == 3


def test_a_store_opened_elsewhere_has_the_same_timeout(tmp_path: Path) -> None:
    address = open_store(StoreAddress(str(tmp_path), timeout_s=7.0)).address
    assert address == StoreAddress(str(tmp_path), timeout_s=7.0)
    store: Store = open_store(StoreAddress(f"file://{tmp_path}", timeout_s=7.0))
    assert store.address == address


def _failing(code: int) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# ---- what a deletion must not reach


def all_owned(path: str) -> bool:
    return True


@pytest.mark.parametrize("folder", ["a", "a/link", "a/link/inner", "link"])
def test_a_deletion_follows_no_link_wherever_it_is(store: LocalStore, tmp_path: Path, folder: str) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").touch()
    store.put_if_absent("a/own", b"1")
    (store.root / "a" / "link").symlink_to(kept)
    (store.root / "link").symlink_to(kept / "inner")
    store.delete_folder(folder, all_owned)
    assert (kept / "inner" / "file").exists()
    assert (store.root / "a" / "link").is_symlink()
    assert store.exists("a/own") == (folder != "a")
    assert store.way_out("a/link/inner/file") == store.way_out("a/link/inner/file", "a") == "a/link"
    assert store.way_out("a/link", "a") == "a/link"
    assert store.way_out("a/own", "a") is store.way_out("a/none/x") is None


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_is_not_followed(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, look = tmp_path / "kept", LocalStore._own_part
    kept.mkdir()
    (kept / "file").touch()
    store.put_if_absent("a/b/file", b"1")

    def look_and_swap(self: LocalStore, path: str, owns: OwnsPath) -> OwnPart:
        part = look(self, path, owns)
        (store.root / "a" / "b").rename(tmp_path / "moved")
        (store.root / "a" / "b").symlink_to(kept)
        return part

    monkeypatch.setattr(LocalStore, "_own_part", look_and_swap)
    store.delete_folder("a", all_owned)
    assert (kept / "file").exists()
    assert (store.root / "a" / "b").is_symlink()


def test_a_deletion_crosses_no_mount_point_below_its_folder(store: LocalStore, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for folder in ("a/b/mounted", "c"):
        (store.root / folder).mkdir(parents=True)
    with bound(kept, store.root / "a" / "b" / "mounted"), bound(kept, store.root / "c"):
        store.delete_folder("a", all_owned)
        assert (kept / "file").exists()
        assert store.way_out("a/b/mounted/file", "a") == "a/b/mounted"
        assert store.survey("a", all_owned).strays == ("a/b/mounted/",)
        assert store.way_out("c/file") is None, "a run may be in a mounted folder"


def test_links_to_themselves_hide_nothing_else(store: LocalStore) -> None:
    store.put_if_absent("run/run.json", b"{}")
    (store.root / "loop").symlink_to("loop")
    (store.root / "nothing").symlink_to("nowhere")
    (store.root / "run" / "again").symlink_to(store.root)
    assert store.entries() == ["loop", "nothing", "run/"]
    assert store.entries("run") == ["again/", "run.json"]
    assert store.usage() == Usage(1, 2)


def test_a_pipe_is_no_file_and_has_no_reader_wait(store: LocalStore) -> None:
    store.root.mkdir(parents=True)
    os.mkfifo(store.root / "pipe")
    for read in (lambda: store.read("pipe"), lambda: store.read_range("pipe", 0, 1), lambda: store.stat("pipe")):
        with pytest.raises(FileNotFoundError):
            read()
