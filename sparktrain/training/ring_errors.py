"""Which exceptions tell of a broken ring, and not of a mistake in the training function."""

import sys
from collections.abc import Iterator

from sparktrain.errors import RingError

_MARKS = (
    "sparktrain_ring",  # the name of the failed operation, as graphs tell it
    "Collective ops is aborted by",
    "Horovod has been shut down",
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodBroadcast",
)


def is_ring_error(error: BaseException) -> bool:
    """Whether `error`, or what it was raised from or while handling, comes of an operation of a ring that failed.

    Of any backend; for exceptions that leave user code such as `model.fit`. Imports nothing.
    """
    return any(isinstance(each, RingError) or _of_operation(each) for each in _chain(error))


def _of_operation(error: BaseException) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
        return False
    return any(mark in str(error) for mark in _MARKS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
