"""Recognizes exceptions of a broken ring, as opposed to a mistake in the training function."""

import sys
from collections.abc import Iterator

from sparktrain.errors import RingError

_MARKS = (
    "sparktrain_ring",  # in the name of the failed operation of a graph
    "RingError: ",  # raised within tf.numpy_function
    "Collective ops is aborted by",
    "Horovod has been shut down",
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodBroadcast",
)


def is_ring_error(error: BaseException) -> bool:
    """Whether `error`, or one of its causes or contexts, comes from a failed collective of any backend.

    For exceptions that leave user code such as `model.fit`. Imports nothing.
    """
    return any(isinstance(cause, RingError) or _of_operation(cause) for cause in causes(error))


def _of_operation(error: BaseException) -> bool:
    # Without its classes where an import of TensorFlow has failed, or another thread imports it.
    kind = getattr(getattr(sys.modules.get("tensorflow"), "errors", None), "OpError", None)
    if kind is None or not isinstance(error, kind):
        return False
    return any(mark in str(error) for mark in _MARKS)


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, its causes and contexts, each once."""
    visited_ids: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in visited_ids:
        visited_ids.add(id(following))
        yield following
        aborted_by = getattr(following, "original_exception", None)  # the cause of a ClosureAbortedError
        implicit = None if following.__suppress_context__ else following.__context__
        following = aborted_by or following.__cause__ or implicit
