"""Packs the user's modules into a reproducible zip, which executors put in front of `sys.path`."""

import functools
import os
import zipfile
from collections.abc import Collection, Iterable, Mapping
from io import BytesIO
from pathlib import Path

from sparktrain.errors import FunctionError
from sparktrain.usercode.imports import NEVER_SENT, SKIPPED_FOLDERS, Sources, files_below
from sparktrain.usercode.module_aliases import is_alias, stub_files

MAX_ARCHIVE_BYTES = 20 * 2**20
MAX_ARCHIVE_FILES = 20_000
MAX_DATA_BYTES = 2**20
"""Larger files of a package are left out unless they are code: they are usually data."""

MIB = 2**20

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time stamp of every file, so that equal files give equal archives."""

_CODE_SUFFIXES = frozenset({".py", ".pyi", ".so"})


def archive_beside(
    folder: Path, sources: Sources, named: Collection[Path] = (), most_files: int = MAX_ARCHIVE_FILES
) -> bytes:
    """The modules and packages in `folder`; those that are imported or `named`, of folders without `__init__.py` and of
    files that no statement can import.

    Raises FunctionError when they are too large, naming the largest.
    """
    names = {place.name for place in named}
    importable = [path for path in sorted(folder.iterdir()) if path.stem.isidentifier() or path.name in names]
    entries = [path for path in importable if not _is_known(path.stem)]
    modules = [path for path in entries if path.suffix == ".py" and os.path.isfile(path)]
    packages = [path for path in entries if _may_be_package(path)]
    imported = {name.partition(".")[0] for name in sources.imports_of_files(modules).modules}
    used_names = imported | names
    chosen = [path for path in packages if os.path.isfile(path / "__init__.py") or path.name in used_names]
    return archive_of([*modules, *chosen], most_files)


def archive_of(places: Iterable[Path], most_files: int = MAX_ARCHIVE_FILES) -> bytes:
    """The module files and package folders in `places`, and the stubs of aliases; empty for none of them.

    Raises FunctionError when they are too large.
    """
    files = {}
    stubs = stub_files()
    for place in places:
        for path in [place] if place.is_file() else _belonging(place, most_files):
            files[path.relative_to(place.parent).as_posix()] = path
    if not files and not stubs:
        return b""
    _check_size({name: path.stat().st_size for name, path in files.items()}, list(places))
    contents = {**{name: _content(path) for name, path in files.items()}, **stubs}
    return _zipped(tuple((name, contents[name]) for name in sorted(contents)))


@functools.lru_cache(maxsize=2)
def _zipped(contents: tuple[tuple[str, bytes], ...]) -> bytes:
    """Cached, because a notebook makes many calls with the same modules, and compressing them costs most."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _is_known(name: str) -> bool:
    """Whether executors import it from this package, or have it themselves."""
    return name in NEVER_SENT or is_alias(name)


def _may_be_package(path: Path) -> bool:
    skipped = path.name in SKIPPED_FOLDERS or os.path.exists(path / "pyvenv.cfg")
    return os.path.isdir(path) and path.name.isidentifier() and not skipped


def _belonging(package: Path, most_files: int) -> list[Path]:
    files = []
    for path in files_below(package):
        if path.suffix in _CODE_SUFFIXES or path.stat().st_size <= MAX_DATA_BYTES:
            files.append(path)
        if len(files) > most_files:
            raise FunctionError(
                f"{package}: more than {most_files:,} files, too many to send to executors; "
                "move the data out of the package"
            )
    return files


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FunctionError(
            f"{path}: cannot be read ({error.strerror}), so it cannot be sent to executors; move it or make it readable"
        ) from error


def _check_size(sizes: Mapping[str, int], places: list[Path]) -> None:
    total = sum(sizes.values())
    if total <= MAX_ARCHIVE_BYTES:
        return
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:3]
    listed = ", ".join(f"{name} ({sizes[name] / MIB:.1f} MiB)" for name in largest)
    folders = ", ".join(sorted({str(place.parent) for place in places}))
    raise FunctionError(
        f"the modules in {folders} have {total / MIB:.1f} MiB in {len(sizes)} files, {MAX_ARCHIVE_BYTES // MIB} MiB is "
        f"the most that is sent to executors; the largest are {listed}: move data and unrelated code elsewhere, or "
        "install the package on driver and executors"
    )
