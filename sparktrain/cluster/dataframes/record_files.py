"""DataFrames as folders of TFRecord files with `tf.train.Example`, and back, by Spark tasks without TensorFlow.

A task publishes its file by put-if-absent: of several attempts for one partition, the first counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sparktrain.cluster.dataframes.example_columns import ExampleColumn, columns_of_examples, columns_of_types
from sparktrain.cluster.dataframes.frame_schema import arrow_schema
from sparktrain.cluster.dataframes.refusal import RefusalNote
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.example_encoder import encoded_examples, kind_of
from sparktrain.datasets.file_formats import CorruptFileError
from sparktrain.datasets.file_paths import located, named_files
from sparktrain.datasets.spark_names import map_in_arrow
from sparktrain.datasets.tf_examples import features_of
from sparktrain.datasets.tfrecord import TfRecordWriter, records_of
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.url import open_store

SAMPLED_FILES = 32
SAMPLED_RECORDS = 100
"""The columns come from so many records of each of so many files."""
ROWS = 1024
"""Rows of a batch that a reading task gives."""
SUCCESS = "_SUCCESS"
"""The file that marks a folder as complete, as Hadoop's committers write it."""


@dataclass(frozen=True)
class SaveTask:
    """What each task of `save_records` does; Spark pickles it."""

    store: StoreAddress
    folder: str
    subject: str
    job: str = field(default_factory=lambda: uuid4().hex)
    """Names this call: its tasks share a note."""

    @property
    def note(self) -> RefusalNote:
        """The note of the first task that refuses its rows."""
        return RefusalNote(self.store, f"{self.folder}/_refused-{self.job}")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition into one file; yields one row with its path and number of records.

        The row has why rows are refused, where they are.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        filled = (batch for batch in batches if batch.num_rows)
        saved, refused = self.note.protected(lambda: save_partition(self, filled, partition))
        path, rows = saved or ("", 0)
        yield pa.RecordBatch.from_pydict(
            {"path": pa.array([path]), "records": pa.array([rows], pa.int64()), "refused": pa.array([refused])}
        )


def save_records(frame: Any, path: str) -> int:
    """Write a DataFrame as TFRecord files into the new folder `path`, a file for each partition with rows; its rows.

    Starts a Spark job, and blocks until it has ended. Raises DataError for columns without a kind of feature, for nulls
    and for a folder that has files, and Spark's error when the job fails otherwise.
    """
    subject = f"TFRecord files in {path}"
    wrong = [f"{field.name!r} ({field.type})" for field in arrow_schema(frame, subject) if kind_of(field.type) is None]
    if wrong:
        raise DataError(
            f"{subject}: columns {', '.join(wrong)} are no features of tf.train.Example, which has numbers, strings, "
            f"bytes and lists of numbers: convert them or leave them out; the schema is {frame.schema.simpleString()}"
        )
    root, (pattern,) = located([path], subject)
    store = open_store(StoreAddress(root))
    folder = "/".join(pattern.parts)
    if entries := list(store.entries(folder)):
        raise DataError(f"{subject}: the folder has {entries[0]!r}: choose a new one, or delete it first")
    task = SaveTask(store.address, folder, subject)
    written = map_in_arrow(frame, task, "path string, records long, refused string").collect()
    task.note.raise_refusal(row.refused for row in written)
    for part in written:
        if part.path and not store.exists(part.path):
            raise DataError(
                f"{subject}: a task has written {store.where(part.path)}, and this driver does not see it: write to "
                "storage that all hosts share"
            )
    # Last: readers take a folder with this file for complete.
    store.put_if_absent(f"{folder}/{SUCCESS}", b"")
    return sum(row.records for row in written)


def save_partition(task: SaveTask, batches: Iterator[pa.RecordBatch], partition: int) -> tuple[str, int]:
    """Path and number of records of a partition's file; no path without rows. Blocks on the store."""
    first = next(batches, None)
    if first is None:
        return "", 0
    store = open_store(task.store)
    path = f"{task.folder}/part-r-{partition:05d}"
    rows = 0
    with suppress(FileExistsError):  # another attempt has published the same rows
        file = store.create(path)
        try:
            writer = TfRecordWriter(file)
            for batch in chain([first], batches):
                writer.write(encoded_examples(batch, f"{task.subject}, partition {partition}"))
                rows += batch.num_rows
            writer.finish()
            file.publish()
            return path, rows
        finally:
            file.discard()
    return path, sum(len(records) for records in records_of(store, path))


@dataclass(frozen=True)
class LoadTask:
    """What each task of `load_records` does: it reads the file with the number that it gets."""

    store: StoreAddress
    paths: tuple[str, ...]
    columns: tuple[ExampleColumn, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files with these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.rows(self.paths[number])

    def rows(self, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in batches. Blocks on the store. Raises DataError with file and record."""
        store = open_store(self.store)
        examples = _examples(store, path)
        number = 0
        while rows := list(islice(examples, ROWS)):
            try:
                arrays = [pa.array([column.value(row) for row in rows], column.arrow_type) for column in self.columns]
            except DataError as error:
                raise DataError(f"{store.where(path)}, records {number} to {number + len(rows) - 1}: {error}") from None
            number += len(rows)
            yield pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])


def load_records(session: Any, path: str, binary: Sequence[str] = (), types: Mapping[str, str] | None = None) -> Any:
    """A DataFrame of the records with `tf.train.Example` in a folder, a file, or files that wildcards name.

    `types` are the columns and their types in Spark's DDL. Without them the columns, sorted by name, come from a sample
    of the records: `bigint`, `double`, and `string`, or `binary` for features in `binary`; arrays of them where a
    record has several values. A value is null where a record has none. Blocks on the store, and starts no job. Raises
    DataError for a path without records, and for records that do not fit together.
    """
    subject = f"TFRecord files in {path}"
    root, patterns = located([path], subject)
    store = open_store(StoreAddress(root))
    paths = tuple(file.path for file in named_files(store, patterns, subject))
    columns = columns_of_types(types, subject) if types else _inferred(store, paths, binary, subject)
    schema = ", ".join(f"`{column.name.replace('`', '``')}` {column.spark_type}" for column in columns)
    numbers = session.range(0, len(paths), 1, len(paths))
    return numbers.mapInArrow(LoadTask(store.address, paths, columns), schema)


def _inferred(store: Store, paths: Sequence[str], binary: Sequence[str], subject: str) -> tuple[ExampleColumn, ...]:
    """The columns of a sample of the records."""
    step = -(-len(paths) // SAMPLED_FILES)
    sample = {store.where(path): list(islice(_examples(store, path), SAMPLED_RECORDS)) for path in paths[::step]}
    return columns_of_examples(sample, binary, subject)


def _examples(store: Store, path: str) -> Iterator[Mapping[str, tuple[str, Sequence[Any]]]]:
    """The features of each record of a file. Raises DataError where the file is corrupt."""
    number = 0
    try:
        for records in records_of(store, path):
            for record in records:
                yield features_of(record)
                number += 1
    except CorruptFileError as error:
        raise DataError(
            f"{store.where(path)}, record {number}: {error}; put a copy back, or write the file again"
        ) from error
