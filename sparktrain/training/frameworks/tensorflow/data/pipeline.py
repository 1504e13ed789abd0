"""The TensorFlow graphs of a feed: passes that start at a position, and a member's share of batches."""

import weakref
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any, cast

import numpy as np
import tensorflow as tf

from sparktrain.training.data.assignment import BatchShare, Uneven, too_few
from sparktrain.training.data.feed_cursors import note_cursor
from sparktrain.training.data.position import Cursor


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without AutoGraph: none of its Python statements needs a conversion to operations."""
    return cast(Callable[..., Any], tf.autograph.experimental.do_not_convert(function))


_AT_ONCE = {
    *("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset", "_UnbatchDataset", "_RebatchDataset"),
    *("_MapDataset", "_ParallelMapDataset", "_FilterDataset", "_PrefetchDataset", "_ZipDataset", "_OptionsDataset"),
    *("_TakeDataset", "_SkipDataset", "_ShardDataset", "_TakeWhileDataset", "_ScanDataset", "_WindowDataset"),
    *("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset", "_AssertCardinalityDataset"),
}
"""Datasets with an iterator that creates those of its inputs at once, and only once."""

_SHARES: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The feeds of this process that are shares of a member already."""


def passes(cursor: Cursor, start_pass: Callable[[Any, Any, Any, Any], Any], steps: int | None) -> Any:
    """A dataset that yields in each pass what `start_pass(number, replayed, skipped, taken)` returns, in a graph: the
    numbers of `PassPlace`.

    It calls `start_pass` for the first element: iterators that are never read, as Keras makes them, start no pass.
    """

    def one(_: Any) -> Any:
        scalars = tf.numpy_function(lambda: np.array(astuple(cursor.next_pass()), np.int64), [], tf.int64)
        scalars.set_shape([4])
        return start_pass(scalars[0], scalars[1], scalars[2], scalars[3])

    feed = tf.data.Dataset.range(1).flat_map(plain(one)).prefetch(tf.data.AUTOTUNE)
    if steps is not None:
        # The graph reports "unknown", and assert_cardinality() would fail in a pass that resumes in its middle.
        feed.cardinality = lambda: tf.constant(steps, tf.int64)
    note_cursor(feed, cursor)
    return feed


def untuned(feed: Any) -> Any:
    """`feed` without its tuning thread: arrays have nothing to tune.

    The thread can end only between two of its computations. On a busy machine, releasing an iterator took seconds,
    during which the member held Python's lock.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    cardinality = feed.cardinality
    feed = _share_with(feed, options)
    feed.cardinality = cardinality
    return feed


def is_share(dataset: Any) -> bool:
    """Whether `dataset` is the share of a member, or is made of one by `map` and the like."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    return dataset in _SHARES or any(is_share(source) for source in dataset._inputs())


def _share_with(feed: Any, options: Any) -> Any:
    """`feed` with `options`, as a share that a strategy of several members leaves whole: see `is_share`."""
    merged = tf.data.Options().merge(options)  # those of a dataset cannot be changed
    merged.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    share = feed.with_options(merged)
    _SHARES.add(share)
    return share


def resumable(
    cursor: Cursor, batches: Any, share: BatchShare, rank_now: Callable[[], int] | None = None, *, alike: bool
) -> Any:
    """The share of the dataset `batches`, in passes from the cursor's position on; `alike`: see `even_batches`.

    `rank_now` returns the rank that a pass has the share of, where that may change.
    """
    cardinality = int(batches.cardinality())
    shard = _member_batches(batches, cardinality, share, alike=alike)
    unknown = cardinality == tf.data.UNKNOWN_CARDINALITY
    replay = _replay(batches, shard)

    @plain
    def start_pass(number: Any, replayed: Any, skipped: Any, taken: Any) -> Any:
        replays = tf.while_loop(lambda i: i < replayed, replay, [tf.constant(0, tf.int64)], parallel_iterations=1)[0]
        with tf.control_dependencies([replays]):
            present = share if rank_now is None else _present(share, rank_now)
            if unknown:
                members_own = shard if rank_now is None else _member_batches(batches, cardinality, present, alike=alike)
                return _measured(members_own, cursor, number).skip(tf.identity(skipped))
            remaining = _member_batches(batches, cardinality, present, tf.identity(taken), alike=alike)
            return remaining.skip(tf.identity(skipped))

    feed = passes(cursor, start_pass, share.steps(cardinality) if cardinality >= 0 else None)
    cardinality_of = feed.cardinality
    feed = _share_with(feed, batches.options())
    feed.cardinality = cardinality_of
    return feed


def _present(share: BatchShare, rank_now: Callable[[], int]) -> BatchShare:
    """The share with the rank that the process has when the pass starts, a tensor, in a graph."""
    rank: Any = tf.numpy_function(lambda: np.array(rank_now(), np.int64), [], tf.int64)
    rank.set_shape([])
    return replace(share, rank=rank)


def shuffles(batches: Any) -> list[Any]:
    """The datasets that shuffle: `batches` itself and those below it."""
    below = [dataset for source in batches._inputs() for dataset in shuffles(source)]
    return [batches, *below] if hasattr(batches, "_reshuffle_each_iteration") else below


def _replay(batches: Any, shard: Any) -> Callable[[Any], Any]:
    """Replays a pass of an earlier process: it advances all that shuffles as that pass did."""

    @plain
    def replay(number: Any) -> Any:
        cost = _replay_cost(batches)
        if cost == 0:
            return number + 1
        if cost == 1:  # creates the iterator, and reads nothing
            read = tf.data.Dataset.choose_from_datasets(
                [batches], tf.data.Dataset.range(0), stop_on_empty_dataset=False
            )
        else:
            read = shard.take(1) if cost == 2 else shard
        return number + 1 + read.reduce(tf.constant(0, tf.int64), plain(lambda zero, *_: zero))

    return replay


def _replay_cost(dataset: Any, lazily: bool = False) -> int:
    """0: nothing shuffles; 1: a replay needs an iterator; 2: and its first element; 3: all elements, to be sure."""
    if not shuffles(dataset):
        return 0
    inputs = dataset._inputs()
    if hasattr(dataset, "_reshuffle_each_iteration"):  # creates the iterator of its input at the first read
        below = max((_replay_cost(source, lazily=True) for source in inputs), default=0)
        return max(below, 2 if lazily else 1)
    if type(dataset).__name__ not in _AT_ONCE:
        return 3  # such as repeat(), concatenate() and cache()
    return max(_replay_cost(source, lazily) for source in inputs)


def even_batches(batches: Any, share: BatchShare) -> tuple[Any, bool]:
    """`batches` without a smaller last one that the rounds of `share` drop; and whether those that are left are alike:
    certain to have the same number of examples, also for another share."""
    cardinality = int(batches.cardinality())
    if _alike(batches, False):
        return batches, True
    if cardinality >= 0 and share.uneven is Uneven.DROP and cardinality % share.size and _alike(batches, True):
        return batches.take(cardinality - 1), True
    return batches, False


def _member_batches(batches: Any, cardinality: int, share: BatchShare, taken: Any = 0, *, alike: bool) -> Any:
    """This member's batches of those after the first `taken`, which is above 0 where incomplete rounds are dropped.

    It reads all batches: only so are those of a shuffled dataset the same on all members.
    """
    if cardinality >= 0:
        even = share.uneven is Uneven.DROP or cardinality % share.size == 0
    else:
        even = cardinality == tf.data.INFINITE_CARDINALITY
    if even and (share.size == 1 or alike):
        rounds = _whole_rounds(batches, cardinality, share, taken)
        # Batches that are certain to be alike need no comparison of each round: this is as fast as TensorFlow's own
        # sharding.
        shard = rounds.shard(share.size, share.rank)
        return shard.map(plain(lambda *batch: weighed(_packed(batch), None))) if share.uneven is Uneven.PAD else shard
    return _in_rounds(batches if cardinality < 0 else batches.skip(taken), share)


def _whole_rounds(batches: Any, cardinality: int, share: BatchShare, taken: Any) -> Any:
    """The batches after the first `taken` that make up whole rounds."""
    if cardinality < 0 or share.uneven is not Uneven.DROP:
        return batches
    remaining = cardinality - taken
    return batches.skip(taken).take(remaining - remaining % share.size)


def _alike(batches: Any, but_last: bool) -> bool:
    """Whether all batches are known, without reading them, to have the same number of examples."""
    shapes = [spec.shape for spec in tf.nest.flatten(batches.element_spec) if hasattr(spec, "shape")]
    if all(shape.rank and shape[0] is not None for shape in shapes):
        return True
    while type(batches).__name__ in ("_MapDataset", "_ParallelMapDataset", "_PrefetchDataset", "_OptionsDataset"):
        [batches] = batches._inputs()
    if type(batches).__name__ not in ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"):
        return False
    [examples] = batches._inputs()
    return but_last or (examples.cardinality() >= 0 and int(examples.cardinality() % batches._batch_size) == 0)


def _packed(batch: tuple[Any, ...]) -> Any:
    """The element of a dataset from the arguments of a mapped function."""
    return batch if len(batch) > 1 else batch[0]


class _Held:
    """Holds a batch, or none, as one scalar: the state of a dataset's scan takes only such values."""

    def __init__(self, spec: Any) -> None:
        self._spec = spec
        parts = tf.nest.flatten(spec, expand_composites=True)
        self._types = [part.dtype for part in parts if isinstance(part, tf.TensorSpec)]
        self._shapes = [part.shape for part in parts if isinstance(part, tf.TensorSpec)]
        self.void = tf.raw_ops.OptionalNone()

    def hold(self, *batch: Any) -> Any:
        parts = tf.nest.flatten(_packed(batch), expand_composites=True)
        return tf.raw_ops.OptionalFromValue(components=[part for part in parts if part is not None])

    def full(self, held: Any) -> Any:
        return tf.raw_ops.OptionalHasValue(optional=held)

    def batch(self, held: Any) -> Any:
        kwargs = {"output_types": self._types, "output_shapes": self._shapes}
        parts = iter(tf.raw_ops.OptionalGetValue(optional=held, **kwargs))
        leaves = tf.nest.flatten(self._spec, expand_composites=True)
        flat = [next(parts) if isinstance(leaf, tf.TensorSpec) else None for leaf in leaves]
        return tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True)

    def rows(self, held: Any) -> Any:
        return tf.cond(self.full(held), lambda: rows(self.batch(held)), lambda: 0)


def _in_rounds(batches: Any, share: BatchShare) -> Any:
    """This member's batch of each round, with as many examples as those of the others.

    The state is the round so far. Empty values follow the end of the data, so that the last round appears as well.
    """
    holds = _Held(batches.element_spec)
    values = batches.map(plain(holds.hold)).concatenate(tf.data.Dataset.from_tensors(holds.void).repeat(share.size - 1))

    @plain
    def step(state: Any, held: Any) -> Any:
        count, real, small, large, batch, first = state
        slot = count % share.size
        full = holds.full(held)
        size = holds.rows(held)
        real = tf.where(slot == 0, 0, real) + tf.cast(full, tf.int32)
        small = tf.where(slot == 0, size, tf.where(full, tf.minimum(small, size), small))
        large = tf.maximum(tf.where(slot == 0, 0, large), size)
        batch = tf.where(slot == share.rank, held, batch)
        first = tf.where(count == share.rank, held, first)
        short = (count == share.size - 1) & (real < share.size)
        with tf.control_dependencies([tf.debugging.Assert(~short, [too_few("Too few batches", share.size)])]):
            return (count + 1, real, small, large, batch, first), (
                slot == share.size - 1,
                real,
                small,
                large,
                batch,
                first,
            )

    none = tf.constant(0)
    start = (tf.constant(0, tf.int64), none, none, none, holds.void, holds.void)
    rounds = values.scan(start, step).filter(plain(lambda ends, *_: ends))
    if share.uneven is Uneven.DROP:
        rounds = rounds.take_while(plain(lambda ends, real, *_: real == share.size))
    return rounds.map(plain(lambda ends, real, *fields: _evened(share.uneven, holds, *fields)))


def _evened(uneven: Uneven, holds: _Held, small: Any, large: Any, member_batch: Any, first: Any) -> Any:
    """A member's batch, cut to the smallest or filled to the largest of its round."""
    if uneven is Uneven.DROP:
        return _chosen(holds.batch(member_batch), tf.range(small))
    real = holds.rows(member_batch)
    filling = holds.batch(first)
    batch = tf.cond(holds.full(member_batch), lambda: holds.batch(member_batch), lambda: _chosen(filling, tf.range(0)))
    filler = _chosen(filling, tf.range(large - real) % rows(filling))
    filled = tf.nest.map_structure(
        lambda leaf, more: None if leaf is None else tf.concat([leaf, more], axis=0), batch, filler
    )
    return weighed(filled, real) if uneven is Uneven.PAD else filled


def rows(batch: Any) -> Any:
    """The number of examples in `batch`."""
    leaf = next(tensor for tensor in tf.nest.flatten(batch) if tensor is not None)
    return tf.cast(leaf.nrows(), tf.int32) if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0]


def _chosen(batch: Any, indices: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: None if leaf is None else tf.gather(leaf, indices), batch)


def weighed(batch: Any, real: Any) -> Any:
    """`(x, y, weights)` of a batch; all examples after the first `real` ones get weight 0; None: no example does."""
    count = rows(batch)
    weights = tf.cast(tf.range(count) < (count if real is None else real), tf.float32)
    x, y, sample_weights = batch if len(batch) == 3 else (*batch, None)
    if sample_weights is None:
        return x, y, weights

    def scaled(leaf: Any) -> Any:
        return leaf * tf.cast(tf.reshape(weights, [-1] + [1] * (leaf.shape.rank - 1)), leaf.dtype)

    return x, y, tf.nest.map_structure(scaled, sample_weights)


def _measured(shard: Any, cursor: Cursor, number: Any) -> Any:
    """`shard`, of unknown length: it reports the length to the cursor before its last element."""

    def report(number: np.int64, steps: np.int64) -> np.int64:
        cursor.end_pass(int(number), int(steps))
        return steps

    @plain
    def step(state: Any, successor: Any) -> Any:
        steps, held = state
        has_next = holds.full(successor)
        last = holds.full(held) & ~has_next
        reported = tf.cond(last, lambda: tf.numpy_function(report, [number, steps], tf.int64), lambda: steps)
        with tf.control_dependencies([reported]):
            return (steps + tf.cast(has_next, tf.int64), successor), (holds.full(held), held)

    holds = _Held(shard.element_spec)
    values = shard.map(plain(holds.hold)).concatenate(tf.data.Dataset.from_tensors(holds.void))
    ahead = values.scan((tf.constant(0, tf.int64), holds.void), step)
    return ahead.filter(plain(lambda ready, held: ready)).map(plain(lambda ready, held: holds.batch(held)))


def symbolic_batch(spec: Any) -> Any:
    """A dataset's `spec` as Keras builds a model with it; None where a part of it is no dense tensor."""
    leaves = [] if spec is None else tf.nest.flatten(spec)
    if not leaves or not all(isinstance(leaf, tf.TensorSpec | tf.NoneTensorSpec) for leaf in leaves):
        return None
    return tf.nest.map_structure(lambda leaf: leaf if isinstance(leaf, tf.TensorSpec) else None, spec)
