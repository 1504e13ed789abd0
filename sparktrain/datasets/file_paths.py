"""Paths and URLs of the user's files: the store that holds them, the files that they name, columns of their folders."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.config.param_values import did_you_mean
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.datasets.folder_values import OF_FOLDERS, type_of, value_of
from sparktrain.errors import DataError
from sparktrain.store.base import Store, path_problem

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")
# The folder into which Spark and Hive write rows with a null. An empty value is an error in Spark, too.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SHOWN_NAMES = 5


class Pattern(Struct, frozen=True):
    """A path of the user in the store that holds all of them."""

    path: str
    parts: tuple[str, ...]
    """Relative to the root of the store."""
    fixed: int
    """How many of the parts, from the first, name a folder literally."""

    @property
    def named(self) -> int:
        """How many of the parts name a folder or file that the user chose: columns come from folders beneath it."""
        return self.fixed if _has_wildcard(self.parts) else len(self.parts)


class NamedFile(Struct, frozen=True):
    """A file that a path of the user names."""

    path: str
    """In the store."""
    values: tuple[tuple[str, str], ...] = ()
    """Name and escaped value of each folder `name=value` beneath the folder that the user names."""


def located(paths: Sequence[str], subject: str) -> tuple[str, tuple[Pattern, ...]]:
    """The root of the store that holds all these paths, as a path or URL, and the paths in it.

    Raises DataError for several stores, and for paths that no store takes.
    """
    places = [(path, *_place(path, subject)) for path in paths]
    bases = {base: path for path, base, _ in places}
    if len(bases) > 1:
        (_, place), (_, peer_place) = list(bases.items())[:2]
        raise DataError(
            f"{subject} has paths of different stores, {place!r} and {peer_place!r}: a dataset has one; copy the files "
            "into one store, or pass two datasets"
        )
    fixed = [_fixed(parts) for _, _, parts in places]
    folders = [parts[:count] for (_, _, parts), count in zip(places, fixed, strict=True)]
    common = 0
    while all(len(folder) > common and folder[common] == folders[0][common] for folder in folders):
        common += 1
    base = places[0][1]
    first = folders[0]
    patterns = [
        Pattern(path, parts[common:], count - common) for (path, _, parts), count in zip(places, fixed, strict=True)
    ]
    return base + "/".join(first[:common]), tuple(patterns)


def named_files(store: Store, patterns: Sequence[Pattern], subject: str) -> list[NamedFile]:
    """All files that the paths name, sorted by path, each once. Blocks on the store.

    A folder stands for all files beneath it, at any depth, except for names and folders that start with `.` or `_`.
    Raises DataError for a path without files, with what is there.
    """
    files: dict[str, NamedFile] = {}
    for pattern in patterns:
        paths = list(_expanded(store, pattern))
        if not paths:
            raise DataError(_nothing(store, pattern, subject))
        for path in paths:
            folders = path.split("/")[pattern.named : -1]
            values = tuple(_value(folder) for folder in folders if _is_value(folder))
            files.setdefault(path, NamedFile(path, values))
    return [files[path] for path in sorted(files)]


def folder_columns(
    files: Sequence[NamedFile], subject: str, selected: Sequence[str] | None = None
) -> tuple[Column, ...]:
    """Those of the `selected` columns that folders `name=value` give, with the types of Spark; None selects all.

    Raises DataError when files have different ones, for values that are null, and for types that no tensor holds, in
    the words for a table.
    """
    first = files[0]
    names = [name for name, _ in first.values]
    for file in files:
        if sorted(name for name, _ in file.values) != sorted(names):
            raise DataError(
                f"{subject}: {file.path} and {first.path} are in folders of different columns, "
                f"{_listed(file)} and {_listed(first)}: pass one dataset for each"
            )
    chosen_names = [name for name in names if selected is None or name in selected]
    for file in files:
        if empty := [name for name, value in file.values if value in ("", _NO_VALUE) and name in chosen_names]:
            raise DataError(
                f"{subject}: column {empty[0]!r} is null in {file.path}: a tensor has no nulls; leave this folder out"
            )
    schema = pa.schema([(name, type_of(dict(file.values)[name] for file in files)) for name in chosen_names])
    try:
        columns = columns_of(schema, subject) if chosen_names else ()
    except DataError as error:
        folders = first.path.rpartition("/")[0]
        raise DataError(f"{error}\nthey come from folders such as {folders}: leave them out with columns=") from None
    return tuple(replace(column, source=OF_FOLDERS) for column in columns)


def is_of_folders(column: Column) -> bool:
    """Whether the names of folders give the values of this column."""
    return column.source == OF_FOLDERS


def folder_array(path: str, column: Column, rows: int) -> pa.Array:
    """The value of the column in the folders of `path`, for so many rows."""
    value = dict(_value(folder) for folder in path.split("/")[:-1] if _is_value(folder))[column.name]
    kind = pa.from_numpy_dtype(column.dtype) if column.kind is ColumnKind.NUMBER else pa.string()
    return pa.repeat(pa.scalar(value_of(value, column), kind), rows)


def _place(path: str, subject: str) -> tuple[str, tuple[str, ...]]:
    """The store of a path and its parts there."""
    url = _URL.match(path)
    if url is None or url[1].lower() == "file":
        local = unquote(urlsplit(path).path) if path[:5].lower() == "file:" else os.path.expanduser(path)
        base = "/"
        store_path = os.path.abspath(local)
    else:
        base = f"{url[1].lower()}://{url[2]}/"
        store_path = url[3]
    parts = tuple(part for part in store_path.split("/") if part)
    if parts and (problem := path_problem("/".join(parts))):
        raise DataError(f"{subject}: path {path!r} {problem}: write the path that you mean")
    return base, parts


def _has_wildcard(parts: Sequence[str]) -> bool:
    return any(_MAGIC.search(part) for part in parts)


def _fixed(parts: tuple[str, ...]) -> int:
    """How many parts name a folder: those before the first with `*`, `?` or `[`, and never the last."""
    for index, part in enumerate(parts):
        if _MAGIC.search(part):
            return index
    return max(0, len(parts) - 1)


def _expanded(store: Store, pattern: Pattern) -> Iterator[str]:
    folder = pattern.parts[: pattern.fixed]
    tail = pattern.parts[pattern.fixed :]
    return _walk(store, "/".join(folder), tail)


def _walk(store: Store, folder: str, parts: tuple[str, ...]) -> Iterator[str]:
    """The files beneath `folder` that the pattern in `parts` names."""
    if not parts:
        yield from _beneath(store, folder)
        return
    head = parts[0]
    tail = parts[1:]
    if head == "**":
        for path in _beneath(store, folder):
            if _matches(tuple(path.removeprefix(f"{folder}/").split("/")), parts):
                yield path
    elif not _MAGIC.search(head):
        path = _joined(folder, head)
        if not tail and store.exists(path):
            yield path
        else:
            yield from _walk(store, path, tail)
    else:
        for name in store.entries(folder):
            plain = name.rstrip("/")
            if not fnmatchcase(plain, head) or (_hidden(plain) and head[0] != plain[0]):
                continue
            if name.endswith("/"):
                yield from _walk(store, _joined(folder, plain), tail)
            elif not tail:
                yield _joined(folder, plain)


def _matches(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether a path matches a pattern in which `**` stands for any number of folders."""
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[start:], patterns[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def _beneath(store: Store, folder: str) -> Iterator[str]:
    start = len(folder) + 1 if folder else 0
    for path in store.list(folder):
        if not any(_hidden(part) for part in path[start:].split("/")):
            yield path


def _hidden(name: str) -> bool:
    """Whether a name is one that Spark and Hadoop give to what is no data."""
    # `hdfs dfs -put` writes to a name with this ending, and renames it at the end.
    return (name[:1] in "._" and "=" not in name) or name.endswith("._COPYING_")


def _is_value(folder: str) -> bool:
    return folder.partition("=")[0] not in ("", folder)


def _value(folder: str) -> tuple[str, str]:
    """Name and escaped value of a folder."""
    name, _, value = folder.partition("=")
    return unquote(name), value


def _listed(file: NamedFile) -> str:
    return ", ".join(repr(name) for name, _ in file.values) or "none"


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _nothing(store: Store, pattern: Pattern, subject: str) -> str:
    """The message for a path without files: what is in the folder that it names literally."""
    folder = "/".join(pattern.parts[: pattern.fixed])
    names = list(store.entries(folder))
    listing = ", ".join(names[:_SHOWN_NAMES]) + (f" and {len(names) - _SHOWN_NAMES} more" * (len(names) > _SHOWN_NAMES))
    missing_name = pattern.parts[pattern.fixed] if len(pattern.parts) > pattern.fixed else ""
    hint = did_you_mean(missing_name, [name.rstrip("/") for name in names]) if not _MAGIC.search(missing_name) else ""
    held = f"holds {listing}" if names else "is empty, or does not exist"
    return (
        f"{subject}: no files for {pattern.path!r}: folder {store.where(folder)} {held}; names that start with "
        f"'.' or '_' do not count{hint}"
    )
