"""The contract of a ring: operations in which every member of a gang takes part, in the same order.

Every operation may be called eagerly and while a `tf.function` is traced; what it adds to a graph runs at each call.
The members call the same operations with tensors of equal dtypes, and but for `allgather` of equal shapes. A ring whose
members do not is broken: it raises `sparktrain.errors.RingError`, at the latest when its timeout is over, and the
`Lookout` of a member finds out what each has called. A ring keeps `calls` for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from sparktrain.training.collectives.call_log import CallLog


class Ring(ABC):
    """One member's end of the ring. All methods belong to the thread that trains, and block until all members call."""

    rank: int
    size: int
    calls: "CallLog | None" = None
    """The operations that this member has begun; None where there is nobody to compare them with."""
    mirrored = False
    """The other members are assumed to do what this one does, so that equal values of all members mean nothing."""

    @abstractmethod
    def allreduce(self, tensors: "Sequence[tf.Tensor]", *, average: bool, name: str) -> "list[tf.Tensor]":
        """Elementwise sum, or mean, of each dense tensor over all members; of any float or integer dtype.

        `name` tells operations that may be under way at the same time apart; the same on all members.
        """

    @abstractmethod
    def broadcast(self, tensors: "Sequence[tf.Tensor]", *, name: str) -> "list[tf.Tensor]":
        """The values that rank 0 has, of any dtype but strings."""

    @abstractmethod
    def allgather(self, tensor: "tf.Tensor", *, name: str) -> "tf.Tensor":
        """The members' tensors, by rank, one after the other along their first axis, whose length may differ."""

    @abstractmethod
    def close(self) -> None:
        """Leave the ring in peace, when all members do; may be called again."""


def averaged(sums: "Sequence[tf.Tensor]", size: int) -> "list[tf.Tensor]":
    """The mean of `size` members from each sum over them; of integers, rounded down."""
    return [each // size if each.dtype.is_integer else each / size for each in sums]


class LocalRing(Ring):
    """The ring of a member that is alone: every operation gives back what it is given."""

    rank = 0
    size = 1

    def allreduce(self, tensors: "Sequence[tf.Tensor]", *, average: bool, name: str) -> "list[tf.Tensor]":
        """See base class."""
        return list(tensors)

    def broadcast(self, tensors: "Sequence[tf.Tensor]", *, name: str) -> "list[tf.Tensor]":
        """See base class."""
        return list(tensors)

    def allgather(self, tensor: "tf.Tensor", *, name: str) -> "tf.Tensor":
        """See base class."""
        return tensor

    def close(self) -> None:
        """See base class."""
