"""Checks the data of a call against the rules of columns, and describes it for the plan of the run."""

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from sparktrain.config.data_sources import (
    FileSource,
    FrameSource,
    PushedSource,
    Source,
    StreamSource,
    TableSource,
    is_frame,
)
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column, check_alike, check_pad, described
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.group_file import MOST_BYTES, MOST_ROWS
from sparktrain.datasets.manifest import Manifest
from sparktrain.datasets.values import Lengths, check_values, joined, plain_batches, shaped
from sparktrain.driver.data.data_plan import DataPlan, check_rows, check_share
from sparktrain.errors import SessionError, UserError
from sparktrain.runs.next_commands import STREAM

logger = logging.getLogger("sparktrain")


def planned(sources: Mapping[str, Source], timeout_s: float, members: int, version: str | None) -> DataPlan:
    """See `run_data.plan_data`."""
    columns: dict[str, tuple[Column, ...]] = {}
    documents: dict[str, dict[str, Any]] = {}
    manifests: dict[str, Manifest] = {}
    for name, source in sources.items():
        subject = f"data[{name!r}]"
        match source:
            case FileSource():
                manifest = plan_files(source, name, timeout_s)
                manifests[name] = manifest
                columns[name] = manifest.columns
                documents[name] = _document(source.format, manifest.columns, rows=manifest.rows, files=manifest.digest)
            case FrameSource():
                columns[name] = _frame_columns(source, subject)
                documents[name] = _document("dataframe", columns[name], key=source.key)
                if (scanned := _in_place(source, name, columns[name], timeout_s)) is not None:
                    manifests[name] = scanned
                    columns[name] = scanned.columns
                    documents[name] = _document("parquet", scanned.columns, rows=scanned.rows, files=scanned.digest)
            case TableSource():
                columns[name] = columns_of(source.table.schema, subject)
                check_rows(source.table.num_rows, subject)
                check_pad(columns[name], source.pad, subject)
                documents[name] = _document("table", columns[name], content=_digest_of(source, columns[name], subject))
            case StreamSource():
                columns[name] = (
                    _frame_columns(source, subject) if is_frame(source.frame) else _rdd_columns(source, subject)
                )
                documents[name] = _document(STREAM, columns[name])
            case PushedSource():
                columns[name] = ()
                documents[name] = _document(STREAM, ())
        if isinstance(source, FrameSource):
            check_pad(columns[name], source.pad, subject)
        if not isinstance(source, StreamSource | PushedSource):
            documents[name] |= {"pad": dict(source.pad)} if source.pad else {}
        if isinstance(source, TableSource):
            check_share(source.table.num_rows, members, subject)
        elif name in manifests:
            check_share(manifests[name].rows, members, subject)
    if version is not None:
        documents = {name: document | {"version": version} for name, document in documents.items()}
    check_alike(columns)
    return DataPlan(sources, documents, manifests, columns)


def _frame_columns(source: FrameSource | StreamSource, subject: str) -> tuple[Column, ...]:
    """The columns of a DataFrame. Raises DataError, SessionError."""
    from sparktrain.cluster.dataframes.frame_schema import frame_columns
    from sparktrain.cluster.spark_facts import is_stopped

    if is_stopped(source.frame.sparkSession):
        raise SessionError(
            f"{subject} is a DataFrame of a session that is stopped: read it again in the session that is active"
        )
    return frame_columns(source.frame, subject)


def _rdd_columns(source: StreamSource, subject: str) -> tuple[Column, ...]:
    """None: rows are any Python objects. Raises SessionError."""
    if source.frame.ctx._jsc is None:  # PySpark has no public word for it
        raise SessionError(f"{subject} is an RDD of a SparkContext that is stopped: make it again in the active one")
    return ()


def _in_place(source: FrameSource, name: str, columns: tuple[Column, ...], timeout_s: float) -> Manifest | None:
    """The manifest of the files that a DataFrame reads as they are; None where its rows must be written."""
    from sparktrain.cluster.dataframes.plain_scan import parquet_scan

    if source.key is not None or source.partitions is not None or (scan := parquet_scan(source.frame)) is None:
        return None
    try:
        manifest = plan_files(FileSource(format="parquet", paths=scan.files, pad=source.pad), name, timeout_s)
    # What this reader cannot read in place, Spark may read, and then writes.
    except (UserError, OSError) as error:
        logger.debug("data[%r] is written, because its files cannot be read in place: %s", name, error)
        return None
    # Files that have changed since Spark listed them, and columns by a schema of the user, are for Spark to read.
    if sum(file.size for file in manifest.files) != scan.size:
        return None
    return manifest if list(described(manifest.columns).items()) == list(described(columns).items()) else None


def _document(kind: str, columns: tuple[Column, ...], **more: Any) -> dict[str, Any]:
    return {"kind": kind, "columns": described(columns)} | {
        name: value for name, value in more.items() if value is not None
    }


def _digest_of(source: TableSource, columns: tuple[Column, ...], subject: str) -> str:
    """Identifies the rows of a table by their plain form: a serialized batch lacks its dictionaries.

    Raises DataError for values that no rule covers.
    """
    digest = hashlib.sha256()
    lengths: Lengths = {}
    for batch in source.table.combine_chunks().to_batches(MOST_ROWS):
        for plain in plain_batches(batch, columns, source.pad, subject, MOST_BYTES):
            lengths = joined(lengths, check_values(plain, columns, subject))
            digest.update(memoryview(plain.serialize()))
    shaped(columns, lengths, subject)
    return digest.hexdigest()[:32]
