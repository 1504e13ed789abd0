"""The collectives that eager rings have in common, between threads that pass arrays of NumPy."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from sparktrain.config.gang_spec import Role
from sparktrain.errors import RingError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.eager_ring import EagerRing

SIZE = 3
PLACES = (MemberAddress("host", "127.0.0.1", 1, Role.WORKER),) * SIZE


class ThreadRing(EagerRing):
    """One thread's end."""

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(Formation(rank, PLACES))
        self._slots = slots
        self._barrier = barrier

    def _rows(self, flat: Any) -> Sequence[Any]:
        self._slots[self.rank] = flat
        self._barrier.wait(20)
        rows = list(self._slots)
        self._barrier.wait(20)
        return rows

    def _sum(self, flat: Any) -> Any:
        return np.sum(self._rows(flat), axis=0, dtype=flat.dtype)

    def _end(self) -> None:
        """No thread needs another one any more."""


def together(member: Callable[[ThreadRing], Any]) -> list[Any]:
    """What `member` returns in a thread for each rank."""
    slots: list[Any] = [None] * SIZE
    barrier = threading.Barrier(SIZE)
    with ThreadPoolExecutor(SIZE) as threads:
        return list(threads.map(lambda rank: member(ThreadRing(rank, slots, barrier)), range(SIZE)))


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "float16", "float64", "complex64"])
def test_sums_and_means_keep_types_and_shapes_and_round_toward_zero(kind: str) -> None:
    four = 4 if kind[0] == "u" else -4

    def member(ring: ThreadRing) -> list[Any]:
        first = np.array([[four if ring.rank == 0 else 0], [ring.rank]]).astype(kind)
        tensors = [first, np.array(ring.rank == 1), np.zeros((0, 2), kind), np.array(1.0)]
        return [ring.allreduce(tensors, average=average, name="one") for average in (False, True)]

    for sums, means in together(member):
        shapes = [(kind, (2, 1)), ("bool", ()), (kind, (0, 2)), ("float64", ())]
        assert [(value.dtype.name, value.shape) for value in sums] == shapes
        np.testing.assert_array_equal(sums[0], np.array([[four], [3]]).astype(kind))
        np.testing.assert_array_equal(means[0], np.array([[four / 3], [1]]).astype(kind))
        assert (sums[1], means[1], sums[3], means[3]) == (True, False, 3.0, 1.0)


def test_values_of_the_source_arrive_and_rows_of_different_counts_are_joined_by_rank() -> None:
    def member(ring: ThreadRing) -> Any:
        rows = ring.allgather(np.full((ring.rank, 2), ring.rank, "int16"), name="rows")
        ring.source = 2
        flag, number = ring.broadcast([np.array(ring.rank == 2), np.array([[ring.rank / 3]])], name="sent")
        return rows.tolist(), ring.broadcast([], name="none"), bool(flag), number.tolist()

    assert together(member) == [([[1, 1], [2, 2], [2, 2]], [], True, [[2 / 3]])] * SIZE


def test_members_with_different_calls_learn_of_that_before_values_travel() -> None:
    def member(ring: ThreadRing) -> str:
        with pytest.raises(RingError, match="operation 'loss' of the ring failed") as caught:
            ring.allreduce([np.zeros(1 + (ring.rank == 1))], average=False, name="loss")
        [call] = ring.calls.newest().values()
        assert call.shown == f"allreduce 'loss' of float64[{1 + (ring.rank == 1)}]"
        return str(caught.value)

    first, _, last = together(member)
    assert "rank 1 does not call allreduce loss ['float64[1]']" in first
    assert last.startswith("rank 2 on host: ")
