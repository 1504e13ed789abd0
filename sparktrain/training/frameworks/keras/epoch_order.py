"""Reads a Keras `PyDataset` that changes between epochs in an order that every process can reproduce."""

import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from sparktrain.training.data.position import Cursor


def changes(data: Any) -> bool:
    """Whether `data` is a PyDataset with an `on_epoch_end`."""
    base = keras.utils.PyDataset
    return isinstance(data, base) and type(data).on_epoch_end is not base.on_epoch_end


def tupled(value: Any) -> Any:
    """`value` with tuples in place of lists: to TensorFlow, a list is one tensor."""
    if isinstance(value, list | tuple):
        parts = [tupled(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return {key: tupled(part) for key, part in value.items()} if isinstance(value, dict) else value


class EpochOrder:
    """Reads a PyDataset pass by pass: it calls `on_epoch_end()` p times before pass p, each time with another seed.

    So a process that resumes in a pass gets the same order, whatever else draws random numbers.
    """

    def __init__(self, data: Any, seed: int) -> None:
        self.cursor: Cursor | None = None
        """The passes of the feed; None before there is one."""
        self._data = data
        self._seed = seed
        self._done = 0

    def __len__(self) -> int:
        return len(self._data)

    def __call__(self) -> Iterator[Any]:
        number = 0 if self.cursor is None else self.cursor.number
        while self._done < number:
            self._done += 1
            self._end_epoch(self._done)
        return iter(self._data)

    def _end_epoch(self, number: int) -> None:
        seed = int(np.random.SeedSequence([self._seed % 2**64, number]).generate_state(1)[0])
        # The training draws from the same generators: its numbers must not depend on how many passes this process has
        # read.
        states = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            self._data.on_epoch_end()
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
