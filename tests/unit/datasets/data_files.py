"""Files of data that tests write into a store, and read back by a plan."""

import io
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparktrain import data
from sparktrain.config.data_sources import FileSource
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.manifest import Manifest
from sparktrain.datasets.tfrecord import framed
from sparktrain.store.base import Store
from sparktrain.store.url import open_store

Format = Literal["parquet", "arrow", "stream", "tfrecord"]
ROWS, GROUP = 100, 30
"""Of the file that `content` makes."""
MAKERS = {"parquet": data.parquet, "arrow": data.arrow, "stream": data.arrow, "tfrecord": data.tfrecord}


def numbers(rows: int = ROWS, start: int = 0) -> pa.Table:
    """A table with the columns id, x and label."""
    ids = np.arange(start, start + rows)
    images = pa.array([bytes([each % 256] * 5) for each in ids], pa.binary())
    return pa.table({"id": ids, "x": ids.astype(np.float32) / 2, "image": images})


def parquet_bytes(table: pa.Table, group: int = GROUP, **options: Any) -> bytes:
    """The table as a Parquet file, with checksums of pages as Spark writes them."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group, write_page_checksum=True, **options)
    return sink.getvalue()


def arrow_bytes(table: pa.Table, group: int = GROUP, stream: bool = False, compression: str | None = None) -> bytes:
    """The table as an Arrow IPC file or stream."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=group)
    return sink.getvalue()


def content(format: Format, table: pa.Table, group: int = GROUP) -> bytes:
    """The table as a file of a format; of TFRecord files the column `image`."""
    if format == "parquet":
        return parquet_bytes(table, group)
    if format == "tfrecord":
        return b"".join(framed(each) for each in table["image"].to_pylist())
    return arrow_bytes(table, group, stream=format == "stream")


def put(store: Store, path: str, content: bytes) -> str:
    """Write a file; its full name."""
    assert store.put_if_absent(path, content)
    return store.where(path)


def replace_file(store: Store, path: str, content: bytes) -> None:
    """Write other content in the place of a file."""
    store.delete(path)
    put(store, path, content)


def fetched(manifest: Manifest) -> pa.Table:
    """All rows of a dataset, in order."""
    fetcher = GroupFetcher(manifest, open_store(manifest.root))
    return pa.Table.from_batches(
        [
            fetcher.fetch(number, group)
            for number, file in enumerate(manifest.files)
            for group in range(len(file.groups))
        ]
    )


def planned(source: FileSource) -> tuple[Manifest, pa.Table]:
    """The plan of a source, and all its rows."""
    manifest = plan_files(source, "train")
    return manifest, fetched(manifest)


def flipped(content: bytes, place: int) -> bytes:
    """`content` with one bit wrong."""
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def shapes(manifest: Manifest) -> dict[str, tuple[int, ...] | None]:
    """The shape of each column."""
    return {each.name: each.shape for each in manifest.columns}


def rows_of(table: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows for comparison, with these columns."""
    return list(table.select(names).to_pylist())
