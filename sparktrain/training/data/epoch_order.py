"""A Keras `PyDataset` whose order changes from epoch to epoch, in the order that every process makes of it again."""

import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from sparktrain.training.data.position import Cursor


def changes(data: Any) -> bool:
    """Whether `data` is a PyDataset that does something between epochs."""
    base = keras.utils.PyDataset
    return isinstance(data, base) and type(data).on_epoch_end is not base.on_epoch_end


def tupled(value: Any) -> Any:
    """`value` with tuples in place of the lists within: to TensorFlow, a list is one tensor."""
    if isinstance(value, list | tuple):
        parts = [tupled(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return {key: tupled(each) for key, each in value.items()} if isinstance(value, dict) else value


class Turns:
    """Reads a PyDataset, pass by pass: before pass p, `on_epoch_end()` has been called p times, each with its own seed.

    So a process that resumes in a pass has the order that it had before, whatever else draws random numbers.
    """

    def __init__(self, data: Any, seed: int) -> None:
        self.cursor: Cursor | None = None
        """Knows which pass is read; None before there is one."""
        self._data = data
        self._seed = seed
        self._done = 0

    def __len__(self) -> int:
        return len(self._data)

    def __call__(self) -> Iterator[Any]:
        number = 0 if self.cursor is None else self.cursor.number
        while self._done < number:
            self._done += 1
            self._turn(self._done)
        return iter(self._data)

    def _turn(self, number: int) -> None:
        seed = int(np.random.SeedSequence([self._seed % 2**64, number]).generate_state(1)[0])
        kept = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            self._data.on_epoch_end()
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])
