"""The rows of an RDD, which are any Python objects, as batches of Arrow: only members unpickle them."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import cloudpickle
import pyarrow as pa

from sparktrain.errors import DataError
from sparktrain.protocol.feed_messages import PICKLED

MOST_ROWS = 4096
"""The most in one pickle."""
_PICKLE_BYTES = 2**19


def pickled(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Python objects as batches of one binary column, each value the pickle of a list of rows.

    The lists grow until their pickles have about half a MiB. Raises DataError for a row that cannot be pickled.
    """
    waiting: list[Any] = []
    wanted = 16
    for row in rows:
        waiting.append(row)
        if len(waiting) >= wanted:
            data = _pickle(waiting)
            wanted = min(2 * wanted, MOST_ROWS) if len(data) < _PICKLE_BYTES else max(1, wanted // 2)
            yield pa.RecordBatch.from_pydict({PICKLED: pa.array([data], pa.binary())})
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pydict({PICKLED: pa.array([_pickle(waiting)], pa.binary())})


def _pickle(rows: list[Any]) -> bytes:
    with suppress(Exception):  # the plain pickler is several times faster, and knows most rows
        return pickle.dumps(rows, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        return bytes(cloudpickle.dumps(rows))
    except Exception as error:
        raise DataError(
            f"a row of the RDD cannot be pickled: {error}; map rows to plain values first, such as tuples or dicts"
        ) from error
