"""A stream of `data=` as a training function sees it: rows that Spark sends while the member trains."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparktrain.base.optional_packages import require_tensorflow
from sparktrain.datasets.columns import Column, ColumnKind, chosen
from sparktrain.datasets.values import check_values, shaped, to_numpy
from sparktrain.errors import DataError, SpecError, StreamError
from sparktrain.training.data import assignment
from sparktrain.training.data.batch_columns import Names, Selection
from sparktrain.training.data.stream.feed_reader import Agree, FeedReader
from sparktrain.training.frameworks.imported import feeds_of


class StreamData:
    """The rows of one stream for one member. One thread uses it, and each method that reads starts the next epoch.

    Partition p of the DataFrame feeds member p modulo the size of the gang. Each row comes once in an epoch, as long as
    the gang is not restarted: then the epoch starts again.
    """

    def __init__(self, name: str, columns: Sequence[Column], reader: FeedReader, agree: Agree, size: int) -> None:
        self.name = name
        """Its name in `data=`."""
        self._columns = tuple(columns)
        self._reader = reader
        self._agree = agree
        self._size = size
        self._schema: tuple[Column, ...] | None = None

    def __repr__(self) -> str:
        return f"StreamData({self.name!r}, columns {', '.join(self.columns) or 'of Python objects'})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; none for the Python objects of an RDD."""
        return tuple(column.name for column in self._columns)

    @property
    def schema(self) -> tuple[Column, ...]:
        """The columns, with the shapes of the first rows. Blocks for these the first time. Raises StreamError."""
        if self._schema is None:
            self._check_columns()
            first = self._reader.epochs.peek()
            if first is None:
                raise StreamError(f"stream {self.name!r} gave no rows to this member: give it more partitions")
            self._schema = shaped(self._columns, check_values(first, self._columns, self._subject), self._subject)
        return self._schema

    def to_tf(
        self,
        *,
        batch_size: int,
        feature_columns: Names | None = None,
        label_columns: Names | None = None,
        weight_column: str | None = None,
        stack: bool = False,
    ) -> Any:
        """A `tf.data.Dataset` for `fit`, in batches `(x, y)`, or `x` without labels; each pass reads the next epoch.

        All members have the same number of steps: a pass ends when the first one lacks a full batch, and drops the
        rest. The arguments are those of `TrainingData.to_tf`. Blocks for the first rows. Raises SpecError, DataError,
        StreamError.
        """
        batch_size = assignment.batch_of(batch_size)
        require_tensorflow("to_tf()", "use iter_batches()")
        stream_feed = feeds_of("tensorflow").stream_feed

        def select(floats: str) -> Selection:
            return Selection.of(
                self.schema,
                features=feature_columns,
                labels=label_columns,
                weight=weight_column,
                stack=stack,
                subject=self._subject,
                floats=floats,
            )

        return stream_feed(self._chunks, select, batch_size, ahead=self._size == 1)

    def iter_batches(
        self, *, batch_size: int, columns: Sequence[str] | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """The next epoch as dicts of NumPy arrays of shape (batch_size, *shape) by column.

        As many batches on all members, as with `to_tf`; every member calls it. Blocks for rows without limit. Feeders
        end when the iterator is closed early. Raises SpecError, DataError, StreamError.
        """
        batch_size = assignment.batch_of(batch_size)
        selection = self.columns if columns is None else columns
        names = tuple(column.name for column in chosen(self.schema, selection, self._subject))
        for chunk in self._chunks(batch_size, names):
            rows = len(next(iter(chunk.values())))
            for start in range(0, rows, batch_size):
                yield {name: array[start : start + batch_size] for name, array in chunk.items()}

    def next_batch(self, count: int, *, whole: bool = False) -> list[Any]:
        """The next `count` rows: Python objects of an RDD, or tuples of a DataFrame's values; fewer only at the end.

        `whole`: fewer also at the end of a partition; no batch has rows of two. Blocks for rows without limit. After
        the end of an epoch, the next call starts another one. Raises StreamError.
        """
        return self._reader.next_batch(count, whole=whole)

    def next_arrow(self, count: int) -> pa.RecordBatch | None:
        """As `next_batch`, a DataFrame's rows as a record batch; None at the end. Copies only where batches are joined.

        Raises StreamError, also for the Python objects of an RDD.
        """
        return self._reader.next_arrow(count)

    def answer(self, results: Iterable[Any]) -> None:
        """The results for the rows of the last `next_batch`, one for each, which its Spark task waits for.

        Raises StreamError for another number of results, and for some that cannot be pickled.
        """
        self._reader.answer(results)

    def should_stop(self) -> bool:
        """Whether `next_batch` has reached the end of the epoch."""
        return self._reader.ended

    def terminate(self, *, ask: bool = False) -> None:
        """Need no more rows of this epoch: the feeding job ends well, and tasks that wait for results fail.

        `ask`: inform the driver even when nothing was read yet, for it waits until every member has asked for rows.
        """
        self._reader.terminate(ask=ask)

    def wait_for_end(self) -> None:
        """Drop the rows that still come, and block without limit until the driver has ended the stream.

        A member that leaves earlier would be missed by the tasks that feed it.
        """
        self._reader.terminate(ask=True)
        self._reader.epochs.wait_until_over()

    def close(self) -> None:
        """As `terminate`, for every way to read; sparktrain calls it at the end."""
        self._reader.close()

    @property
    def _subject(self) -> str:
        return f"data[{self.name!r}]"

    def _check_columns(self) -> None:
        if not self._columns:
            raise SpecError(f"{self._subject} holds Python objects of an RDD: read them by next_batch(n)")

    def _chunks(self, batch_size: int, names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """The next epoch in chunks of whole steps."""
        schema = chosen(self.schema, names, self._subject)
        for batch in self._reader.steps(batch_size, self._agree):
            self._check_shapes(batch)
            yield {column.name: np.asarray(to_numpy(batch.column(column.name), column)) for column in schema}

    def _check_shapes(self, batch: pa.RecordBatch) -> None:
        lengths = check_values(batch, self._columns, self._subject)
        for column in self.schema:
            levels = lengths.get(column.name, ())
            if column.shape and any(level != (size, size) for level, size in zip(levels, column.shape, strict=True)):
                kind = "bytes" if column.kind is ColumnKind.BINARY else "values"
                raise DataError(
                    f"{self._subject}: column {column.name!r} has rows of {levels[0][0]} to {levels[0][1]} {kind}, and "
                    f"the first rows had {column.shape[0]}: make them equal in Spark"
                )
