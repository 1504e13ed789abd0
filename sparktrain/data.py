"""Descriptions of data for `data=` with options: `st.data.parquet("folder", columns=["x", "y"])`. Reads nothing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sparktrain.config.data_sources import (
    FileSource,
    FrameSource,
    OnError,
    StreamSource,
    TableSource,
    checked_on_error,
    checked_pad,
    is_frame,
    paths_of,
    source_of,
)
from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError

Path = str | os.PathLike[str]
FeatureType = Literal["int64", "float32", "bytes"]
Feature = FeatureType | tuple[FeatureType, int | None]

_TYPES = ("int64", "float32", "bytes")
_COMPRESSIONS = ("", "gzip", "zlib")


def parquet(
    *paths: Path | Sequence[Path],
    columns: Sequence[str] | None = None,
    pad: Mapping[str, int] | None = None,
    on_error: OnError = "raise",
) -> FileSource:
    """Parquet files: paths or URLs of files and folders, also with `*`, `?`, `[...]` and `**`.

    `columns`: the columns to read, by default all; fields of structs are `"a.b"`. Folders `name=value` beneath a path
    become columns too. `pad`: the lengths to which lists are filled with zeros. `on_error="skip"` reads all files
    before the start, and skips corrupt row groups with a warning. sparktrain shuffles each row group as a whole, and
    holds it in memory as a whole.

    Raises SpecError for arguments of other types.
    """
    return _columnar("parquet", paths, columns, pad, on_error)


def arrow(
    *paths: Path | Sequence[Path],
    columns: Sequence[str] | None = None,
    pad: Mapping[str, int] | None = None,
    on_error: OnError = "raise",
) -> FileSource:
    """Arrow IPC files and streams, and Feather version 2. Arguments: see `parquet`. Raises SpecError."""
    return _columnar("arrow", paths, columns, pad, on_error)


def tfrecord(
    *paths: Path | Sequence[Path],
    features: Mapping[str, Feature] | None = None,
    compression: Literal["gzip", "zlib"] | None = None,
    pad: Mapping[str, int] | None = None,
    on_error: OnError = "raise",
) -> FileSource:
    """TFRecord files. Paths, `pad` and `on_error`: see `parquet`.

    `features`: the columns to take from each `tf.train.Example`. A column is `"int64"`, `"float32"` or `"bytes"` for
    one value, `("float32", 784)` for a list of 784, and `("int64", None)` for lists that all have the same length, or,
    with `pad`, several lengths. Without `features`, the only column is `record`, the bytes of each record.

    `compression`: detected by default. sparktrain reads, decompresses and shuffles a compressed file as a whole, each
    time that it fetches rows of the file. Keep files below 1 GiB decompressed.

    Raises SpecError for arguments of other types.
    """
    if compression is not None and compression not in _COMPRESSIONS:
        raise SpecError(
            f"compression ({shown(compression)}) must be 'gzip', 'zlib' or None"
            f"{did_you_mean(compression, _COMPRESSIONS)}"
        )
    return FileSource(
        format="tfrecord",
        paths=_paths(paths, "tfrecord"),
        columns=None,
        pad=checked_pad(pad),
        on_error=checked_on_error(on_error),
        compression=compression or "",
        features=_features(features),
    )


def dataframe(
    df: Any, key: str | None = None, pad: Mapping[str, int] | None = None, partitions: int | None = None
) -> FrameSource:
    """A Spark DataFrame, classic or Connect, that sparktrain writes once before training.

    `key` names its content: a run does not resume with another key. `partitions`: sparktrain repartitions the DataFrame
    before it writes it. `pad`: see `parquet`. Raises SpecError for arguments of other types.
    """
    if not is_frame(df):
        raise SpecError(f"df is {described(df)}; pass a Spark DataFrame, or use table(...) for a pandas or Arrow table")
    if key is not None and not _is_key(key):
        raise SpecError(f"key is {described(key)}, a name for the content is expected: write key='clicks-2026-11-22'")
    if partitions is not None and not _is_count(partitions):
        raise SpecError(f"partitions ({shown(partitions)}) must be a number from 1, or None to keep them as they are")
    return FrameSource(df, key, checked_pad(pad), partitions)


def table(table: Any, pad: Mapping[str, int] | None = None) -> TableSource:
    """A pandas DataFrame or an Arrow table in the memory of the driver. `pad`: see `parquet`. Raises SpecError."""
    source = source_of(table, "table")
    if not isinstance(source, TableSource):
        raise SpecError(f"table is {described(table)}; pass a pandas DataFrame or a pyarrow.Table")
    return TableSource(source.table, checked_pad(pad))


def stream(df_or_rdd: Any, checkpoint: str | None = None) -> StreamSource:
    """A Spark DataFrame or RDD that Spark feeds to members while they train, and never writes. Raises SpecError.

    `checkpoint`: for Structured Streaming, a folder in storage that Spark reaches, such as HDFS. The next query, of a
    resumed run or of another epoch, continues after the last micro-batch that members have acknowledged.
    """
    is_rdd = any(base.__module__.startswith("pyspark.") and base.__name__ == "RDD" for base in type(df_or_rdd).__mro__)
    if not is_frame(df_or_rdd) and not is_rdd:
        raise SpecError(f"df_or_rdd is {described(df_or_rdd)}; pass a Spark DataFrame or an RDD")
    if checkpoint is None:
        return StreamSource(df_or_rdd)
    if not _is_text(checkpoint):
        raise SpecError(f"checkpoint ({shown(checkpoint)}) must be the path or URL of a folder, or None for no such")
    if is_rdd or not df_or_rdd.isStreaming:
        raise SpecError(
            f"checkpoint ({shown(checkpoint)}) is for a DataFrame of Structured Streaming, such as spark.readStream "
            "gives: leave it out"
        )
    return StreamSource(df_or_rdd, checkpoint.rstrip("/"))


def _columnar(
    format: Literal["parquet", "arrow"],
    paths: tuple[Path | Sequence[Path], ...],
    columns: Sequence[str] | None,
    pad: Mapping[str, int] | None,
    on_error: OnError,
) -> FileSource:
    return FileSource(
        format=format,
        paths=_paths(paths, format),
        columns=_columns(columns),
        pad=checked_pad(pad),
        on_error=checked_on_error(on_error),
    )


def _paths(paths: tuple[Any, ...], function: str) -> tuple[str, ...]:
    flat_paths = paths[0] if len(paths) == 1 and not isinstance(paths[0], str | os.PathLike) else paths
    return paths_of(flat_paths, f"paths of {function}")


def _columns(columns: object) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise SpecError(f"columns is {described(columns)}, a list of names is expected: write ['x', 'y']")
    for index, name in enumerate(columns):
        if not isinstance(name, str):
            raise SpecError(f"columns[{index}] is {described(name)}, a name is expected")
        if name in columns[:index]:
            raise SpecError(f"columns names {name!r} twice: name it once")
    return tuple(columns)


def _features(features: object) -> dict[str, str]:
    """The features as sources and manifests have them: `int64`, `float32[784]`, `int64[]`."""
    if features is None:
        return {}
    if not isinstance(features, Mapping) or not features or not all(isinstance(name, str) for name in features):
        raise SpecError(f"features is {described(features)}, types by name are expected: write {{'label': 'int64'}}")
    return {name: _feature(name, feature) for name, feature in features.items()}


def _feature(name: str, feature: object) -> str:
    kind, length = feature if isinstance(feature, tuple) and len(feature) == 2 else (feature, 0)
    lists = isinstance(feature, tuple)
    if kind not in _TYPES:
        raise SpecError(
            f"features[{name!r}] is {described(feature)}; write 'int64', 'float32' or 'bytes', or a list as "
            f"('float32', 784){did_you_mean(kind, _TYPES)}"
        )
    if not lists:
        return str(kind)
    if kind == "bytes":
        raise SpecError(f"features[{name!r}]: lists of bytes have no tensor; write 'bytes' for one value")
    if length is not None and not _is_count(length):
        raise SpecError(f"features[{name!r}] has the length {shown(length)}: write a number from 1, or None for any")
    return f"{kind}[{'' if length is None else length}]"


def _is_key(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


__all__ = [
    "FileSource",
    "FrameSource",
    "StreamSource",
    "TableSource",
    "arrow",
    "dataframe",
    "parquet",
    "stream",
    "table",
    "tfrecord",
]
