"""A ring of threads of this process, for what members do between the steps."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.training.collectives.ring import Ring


class ThreadRing(Ring):
    """One thread's end of a ring of threads. Eager operations alone."""

    def __init__(self, rank: int, size: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.size = size
        self.operations: list[str] = []
        self.sent: dict[str, list[Any]] = {}
        """The tensors of the newest broadcast of each name."""
        self._slots = slots
        self._barrier = barrier

    def _gathered(self, value: Any, name: str) -> list[Any]:
        self.operations.append(name)
        self._slots[self.rank] = (name, value)
        self._barrier.wait(20)
        found = list(self._slots)
        self._barrier.wait(20)
        assert {each for each, _ in found} == {name}
        return [given for _, given in found]

    def allreduce(self, tensors: Sequence[Any], *, average: bool, name: str) -> list[Any]:
        sums = [tf.add_n(parts) for parts in zip(*self._gathered(list(tensors), name), strict=True)]
        return [each / self.size if average else each for each in sums]

    def broadcast(self, tensors: Sequence[Any], *, name: str) -> list[Any]:
        self.sent[name] = list(tensors)
        return [tf.constant(np.array(each)) for each in self._gathered(list(tensors), name)[0]]

    def allgather(self, tensor: Any, *, name: str) -> Any:
        return tf.concat(self._gathered(tensor, name), axis=0)

    def tensor(self, array: Any) -> Any:
        return tf.constant(array)

    def close(self) -> None:
        self._barrier.abort()


def together(size: int, member: Callable[[ThreadRing], Any]) -> list[Any]:
    """What `member` returns, or the exception it raises, in a thread for each rank."""
    slots: list[Any] = [None] * size
    barrier = threading.Barrier(size)
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = member(ThreadRing(rank, size, slots, barrier))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found
