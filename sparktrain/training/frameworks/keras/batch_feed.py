"""Batches for `fit` on backends of Keras other than TensorFlow, which resume in the middle of an epoch."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from sparktrain.config.environment import TORCH
from sparktrain.training.data.pass_progress import PassProgress, PassStart
from sparktrain.training.data.position import Cursor


class BatchFeed(DataAdapter):  # type: ignore[misc] # Keras has no types
    """What `fit`, `evaluate` and `predict` take as `x`, and a loop may iterate: each iteration is one pass.

    Keras takes an adapter of data as it is, and asks it for an iterator at the start of each epoch. One thread uses it.
    """

    def __init__(self, steps: int | None, batch: int | None) -> None:
        """`steps` is the length of a pass, `batch` the examples of a full batch; None where they are unknown."""
        self._steps = steps
        self._batch = batch

    def arrays(self) -> Iterator[Any]:
        """The batches of the next pass, or of the rest of one that a lost process has started: arrays of NumPy."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """The same for a loop: tensors where Keras runs on PyTorch."""
        return self.get_torch_dataloader() if keras.backend.backend() == TORCH else self.arrays()

    def get_numpy_iterator(self) -> Iterator[Any]:
        """See base class."""
        return self.arrays()

    def get_jax_iterator(self) -> Iterator[Any]:
        """See base class."""
        return self.arrays()

    def get_torch_dataloader(self) -> Iterator[Any]:
        """See base class. Tensors are on Keras's device."""
        for batch in self.arrays():
            yield keras.tree.map_structure(_tensor, batch)

    @property
    def num_batches(self) -> int | None:
        """See base class."""
        return self._steps

    @property
    def batch_size(self) -> int | None:
        """See base class."""
        return self._batch

    @property
    def has_partial_batch(self) -> bool:
        """See base class."""
        return False

    @property
    def partial_batch_size(self) -> int | None:
        """See base class."""
        return None


class RowFeed(BatchFeed):
    """Batches of rows with known numbers: it resumes after the rows that a gang of any size has taken."""

    def __init__(
        self, progress: PassProgress, steps: int, batch: int, read: Callable[[PassStart], Iterator[Any]]
    ) -> None:
        """`read` has the batches of a pass from where it starts."""
        super().__init__(steps, batch)
        self._progress = progress
        self._read = read

    def __len__(self) -> int:
        """Steps of a whole pass, equal on all members."""
        assert self._steps is not None
        return self._steps

    def arrays(self) -> Iterator[Any]:
        """See base class."""
        started = self._progress.start()
        try:
            for batch in self._read(started):
                self._progress.take(started)
                yield batch
        finally:
            self._progress.end(started)


class IteratedFeed(BatchFeed):
    """This member's part of the batches that a function, or an iterable, yields in each pass."""

    def __init__(self, cursor: Cursor, steps: int | None, read: Callable[[], Iterator[Any]]) -> None:
        """`read` starts a pass over this member's batches."""
        super().__init__(steps, None)
        self._cursor = cursor
        self._read = read

    def arrays(self) -> Iterator[Any]:
        """See base class. Reads and discards what was trained before."""
        number, played, skipped = self._cursor.start_pass()
        for _ in range(played):
            for _ in self._read():
                pass
        batches = self._read()
        steps = 0
        # One batch ahead: the end of a pass of unknown length is known before its last step.
        ahead = next(batches, None)
        while ahead is not None:
            batch = ahead
            steps += 1
            ahead = next(batches, None)
            if ahead is None:
                self._cursor.end_pass(number, steps)
            if steps <= skipped:
                continue
            try:
                yield batch
            except GeneratorExit:
                if steps == 1:  # Keras has read a batch to build the model
                    self._cursor.drop_pass(number)
                raise


def _tensor(array: Any) -> Any:
    # PyTorch has no tensors of strings, and shares the memory of an array, which may be mapped read-only.
    if array is None or array.dtype.kind in "OSU":
        return array
    return keras.ops.convert_to_tensor(array if array.flags.writeable else array.copy())
