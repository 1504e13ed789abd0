"""Recognizes exceptions of a broken ring, as opposed to a mistake in the training function."""

from collections.abc import Iterator

from sparktrain.errors import RingError
from sparktrain.training.frameworks.imported import imported


class MovedAway(BaseException):
    """Ends the function of a member that has left its ring for a process on the host that it names: no error of the
    function, and none that it may handle."""


def is_ring_error(error: BaseException) -> bool:
    """Whether `error`, or one of its causes or contexts, comes from a failed collective of any backend.

    For exceptions that leave user code such as `model.fit`. Imports nothing.
    """
    return any(isinstance(cause, RingError) or _of_collective(cause) for cause in causes(error))


def is_loss(error: BaseException) -> bool:
    """As `is_ring_error`, or whether one of them shows a lost member of a cluster of the framework's own."""
    chain = list(causes(error))
    return is_ring_error(error) or any(framework.is_lost_member(cause) for framework in imported() for cause in chain)


def _of_collective(error: BaseException) -> bool:
    return any(framework.is_broken_collective(error) for framework in imported())


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
