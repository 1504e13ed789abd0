"""Feeds of NumPy's arrays for Keras on JAX and PyTorch: see `sparktrain.training.frameworks.contract.Framework.data`.

Order, shares and resume are those of TensorFlow's feeds with the same arguments.
"""

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree
from numpy.typing import NDArray

from sparktrain.config.param_values import shown, type_name
from sparktrain.errors import SpecError
from sparktrain.training.data import assignment
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.class_tables import table_of, weights_of
from sparktrain.training.data.feed_cursors import note_division
from sparktrain.training.data.feed_request import FeedRequest
from sparktrain.training.data.pass_progress import PassProgress, PassStart
from sparktrain.training.data.position import Cursor, Position
from sparktrain.training.data.row_order import RowShare
from sparktrain.training.frameworks.keras.batch_feed import BatchFeed, IteratedFeed, RowFeed
from sparktrain.training.frameworks.keras.epoch_order import EpochOrder, changes

_CALL = "ctx.shard()"


def shard(
    data: Any,
    *,
    rank: int,
    size: int,
    batch_size: int | None = None,
    uneven: str = "drop",
    shuffle: bool = False,
    seed: int = 0,
    class_weight: Mapping[int, float] | None = None,
    position: Position | None = None,
) -> BatchFeed:
    """The share of member `rank` of `size` in arrays, or in batches that a function yields in each epoch.

    As `sparktrain.training.frameworks.tensorflow.data.shard.shard`, with NumPy's arrays in place of a
    `tf.data.Dataset`. A step of a function's batches that lacks some is dropped. Does not block. Raises SpecError.
    """
    share = assignment.share(rank, size, uneven)
    where = position or Position()
    table = None if class_weight is None else table_of(class_weight)
    if hasattr(data, "element_spec"):
        raise SpecError(
            f"{_CALL} got a dataset of tf.data, and Keras runs on {keras.backend.backend()} in this process: pass "
            "arrays, or a function that returns an iterator over batches of NumPy; or let Keras run on TensorFlow"
        )
    if assignment.yields_batches(data, tree.flatten):
        assignment.check_unused("an iterable of batches", batch_size, shuffle)
        return _iterated(data, share, where, table, seed)
    return _of_arrays(data, share, assignment.batch_of(batch_size), seed if shuffle else None, where, table)


def row_feed(request: FeedRequest) -> BatchFeed:
    """The batches of `TrainingData.to_keras`. Does not block. Raises SpecError, DataError."""
    share = request.share
    selection = request.chunks(keras.backend.floatx()).selection
    source = {"name": request.name, "rows": share.rows, "seed": request.seed}
    progress = PassProgress(share, request.position, source)
    feed = _divisible(share, progress, lambda share: _chunk_reader(request.divided(share)))
    identity = (*source.values(), share.batch, share.share.uneven, selection.names)
    request.position.describe(selection.types, zlib.crc32(repr(identity).encode()))
    return feed


def _chunk_reader(request: FeedRequest) -> Callable[[PassStart], Iterator[Any]]:
    """What reads a pass over the rows of `request`."""
    share = request.share
    chunks = request.chunks(keras.backend.floatx())
    table = None if request.class_weight is None else table_of(request.class_weight)

    def read(started: PassStart) -> Iterator[Any]:
        taken_rows = started.share.taken_rows
        for index in range(int(chunks.remaining_chunks(taken_rows, started.skipped))):
            arrays = chunks(started.number, taken_rows, started.skipped, index)
            for start in range(0, len(arrays[0]), share.batch):  # the last chunk alone ends in a smaller batch
                parts = [array[start : start + share.batch] for array in arrays]
                batch = chunks.selection.batch(parts[: len(parts) - chunks.padded])
                yield _weighted(batch, parts[-1] if chunks.padded else None, table)

    return read


def _divisible(
    share: RowShare, progress: PassProgress, reader_of: Callable[[BatchShare], Callable[[PassStart], Iterator[Any]]]
) -> RowFeed:
    """The feed of a share, which the members of a gang of another size can divide where no row comes twice."""

    def feed_of(part: BatchShare) -> RowFeed:
        divided = progress.divided(part)
        return RowFeed(divided, divided.steps, share.batch, reader_of(part))

    feed = RowFeed(progress, share.steps, share.batch, reader_of(share.share))
    if share.share.uneven is Uneven.DROP:
        note_division(feed, progress.cursor, feed_of)
    return feed


# --- arrays


def _of_arrays(data: Any, share: BatchShare, batch: int, seed: int | None, position: Position, table: Any) -> BatchFeed:
    if (share.uneven is Uneven.PAD or table is not None) and not (isinstance(data, tuple) and len(data) in (2, 3)):
        raise SpecError(
            f"uneven='pad' and class_weight give examples a weight, and need (x, y) for that, not a {type_name(data)}"
        )
    arrays = [None if leaf is None else _plain(leaf) for leaf in tree.flatten(data)]
    length = _length([array for array in arrays if array is not None])
    rows = RowShare(share, length, batch)

    def read(started: PassStart) -> Iterator[Any]:
        order = assignment.order(length, seed, started.number)
        for step in range(started.skipped, started.share.steps):
            picked = order[started.share.positions(step, step + 1)]
            leaves = [None if array is None else array[picked] for array in arrays]
            part = tree.pack_sequence_as(data, leaves)
            weights = None
            if share.uneven is Uneven.PAD:
                weights = (np.arange(len(picked)) < started.share.real(step)).astype("float32")
            yield _weighted(part, weights, table)

    progress = PassProgress(rows, position, {"rows": length, "seed": seed})
    identity = (length, batch, seed, share.uneven)
    position.describe(identity, zlib.crc32(repr(identity).encode()))
    return _divisible(rows, progress, lambda part: read)


def _plain(leaf: Any) -> NDArray[Any]:
    array = np.asarray(keras.ops.convert_to_numpy(leaf) if keras.ops.is_tensor(leaf) else leaf)
    return array.astype(keras.backend.floatx()) if array.dtype == np.float64 else array


def _length(arrays: Sequence[NDArray[Any]]) -> int:
    lengths = sorted({len(array) if array.ndim else 0 for array in arrays})
    if len(lengths) != 1:
        raise SpecError(f"the arrays have {' and '.join(map(str, lengths))} examples: their first axes must be equal")
    return lengths[0]


def _weighted(batch: Any, weights: Any, table: Any) -> Any:
    """`(x, y, weights)` of a batch: those of its own, times `weights`, times those of its classes in `table`."""
    if weights is None and table is None:
        return batch
    x, y, *own_weights = batch
    factor = np.float32(1) if weights is None else weights
    if table is not None:
        factor = factor * weights_of(table, np.asarray(y))
    if not own_weights or own_weights[0] is None:
        return x, y, factor

    def scaled(leaf: Any) -> Any:
        return leaf * factor.reshape([-1] + [1] * (leaf.ndim - 1)).astype(leaf.dtype)

    return x, y, tree.map_structure(scaled, own_weights[0])


# --- iterables of batches


def _iterated(data: Any, share: BatchShare, position: Position, table: Any, seed: int) -> BatchFeed:
    if inspect.isgenerator(data) or (hasattr(data, "__next__") and not callable(data)):
        raise SpecError(
            f"the data is {shown(data)}, which can be read only once, and each epoch must read it: pass the function "
            "that makes it, without calling it"
        )
    if share.uneven is not Uneven.DROP and share.size > 1:
        raise SpecError(
            f"uneven ('{share.uneven.value}') fills a step with examples of arrays, and the data is an iterable of "
            "batches: pass arrays, or leave uneven out"
        )
    turns = EpochOrder(data, seed) if changes(data) else None
    source: Any = turns or data
    again: Callable[[], Iterable[Any]] = source if callable(source) else lambda: source
    length = len(data) if hasattr(data, "__len__") else None
    steps = None if length is None else share.steps(length)
    cursor = Cursor(position, steps, members=share.size)
    if turns is not None:
        turns.cursor = cursor

    def read() -> Iterator[Any]:
        for batch in _rounds(again(), share):
            yield _weighted(batch, None, table)

    position.describe(type(data).__name__, zlib.crc32(repr((type(data).__name__, length)).encode()))
    return IteratedFeed(cursor, steps, read)


def _rounds(batches: Iterable[Any], share: BatchShare) -> Iterator[Any]:
    """This member's batch of each whole round, cut to the smallest of the round."""
    held: list[Any] = []
    for batch in batches:
        held.append(tuple(batch) if isinstance(batch, list) else batch)
        if len(held) == share.size:
            yield _cut(held, share.rank)
            held = []


def _cut(held: Sequence[Any], rank: int) -> Any:
    sizes = [len(next(leaf for leaf in tree.flatten(batch) if leaf is not None)) for batch in held]
    smallest = min(sizes)
    if sizes[rank] == smallest:
        return tree.map_structure(lambda leaf: None if leaf is None else _plain(leaf), held[rank])
    return tree.map_structure(lambda leaf: None if leaf is None else _plain(leaf)[:smallest], held[rank])
