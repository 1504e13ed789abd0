"""Shards data for `fit`: each batch once in an epoch, over all members, also after a restart.

    model.fit(ctx.shard(dataset), ...)

In step i of a gang of k members, rank r gets element i*k+r of a dataset of batches of B examples: the gang trains on
what one process would train on with batches of k*B, in the same order. Every member has the same number of steps, and
in each step all members have the same number of examples.
"""

import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.config.param_values import shown, type_name
from sparktrain.errors import SpecError
from sparktrain.training.data import assignment
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.feed_cursors import note_division
from sparktrain.training.data.position import Cursor, Position
from sparktrain.training.data.row_cursor import BatchCursor
from sparktrain.training.frameworks.keras.epoch_order import EpochOrder, changes, tupled
from sparktrain.training.frameworks.tensorflow.data import class_weights, pipeline


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
) -> Any:
    """The share of member `rank` of `size` in `data`, as a `tf.data.Dataset` of batches; pass it to `fit` as is.

    `data` is one of
    - a `tf.data.Dataset` of batches. Its own shuffling stays; it needs a seed, and TensorFlow's global seed must be the
      same on all members, because `shuffle(seed=...)` uses both;
    - an array, or `(x, y)` or `(x, y, sample_weight)` of arrays or of dicts, lists or tuples of them, with
      first axes of one length: `batch_size` examples at a time, copied only when needed; `shuffle` draws a new order
      for each epoch, the same on all members;
    - a function without parameters that returns an iterator over batches, called for each epoch, or an iterable that
      can be read repeatedly. It must yield the same on all members. A `PyDataset` may change its order in
      `on_epoch_end()`, by Python's or numpy's global generator, which is seeded for each call, or by one that it has
      seeded itself.

    Lists within the data become tuples: to TensorFlow a list is one tensor. `class_weight` is the argument of `fit`,
    which `fit` refuses beside sample weights: it multiplies each example's weight by that of its class.

    `uneven` decides about a last step that lacks batches, or has a smaller one:
    - `drop` drops it; if no batch is missing, all members' batches are cut to the smallest;
    - `repeat` fills it with examples from the start of the epoch;
    - `pad` fills it with examples of weight zero: data gets a sample weight, which is 1 elsewhere. An example then
      weighs the same in every step, because Keras divides by the number of examples, not by the sum of weights.
    A single member drops and fills nothing.

    A resumed epoch starts at the batch of `position`, in the same order as without the interruption. It reads and
    discards the batches before that, except those of arrays. Does not block. Raises SpecError.
    """
    share = assignment.share(rank, size, uneven)
    where = position or Position()
    if isinstance(data, tf.data.Dataset):
        assignment.check_unused("a tf.data.Dataset of batches", batch_size, shuffle)
        return _of_batches(class_weights.by_class(data, class_weight), share, where)
    if assignment.yields_batches(data, tf.nest.flatten):
        assignment.check_unused("an iterable of batches", batch_size, shuffle)
        turns = EpochOrder(data, seed) if changes(data) else None
        return _of_batches(class_weights.by_class(_generated(turns or data), class_weight), share, where, turns)
    return _of_arrays(
        class_weights.by_class(tupled(data), class_weight),
        share,
        assignment.batch_of(batch_size),
        seed if shuffle else None,
        where,
    )


def order_of(data: Any) -> int:
    """A number that differs between datasets that are shuffled, batched or made differently; equal on members with the
    same order of data."""

    def parts(dataset: Any) -> list[Any]:
        seeds = [str(np.asarray(getattr(dataset, name))) for name in ("_seed", "_seed2") if hasattr(dataset, name)]
        return [
            type(dataset).__name__,
            repr(dataset.element_spec),
            seeds,
            [parts(below) for below in dataset._inputs()],
        ]

    return zlib.crc32(repr([parts(data), int(data.cardinality())]).encode())


# --- datasets of batches


def _of_batches(batches: Any, share: BatchShare, position: Position, turns: EpochOrder | None = None) -> Any:
    spec = batches.element_spec
    _check_spec(spec, share)
    if share.size > 1:
        _check_seeds(batches)
    cardinality = int(batches.cardinality())
    even, alike = pipeline.even_batches(batches, share)
    if cardinality >= 0:
        share.steps(cardinality)
        cursor: Cursor = BatchCursor(position, share, int(even.cardinality()))
    else:
        cursor = Cursor(position, None, members=share.size, endless=cardinality == tf.data.INFINITE_CARDINALITY)
    if turns is not None:
        turns.cursor = cursor
    feed = pipeline.resumable(cursor, even, share, position.rank_now, alike=alike)
    # Shuffling draws another order for each iterator, and the rest of the pass would be that of another order.
    if isinstance(cursor, BatchCursor) and share.uneven is Uneven.DROP and not (turns or pipeline.shuffles(batches)):
        note_division(feed, cursor, lambda smaller: pipeline.resumable(cursor, even, smaller, alike=alike))
    position.describe(feed.element_spec, order_of(batches))
    return feed


def _check_spec(spec: Any, share: BatchShare) -> None:
    leaves = tf.nest.flatten(spec)
    if any(getattr(leaf, "shape", None) is not None and leaf.shape.rank == 0 for leaf in leaves):
        raise SpecError(f"the dataset has elements {shown(spec)}, and no batches: call .batch(...) on it first")
    if share.uneven is Uneven.PAD and not (isinstance(spec, tuple) and len(spec) in (2, 3)):
        raise SpecError(f"uneven='pad' gives examples a weight, and needs (x, y) for that, not {shown(spec)}")
    if share.size > 1 and any(isinstance(leaf, tf.SparseTensorSpec) for leaf in leaves):
        raise SpecError("sparse batches cannot be cut or filled to one size: make them dense, or ragged")


def _check_seeds(batches: Any) -> None:
    for dataset in pipeline.shuffles(batches):
        seeds = [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
        if all(seed is not None and not int(seed) for seed in seeds):
            raise SpecError(
                "dataset.shuffle() has no seed, so that each member would shuffle in its own way, and train on some "
                "examples that another member trains on too: pass seed=ctx.seed to it"
            )


# --- arrays


def _of_arrays(data: Any, share: BatchShare, batch: int, seed: int | None, position: Position) -> Any:
    if share.uneven is Uneven.PAD and not (isinstance(data, tuple) and len(data) in (2, 3)):
        raise SpecError(f"uneven='pad' gives examples a weight, and needs (x, y) for that, not a {type_name(data)}")
    arrays = [np.asarray(leaf) for leaf in tf.nest.flatten(data) if leaf is not None]
    length = _length(arrays)
    share.steps(-(-length // batch))
    gather = _Gather(data, arrays, weighed=share.uneven is Uneven.PAD)
    tail = len(share.rows(np.arange(length, dtype=np.int64), batch)[1])
    # Steps expect batches of one size: a smaller last one has no place in those of any share.
    used = length - length % batch if share.uneven is Uneven.DROP and not tail else length
    cursor = BatchCursor(position, share, -(-used // batch))

    def feed_of(share: BatchShare) -> Any:
        feed = _ArrayFeed(lambda: _present(share, position), (length, used), batch, seed, has_last=tail > 0)
        return pipeline.untuned(pipeline.passes(cursor, lambda *start: feed.start_pass(gather, *start), feed.steps))

    feed = feed_of(share)
    if share.uneven is Uneven.DROP:
        note_division(feed, cursor, feed_of)
    position.describe(feed.element_spec, zlib.crc32(repr((length, batch, seed, share.uneven)).encode()))
    return feed


def _present(share: BatchShare, position: Position) -> BatchShare:
    """The share with the rank that this process has now."""
    return share if position.rank_now is None else replace(share, rank=position.rank_now())


class _ArrayFeed:
    """The passes over arrays of one length, for one share."""

    def __init__(
        self, share: Callable[[], BatchShare], lengths: tuple[int, int], batch: int, seed: int | None, *, has_last: bool
    ) -> None:
        """`share` returns it for the pass that starts. `lengths`: all examples, and how many of them, in the order of a
        pass, make up batches. `has_last`: the last batch may have fewer examples than the others."""
        self._length, self._used = lengths
        self.steps = share().steps(-(-self._used // batch))
        self._share = share
        self._batch = batch
        self._seed = seed
        self._has_last = has_last

    def start_pass(self, gather: Any, number: Any, replayed: Any, skipped: Any, taken: Any) -> Any:
        """See `pipeline.passes`."""
        matrix, counts, last, real = tf.numpy_function(self._rows, [number, skipped, taken], [tf.int64] * 4)
        matrix.set_shape([None, self._batch])
        counts.set_shape([None])
        picks = tf.data.Dataset.from_tensor_slices((matrix, counts))
        if self._has_last:
            last.set_shape([None, None])
            real.set_shape([])
            counted = pipeline.plain(lambda indices: (indices, real))
            picks = picks.concatenate(tf.data.Dataset.from_tensor_slices(last).map(counted))
        return picks.map(pipeline.plain(gather), num_parallel_calls=1)

    def _rows(self, number: np.int64, skipped: np.int64, taken: np.int64) -> tuple[Any, ...]:
        share = self._share()
        order = assignment.order(self._length, self._seed, int(number))[taken * self._batch : self._used]
        matrix, last = share.rows(order, self._batch)
        steps = len(matrix) + (len(last) > 0)
        real = np.int64(share.real(len(order), self._batch))
        counts = np.full(steps, self._batch, np.int64)
        counts[-1:] = real
        return (
            matrix[skipped:],
            counts[skipped : len(matrix)],
            last[np.newaxis][: int(len(last) > 0 and skipped < steps)],
            real,
        )


def _length(arrays: list[Any]) -> int:
    lengths = sorted({len(array) if array.ndim else 0 for array in arrays})
    if len(lengths) != 1:
        raise SpecError(f"the arrays have {' and '.join(map(str, lengths))} examples: their first axes must be equal")
    return lengths[0]


class _Gather:
    """Makes a batch from the indices of examples. Arrays stay where they are, such as in a memory-mapped file."""

    def __init__(self, data: Any, arrays: list[Any], *, weighed: bool) -> None:
        self._data = data
        self._arrays = arrays
        self._dtypes = [keras.backend.floatx() if array.dtype == np.float64 else array.dtype for array in arrays]
        self._weighed = weighed

    def __call__(self, picked: Any, real: Any) -> Any:
        types = [tf.as_dtype(dtype) for dtype in self._dtypes]
        gathered = iter(tf.numpy_function(self._take, [picked], types))
        batch = tf.nest.map_structure(lambda array: None if array is None else next(gathered), self._data)
        sources = iter(self._arrays)
        for leaf in tf.nest.flatten(batch):
            if leaf is not None:
                leaf.set_shape([*picked.shape, *next(sources).shape[1:]])
        return pipeline.weighed(batch, tf.cast(real, tf.int32)) if self._weighed else batch

    def _take(self, picked: Any) -> list[Any]:
        return [leaf[picked].astype(dtype, copy=False) for leaf, dtype in zip(self._arrays, self._dtypes, strict=True)]


# --- iterables of batches


def _generated(data: Any) -> Any:
    """A dataset of the batches that a function or an iterable yields."""
    again = data if callable(data) else lambda: data
    if inspect.isgenerator(data) or (hasattr(data, "__next__") and not callable(data)):
        raise SpecError(
            f"the data is {shown(data)}, which can be read only once, and each epoch must read it: pass the function "
            "that makes it, without calling it"
        )
    dataset = tf.data.Dataset.from_generator(_reader(again), output_signature=_signature(again()))
    try:
        length = len(data)
    except TypeError:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(length))


def _reader(again: Callable[[], Iterable[Any]]) -> Callable[[], Any]:
    def read() -> Any:
        for batch in again():
            yield tupled(batch)

    return read


def _signature(batches: Iterable[Any]) -> Any:
    """Types and shapes of the first two batches; None for sides that differ, and for the number of examples."""
    samples = [batch for batch, _ in zip(batches, range(2), strict=False)]
    if not samples:
        raise SpecError("the data yields no batch at all")
    if isinstance(samples[0], list):
        raise SpecError("the data yields lists, and a batch is an array, a dict, or a tuple such as (x, y)")

    def spec(*leaves: Any) -> Any:
        shapes = [np.shape(leaf) for leaf in leaves]
        if not all(shapes) or len({len(shape) for shape in shapes}) > 1:
            raise SpecError(
                f"the data yields {shown(samples[0])}, and batches are arrays with examples along the first axis"
            )
        sides = [side[0] if len(set(side)) == 1 else None for side in list(zip(*shapes, strict=True))[1:]]
        return tf.TensorSpec([None, *sides], tf.as_dtype(np.asarray(leaves[0]).dtype))

    return tf.nest.map_structure(spec, *map(tupled, samples))
