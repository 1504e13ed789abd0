"""What a user passes as `data=`: a description of rows that exist somewhere. Pure: nothing is read here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError

OnError = Literal["raise", "skip"]

SUFFIXES: dict[str, Literal["parquet", "arrow", "tfrecord"]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
_OTHER_SUFFIXES = frozenset(
    (".csv", ".tsv", ".txt", ".json", ".jsonl", ".orc", ".avro", ".xml", ".xlsx", ".npy", ".npz", ".h5", ".hdf5")
)
_FRAME_MODULES = ("pyspark.sql.dataframe", "pyspark.sql.classic.dataframe", "pyspark.sql.connect.dataframe")


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Files that exist: `sparktrain.data.parquet`, `arrow` and `tfrecord` make it."""

    format: Literal["parquet", "arrow", "tfrecord"]
    paths: tuple[str, ...]
    """Paths or URLs of files or folders, perhaps with `*`, `?` and `[...]`."""
    columns: tuple[str, ...] | None = None
    """None: all."""
    pad: Mapping[str, int] = field(default_factory=dict)
    on_error: OnError = "raise"
    compression: str = ""
    features: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSource:
    """A table in the memory of the driver."""

    table: Any
    """A `pyarrow.Table`."""
    pad: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FrameSource:
    """A Spark DataFrame, classic or Connect. One that only reads Parquet is not written, but for key and partitions."""

    frame: Any
    key: str | None = None
    """The user's name for its content: a run is not resumed with another one."""
    pad: Mapping[str, int] = field(default_factory=dict)
    partitions: int | None = None
    """Repartition it before it is written; None: as it is."""


@dataclass(frozen=True)
class StreamSource:
    """A Spark DataFrame or RDD that is fed while training runs, and never written."""

    frame: Any
    checkpoint: str | None = None
    """Where Spark keeps the last acknowledged micro-batch of Structured Streaming; None: in no place that lasts."""


@dataclass(frozen=True)
class PushedSource:
    """Rows that calls in the driver send while training runs; `sparktrain.tensorflowonspark` makes it."""

    feed: Any
    """A `driver.feeds.pushed_feed.PushedFeed`."""


Source = FileSource | TableSource | FrameSource | StreamSource | PushedSource


def sources_of(value: object, subject: str = "data") -> dict[str, Source]:
    """The sources in the value of `data=`, by name. Raises SpecError."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{subject} is {described(value)}, a dict is expected: write {{'train': ...}}")
    return {_name(name, subject): source_of(entry, f"{subject}[{name!r}]") for name, entry in value.items()}


def named_paths(entries: Sequence[str], subject: str) -> dict[str, list[str]]:
    """The paths of entries `NAME=PATH`, by name. Raises SpecError."""
    paths: dict[str, list[str]] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        if not equals or not name or not path:
            raise SpecError(f"{subject} ({shown(entry)}) must be NAME=PATH, such as train=hdfs:///x/*.parquet")
        paths.setdefault(name, []).append(path)
    return paths


def source_of(value: Any, subject: str) -> Source:
    """The source that a value stands for. Raises SpecError."""
    if isinstance(value, FileSource | TableSource | FrameSource | StreamSource | PushedSource):
        return value
    if is_frame(value):
        return FrameSource(value)
    if (table := _table(value, subject)) is not None:
        return TableSource(table)
    if isinstance(value, str | os.PathLike):
        return _files([value], subject)
    if isinstance(value, Sequence) and value and all(isinstance(path, str | os.PathLike) for path in value):
        return _files(value, subject)
    raise SpecError(
        f"{subject} is {described(value)}; pass a Spark DataFrame, a pandas or Arrow table, a path or a list of paths, "
        "or what sparktrain.data.parquet(...) and its siblings return"
    )


def is_frame(value: object) -> bool:
    """Whether `value` is a Spark DataFrame, without importing PySpark."""
    return any(base.__module__ in _FRAME_MODULES and base.__name__ == "DataFrame" for base in type(value).__mro__)


def format_of(paths: Sequence[str], subject: str) -> Literal["parquet", "arrow", "tfrecord"]:
    """The format by the names of files; Parquet for folders and names without a known suffix.

    Raises SpecError for several formats, and for names of files in formats that have no columns of tensors.
    """
    if misfit := next((path for path in paths if _suffix(path) in _OTHER_SUFFIXES), None):
        raise SpecError(
            f"{subject} has {misfit!r}, and sparktrain reads Parquet, Arrow and TFRecord files: read it with Spark or "
            "pandas, and pass the DataFrame"
        )
    formats = {SUFFIXES.get(_suffix(path), "parquet") for path in paths}
    if len(formats) > 1:
        raise SpecError(
            f"{subject} has files of several formats, {' and '.join(sorted(formats))}: pass one dataset for each"
        )
    return formats.pop()


def checked_pad(pad: object, subject: str = "pad") -> dict[str, int]:
    """`pad` when it maps names to lengths. Raises SpecError."""
    if pad is None:
        return {}
    if not isinstance(pad, Mapping) or not all(
        isinstance(name, str) and isinstance(length, int) and not isinstance(length, bool) and length > 0
        for name, length in pad.items()
    ):
        raise SpecError(f"{subject} is {described(pad)}, lengths by column are expected: write {{'tokens': 128}}")
    return dict(pad)


def checked_on_error(value: object, subject: str = "on_error") -> OnError:
    """`value` when it is one of the two ways. Raises SpecError."""
    if value not in ("raise", "skip"):
        raise SpecError(f"{subject} ({shown(value)}) must be 'raise' or 'skip'{did_you_mean(value, ('raise', 'skip'))}")
    return value


def paths_of(value: object, subject: str) -> tuple[str, ...]:
    """One path or several, as texts. Raises SpecError."""
    paths = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(paths, Sequence) or not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise SpecError(
            f"{subject} is {described(value)}, a path or a list of paths is expected; write 'folder/*.parquet'"
        )
    texts = tuple(os.fspath(path) for path in paths)
    if not all(text.strip() for text in texts):
        raise SpecError(f"{subject} is {described(value)}, and an empty path names no file: write 'folder/*.parquet'")
    return texts


def _files(value: Sequence[Any], subject: str) -> FileSource:
    paths = paths_of(value, subject)
    return FileSource(format=format_of(paths, subject), paths=paths)


def _suffix(path: str) -> str:
    stem = path.rstrip("/").removesuffix(".gz")
    return os.path.splitext(stem)[1].lower()


def _table(value: Any, subject: str) -> Any:
    """`value` as an Arrow table; None when it is none. Raises SpecError for values that Arrow cannot have."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame":
        import pyarrow as pa

        try:
            return pa.Table.from_pandas(value, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            why = ": ".join(str(part) for part in reversed(error.args))
            raise SpecError(
                f"{subject} is a pandas DataFrame that Arrow cannot hold ({why}): give each column a name of its own, "
                "and values of one type (df.astype): numbers, texts, bytes or lists of numbers"
            ) from error
    if kind.__module__.startswith("pyarrow.") and kind.__name__ in ("Table", "RecordBatch"):
        import pyarrow as pa

        return value if kind.__name__ == "Table" else pa.Table.from_batches([value])
    return None


def _name(name: object, subject: str) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise SpecError(
            f"{subject}: {shown(name)} cannot name a dataset: use letters, digits and underscores, such as 'train'"
        )
    return name
