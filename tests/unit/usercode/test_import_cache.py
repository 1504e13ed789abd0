"""What sources import is kept on the local disk: by content, whatever becomes of the disk, the file and processes."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparktrain.usercode import import_cache, source_imports
from sparktrain.usercode.import_cache import MOST_FILES, SMALL_BYTES, ImportCache, default_file
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.source_imports import Imports

FILLED = b"\n#" + b"-" * SMALL_BYTES
"""Makes a source large enough for its imports to be written."""


def source(*modules: str) -> bytes:
    """A source that imports `modules` and is worth an entry."""
    return "".join(f"import {each}\n" for each in modules).encode() + FILLED


def stored(file: Path, *sources: bytes) -> ImportCache:
    """A cache that has written the imports of `sources`."""
    cache = ImportCache(file)
    for each in sources:
        cache.imports_of(each)
    cache.save()
    return cache


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "cpython-311-ffffffffffffffff.imports"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sources that are parsed."""
    found: list[bytes] = []

    def parse(source: bytes) -> Imports:
        found.append(source)
        return source_imports.imports_of_source(source)

    monkeypatch.setattr(import_cache, "imports_of_source", parse)
    return found


def test_another_process_parses_nothing_again(file: Path, parsed: list[bytes]) -> None:
    one, other = source("numpy", "scipy.stats"), b"import os\nx = os.environ['KERAS_BACKEND']\n"
    stored(file, one, other)
    assert parsed == [one, other]
    cache = ImportCache(file)
    assert cache.imports_of(one) == Imports({"numpy", "scipy.stats"})
    assert cache.imports_of(other) == Imports({"os", "os.environ"}, {"KERAS_BACKEND"})
    assert parsed == [one, other]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_changes_within_a_second_and_keeps_its_size_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time and size of a file do not count, only its content."""
    monkeypatch.setattr(import_cache, "shared", lambda: None)
    monkeypatch.setattr(
        "sparktrain.usercode.imports.shared", functools.cache(lambda: ImportCache(tmp_path / "c.imports"))
    )
    path = tmp_path / "mine.py"
    path.write_bytes(source("numpy"))
    kept = path.stat()
    assert Sources().imports_of_files([path]).modules == {"numpy"}
    assert (tmp_path / "c.imports").exists(), "a call writes what it has parsed"
    path.write_bytes(source("scipy"))
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert path.stat().st_size == kept.st_size
    assert Sources().imports_of_files([path]).modules == {"scipy"}


def test_small_sources_are_not_written(file: Path) -> None:
    stored(file, b"import numpy\n")
    assert not file.exists()


def test_a_second_save_writes_nothing(file: Path) -> None:
    cache = stored(file, source("numpy"))
    file.unlink()
    cache.imports_of(source("numpy"))
    cache.save()
    assert not file.exists()


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize(
    "spoil", [_cut, _flipped, lambda _: b"", lambda _: b"\xc1" * 99], ids=["cut", "bit", "empty", "other"]
)
def test_a_corrupt_file_is_as_none_and_is_replaced(
    file: Path, parsed: list[bytes], spoil: Callable[[bytes], bytes]
) -> None:
    stored(file, source("numpy"))
    file.write_bytes(spoil(file.read_bytes()))
    assert stored(file, source("numpy")).imports_of(source("numpy")).modules == {"numpy"}
    assert len(parsed) == 2
    assert ImportCache(file).imports_of(source("numpy")).modules == {"numpy"}
    assert len(parsed) == 2


def test_a_file_of_another_user_does_not_count(
    file: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(file, source("numpy"))
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    assert ImportCache(file).imports_of(source("numpy")).modules == {"numpy"}
    assert len(parsed) == 2


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_disk_costs_the_cache_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    stored(file, source("numpy"))
    before = file.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(os, "replace", refuse)
    cache = stored(file, source("scipy"))
    assert cache.imports_of(source("scipy")).modules == {"scipy"}
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name], "a draft is left"


def test_a_folder_that_cannot_be_made_costs_the_cache_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = stored(tmp_path / "file" / "cache.imports", source("numpy"))
    assert cache.imports_of(source("numpy")).modules == {"numpy"}


@pytest.mark.parametrize("home", ["relative", "unknown", "no source"])
def test_without_a_home_or_a_source_there_is_no_file(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home == "relative":
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    elif home == "unknown":
        monkeypatch.setattr(Path, "home", unknown)
    else:
        monkeypatch.setattr(source_imports, "__file__", "/no/such/archive.zip/source_imports.py")
    assert default_file() is None


def test_without_a_file_results_stay_in_the_process(parsed: list[bytes]) -> None:
    cache = ImportCache(None)
    for _ in range(2):
        assert cache.imports_of(source("numpy")).modules == {"numpy"}
        cache.save()
    assert len(parsed) == 1


def test_threads_share_one_cache(file: Path) -> None:
    cache = ImportCache(file)
    sources = [source(f"m{number}") for number in range(8)]

    def read(number: int) -> set[str]:
        found = cache.imports_of(sources[number % 8]).modules
        cache.save()
        return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(read, range(40)))
    assert found == [{f"m{number % 8}"} for number in range(40)]
    assert len(import_cache._load(file)) == 8


def test_what_another_process_has_written_stays(file: Path, parsed: list[bytes]) -> None:
    late = ImportCache(file)
    late.imports_of(source("late"))
    stored(file, source("early"))
    late.save()
    count = len(parsed)
    ImportCache(file).imports_of(source("early"))
    ImportCache(file).imports_of(source("late"))
    assert len(parsed) == count


def test_the_file_has_a_limit_and_keeps_what_was_used_last(
    file: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_cache, "LIMIT_BYTES", 800_000)

    def named(number: int) -> bytes:
        return source(*(f"module_{number}_{each:0100}" for each in range(400)))

    for first in range(0, 24, 6):
        stored(file, *map(named, range(first, first + 6)))
    assert file.stat().st_size <= 810_000
    count = len(parsed)
    for number in range(18, 24):
        ImportCache(file).imports_of(named(number))
    assert len(parsed) == count


@pytest.mark.usefixtures("wrong_clock")
def test_files_of_other_versions_and_left_drafts_go(file: Path) -> None:
    file.parent.mkdir()
    for number in range(6):
        old = file.with_name(f"cpython-311-{number:016x}.imports")
        old.touch()
        os.utime(old, (number, number))
    for name in ("tmp_left_of.new", "notes.new", "notes.imports"):
        file.with_name(name).touch()
        os.utime(file.with_name(name), (0, 0))
    file.with_name("tmp_young_1.new").touch()
    stored(file, source("numpy"))
    left = sorted(path.name for path in file.parent.iterdir())
    newest = [f"cpython-311-{number:016x}.imports" for number in (3, 4, 5)]
    assert len(newest) + 1 == MOST_FILES
    assert left == sorted([*newest, file.name, "notes.new", "notes.imports", "tmp_young_1.new"])


@pytest.mark.parametrize("changed", ["python", "sparktrain"])
def test_an_upgrade_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = default_file()
    assert before == default_file()
    assert before is not None
    assert before.is_relative_to(tmp_path / "sparktrain" / "imports")
    if changed == "python":
        monkeypatch.setattr(sys, "version", "3.99.0 (a later one)")
    else:
        other = tmp_path / "source_imports.py"
        other.write_text(Path(source_imports.__file__).read_text() + "# another analysis\n")
        monkeypatch.setattr(source_imports, "__file__", str(other))
    assert default_file() != before
