"""Python objects as batches of Arrow: the rows of an RDD, which only members unpickle, and results, which tasks do."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

import pyarrow as pa

from sparktrain.errors import DataError, StreamError
from sparktrain.protocol.feed_messages import PICKLED
from sparktrain.protocol.sent_script import CodePickler

MOST_ROWS = 4096
"""The most in one pickle."""
_PICKLE_BYTES = 2**19


def pickled(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Python objects as batches of one binary column, each value the pickle of a list of rows.

    The lists grow until their pickles have about half a MiB. Raises DataError for a row that cannot be pickled.
    """
    return (batch for batch, _ in counted_pickles(rows))


def counted_pickles(rows: Iterable[Any]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """As `pickled`, each batch with the length of its list."""
    waiting: list[Any] = []
    row_limit = 16
    for row in rows:
        waiting.append(row)
        if len(waiting) >= row_limit:
            data = _row_pickle(waiting)
            # The size of a row is not known before: one list of 4,096 images would exceed what a message may have.
            row_limit = min(2 * row_limit, MOST_ROWS) if len(data) < _PICKLE_BYTES else max(1, row_limit // 2)
            yield batch_of([data]), len(waiting)
            waiting = []
    if waiting:
        yield batch_of([_row_pickle(waiting)]), len(waiting)


def batch_of(pickles: list[bytes]) -> pa.RecordBatch:
    """Pickles of lists as a batch of one column."""
    return pa.RecordBatch.from_pydict({PICKLED: pa.array(pickles, pa.binary())})


def pickle_of(values: list[Any]) -> bytes:
    """The pickle of a list. Raises what a pickler raises for values that it does not know."""
    with suppress(Exception):  # the plain pickler is several times faster, and knows most values
        return pickle.dumps(values, protocol=pickle.HIGHEST_PROTOCOL)
    sink = BytesIO()
    CodePickler(sink).dump(values)
    return sink.getvalue()


def unpickled(batch: pa.RecordBatch, subject: str) -> list[Any]:
    """The values of the lists in a batch, in order. `subject` names them in the StreamError for values unknown here."""
    rows: list[Any] = []
    for value in batch.column(0):
        try:
            rows += pickle.loads(value.as_buffer())
        except Exception as error:
            raise StreamError(f"{subject} cannot be unpickled: {error}") from error
    return rows


def _row_pickle(rows: list[Any]) -> bytes:
    try:
        return pickle_of(rows)
    except Exception as error:
        raise DataError(
            f"a row of the RDD cannot be pickled: {error}; map rows to plain values first, such as tuples or dicts"
        ) from error
