"""How the members that are left of a ring divide the rest of an epoch of `fit` among themselves, and later epochs.

Keras reads one iterator for each epoch, and counts its steps by a number that it has computed before. Both are
replaced in the middle of the epoch: its steps continue, with the batches that no step has trained.
"""

from collections.abc import Iterator
from typing import Any

from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.feed_cursors import FeedDivision, division_of
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.state_source import RingRefusalError
from sparktrain.training.frameworks.keras.fit_reader import fit_reader

Steps = Iterator[tuple[int, int, Any]]
_HELD = ("_distributed_dataset", "data_adapter")
"""Where Keras's reader has its data: a dataset of TensorFlow, or an adapter with another backend."""


def fit_division(position: Position) -> "FitDivision | None":
    """How fewer members divide the data of the `fit` on the stack; None where they cannot.

    Its data is one feed, which is read in whole passes, and validation has none of its own.
    """
    reader = fit_reader()
    held = next((name for name in _HELD if hasattr(reader, name)), None)
    feed = None if held is None else division_of(getattr(reader, held))
    is_plain = position.per_epoch is not None and len(position.feeds) == 1 and reader.steps_per_epoch is None
    if held is None or feed is None or not is_plain or position.per_epoch != feed.cursor.steps:
        return None
    return FitDivision(reader, held, position, feed)


class FitDivision:
    """The data of one `fit`, in the attribute `held` of Keras's `reader`. It belongs to the thread that trains."""

    def __init__(self, reader: Any, held: str, position: Position, feed: FeedDivision) -> None:
        self._reader = reader
        self._held = held
        self._position = position
        self._feed = feed

    def can_divide(self, size: int, step: int) -> bool:
        """Whether the next step after `step`, which Keras is about to start, can be one of `size` members."""
        return self._feed.cursor.can_divide(BatchShare(0, size, Uneven.DROP), step)

    def divide(self, rank: int, size: int, step: int, *, repeats: bool) -> Any:
        """Continue after `step` with the share of member `rank` of `size`; `repeats`: Keras has started a step.

        Returns the iterator over what is left of the epoch; None where nothing is left. Raises RingRefusalError.
        """
        reader = self._reader
        share = BatchShare(rank, size, Uneven.DROP)
        remaining = self._feed.cursor.divide(share, step, trains=repeats)
        feed = self._feed.feed_of(share)
        specs = [getattr(data, "element_spec", None) for data in (feed, getattr(reader, self._held))]
        if specs[0] != specs[1]:
            raise RingRefusalError("batches of the same data have another form when fewer members divide it")
        setattr(reader, self._held, feed)
        reader._num_batches = self._feed.cursor.steps
        iterator = iter(feed) if remaining else None
        finished = self._position.counted + step - self._position.epoch_start
        # A step that is repeated has its number already.
        reader._epoch_iterator = self._steps(finished + repeats, finished + remaining, iterator)
        return iterator

    def _steps(self, first: int, last: int, iterator: Any) -> Steps:
        """What Keras's own generator yields for the steps from `first` to `last - 1`."""
        for number in range(first, last):
            yield number, number, iterator
        self._reader._current_iterator = None
        self._reader.data_adapter.on_epoch_end()
