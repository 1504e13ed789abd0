"""Notes how long `fit` waits for its batches, where Keras reads them in Python: on PyTorch."""

from collections.abc import Callable, Iterator
from typing import Any

from sparktrain.training.collectives.step_notes import StepNotes

_END = object()


class TimedBatches:
    """In place of the method by which a reader of `fit` starts a pass over its batches."""

    def __init__(self, batches: Callable[[], Any], notes: StepNotes) -> None:
        self._batches = batches
        self._notes = notes

    def __call__(self) -> Iterator[Any]:
        """The batches of a pass."""
        batches = iter(self._batches())
        while True:
            asked_ns = self._notes.now_ns()
            batch = next(batches, _END)
            self._notes.feed(self._notes.now_ns() - asked_ns)
            if batch is _END:
                return
            yield batch


def time_batches(reader: Any, notes: StepNotes) -> None:
    """Note the waits of this reader from its next pass on. A second call does nothing."""
    if not isinstance(reader._get_iterator, TimedBatches):
        reader._get_iterator = TimedBatches(reader._get_iterator, notes)
