"""Writes a DataFrame as files of groups: one Spark task for each partition, each file published as a whole.

The rows that the job returns are the manifest's entries of the attempts that Spark has committed, exactly one for each
partition, under retries and speculation. Files of other attempts are in no manifest. Values without a rule fail no
task: see `refusal`.
"""

import errno
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Struct

from sparktrain.base.decoding import from_msgpack
from sparktrain.cluster.dataframes.refusal import RefusalNote
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.columns import Column
from sparktrain.datasets.group_file import MOST_BYTES, GroupWriter, regrouped
from sparktrain.datasets.manifest import DataFile
from sparktrain.datasets.spark_names import map_in_arrow
from sparktrain.datasets.values import Lengths, check_values, joined, plain_batches
from sparktrain.errors import RunDirectoryError, SparktrainError, StoreError, StoreRefusedError
from sparktrain.store.url import open_store

FILE_BYTES = 256 * 2**20
"""A file ends with the group that reaches this size: few large files cost the store least."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ENTRY = pa.schema([("entry", pa.binary())])
_RAISED: dict[str, type[SparktrainError]] = {error.__name__: error for error in (RunDirectoryError, StoreError)}
"""What tasks raise for the caller: Spark passes the text alone."""


class WrittenPart(Struct, frozen=True):
    """What one task has written."""

    partition: int
    files: tuple[DataFile, ...] = ()
    lengths: Lengths = {}
    schema: bytes = b""
    """The Arrow schema of its groups; empty without rows."""
    refused: str = ""
    """Why the rows of this partition, or of another one, cannot be trained on."""


@dataclass(frozen=True)
class WriteTask:
    """The function that each Spark task calls; what Spark pickles is this record."""

    store: StoreAddress
    folder: str
    """Where files go: a folder of the store."""
    columns: tuple[Column, ...]
    subject: str
    pad: Mapping[str, int] = field(default_factory=dict)
    file_bytes: int = FILE_BYTES
    job: str = field(default_factory=lambda: uuid4().hex)
    """Names this write: its tasks share a note."""

    @property
    def note(self) -> RefusalNote:
        """The note of the first task that refuses its rows."""
        return RefusalNote(self.store, f"{self.folder}/_refused-{self.job}")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one partition; yields one row with the encoded `WrittenPart`."""
        partition, attempt = _this_task()
        # The random part, because Spark counts attempts from 0 again when it repeats a stage.
        name = f"{partition:05d}-{attempt}-{uuid4().hex[:8]}"
        try:
            part, refused = self.note.protected(lambda: self._part(batches, partition, name))
        except OSError as error:
            raise self._unwritten(error) from error
        part = part or WrittenPart(partition, refused=refused)
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(part)], pa.binary())], schema=_ENTRY)

    def _part(self, batches: Iterator[pa.RecordBatch], partition: int, name: str) -> WrittenPart:
        """The part. Raises RunDirectoryError for a full disk: the store has waited for room as long as it may."""
        try:
            return write_part(self, batches, partition, name)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # Not an error that Spark repeats with hope: each attempt of the task waited for room as long as the store
            # may.
            raise RunDirectoryError(
                f"{self._cannot_write(error)}: free space there, write fewer rows or columns, or choose another dir="
            ) from error

    def _unwritten(self, error: OSError) -> SparktrainError:
        """The error of an executor that cannot write: this text is all that the driver sees of it."""
        passing = isinstance(error, StoreError) and not isinstance(error, StoreRefusedError)
        return (StoreError if passing else RunDirectoryError)(
            f"{self._cannot_write(error)}: dir= must be storage that all hosts reach and may write, such as hdfs:/// "
            "or an NFS path"
        )

    def _cannot_write(self, error: OSError) -> str:
        reason = " ".join(str(error).split()) or type(error).__name__
        return (
            f"{self.subject}: an executor on {socket.gethostname()} cannot write {self.folder} in {self.store.url} "
            f"({reason})"
        )


def write_frame(frame: Any, task: WriteTask) -> list[WrittenPart]:
    """Write the rows of a DataFrame by a Spark job; returns its parts in the order of the partitions. Blocks.

    Raises DataError for values that no rule covers, RunDirectoryError or StoreError where executors cannot write, and
    Spark's error when the job fails for another reason.
    """
    from pyspark.errors import PySparkException

    try:
        rows = map_in_arrow(frame, task, "entry binary").collect()
    except PySparkException as error:
        if (match := re.search(rf"({'|'.join(_RAISED)}): ({re.escape(task.subject)}.+)", str(error))) is not None:
            raise _RAISED[match[1]](match[2].strip()) from error
        error.add_note(f"{task.subject}: the Spark job that writes the DataFrame failed; nothing was trained")
        raise
    parts = [from_msgpack(bytes(row.entry), WrittenPart) for row in rows]
    parts.sort(key=lambda part: part.partition)
    task.note.raise_refusal(part.refused for part in parts)
    return parts


def write_part(task: WriteTask, batches: Iterator[pa.RecordBatch], partition: int, name: str) -> WrittenPart:
    """Write the rows of one partition. Blocks on the store. Raises DataError, OSError."""
    subject = f"{task.subject}, partition {partition}"
    store = open_store(task.store)
    files: list[DataFile] = []
    lengths: Lengths = {}
    schema: bytes = b""
    plain = (part for batch in batches for part in plain_batches(batch, task.columns, task.pad, subject, MOST_BYTES))
    groups = regrouped(plain)
    group = next(groups, None)
    while group is not None:
        # The first bad partition ends the others too: they would write for hours for a job that has failed.
        if files:
            task.note.check()
        path = f"{task.folder}/{name}-{len(files)}.arrow"
        file = store.create(path)
        try:
            writer = GroupWriter(file, group.schema)
            schema = group.schema.serialize().to_pybytes()
            while group is not None and writer.size < task.file_bytes:
                lengths = joined(lengths, check_values(group, task.columns, subject))
                writer.write(group)
                group = next(groups, None)
            writer.finish()
            file.publish()
        finally:
            file.discard()
        files.append(DataFile(path, writer.size, tuple(writer.groups), f"partition {partition}"))
    return WrittenPart(partition, tuple(files), lengths, schema)


def _this_task() -> tuple[int, int]:
    """Partition and attempt of this Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context is not None else (0, 0)
