"""Every example once in an epoch, over all members, whatever the data is."""

import re
from itertools import chain
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.tensorflow.data.shard import order_of, shard
from tests.training.gluing import BATCH, EXAMPLES, feed_of, generator, ids, steps_of

OTHER_SIZES = pytest.mark.all(
    case="the other kinds of data in gangs of two and of four, and in epochs that are padded or repeated",
    covered_by="half of the combinations",
)

PAIRS = ("known", "arrays", "rows")
FOURS = ("unknown", "generator")
"""Kinds of data that gangs of two, and of four, have in `make test`; `make test-all` has the product."""
KINDS = (*PAIRS, *FOURS)
BATCHES = -(-EXAMPLES // BATCH)


def read(data: Any) -> list[list[list[int]]]:
    """One pass: for each batch its examples, and their weights where there are any."""
    return [[np.ravel(part).astype(int).tolist() for part in (batch[0], *batch[2:])] for batch in data]


def gang(kind: str, size: int, uneven: str) -> list[Any]:
    return [feed_of(kind, None, rank=rank, size=size, uneven=uneven) for rank in range(size)]


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        *((4, kind) for kind in FOURS),
        *((2, kind) for kind in PAIRS),
        *(pytest.param(4, kind, marks=OTHER_SIZES) for kind in PAIRS),
        *(pytest.param(2, kind, marks=OTHER_SIZES) for kind in FOURS),
    ],
)
def test_a_gang_is_fed_what_one_process_is_in_each_of_its_epochs(kind: str, size: int) -> None:
    alone = feed_of(kind, None)
    feeds = gang(kind, size, "drop")

    for _ in range(2):
        batches = [examples for [examples] in read(alone)]
        rounds = list(zip(*(read(feed) for feed in feeds), strict=True))
        given = [list(chain.from_iterable(examples for [examples] in each)) for each in rounds]
        assert sorted(chain.from_iterable(batches)) == list(range(EXAMPLES))
        whole = [
            list(chain.from_iterable(batches[i * size : (i + 1) * size])) for i in range(EXAMPLES // BATCH // size)
        ]
        assert given[: len(whole)] == whole
        assert len(given) == BATCHES // size


@pytest.mark.parametrize(
    ("uneven", "kind"),
    [
        *(("pad", kind) for kind in FOURS),
        *(("repeat", kind) for kind in PAIRS),
        *(pytest.param("pad", kind, marks=OTHER_SIZES) for kind in PAIRS),
        *(pytest.param("repeat", kind, marks=OTHER_SIZES) for kind in FOURS),
    ],
)
def test_a_filled_epoch_has_every_example(kind: str, uneven: str) -> None:
    members = [read(feed) for feed in gang(kind, 4, uneven)]
    counts = np.zeros(EXAMPLES, int)
    for batch in chain.from_iterable(members):
        weights = batch[1] if uneven == "pad" else [1] * len(batch[0])
        np.add.at(counts, batch[0], weights)

    assert [[len(batch[0]) for batch in batches] for batches in members] == [[BATCH] * 6] * 4
    assert (counts == 1).all() if uneven == "pad" else (counts.min() == 1 and counts.sum() == 4 * 6 * BATCH)


@pytest.mark.parametrize("uneven", ["drop", "pad", "repeat"])
def test_arrays_datasets_and_generators_are_shared_alike(uneven: str) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((ids, ids)).batch(BATCH)
    place: Any = {"rank": 2, "size": 4, "uneven": uneven}

    wanted = read(shard((ids, ids), batch_size=BATCH, **place))
    assert wanted == read(shard(dataset, **place))
    assert wanted == read(shard(dataset.filter(lambda x, y: True), **place))
    assert wanted == read(shard(generator, **place))
    assert wanted == read(shard(list(generator()), **place))


def test_batches_of_one_round_are_cut_to_the_smallest() -> None:
    data = tf.data.Dataset.from_tensor_slices((ids[:11], ids[:11])).batch(4)

    assert [read(shard(data, rank=rank, size=3)) for rank in range(3)] == [[[[0, 1, 2]]], [[[4, 5, 6]]], [[[8, 9, 10]]]]


def test_a_smaller_batch_is_found_wherever_it_comes() -> None:
    def second_of(data: Any, size: int = 2) -> list[list[int]]:
        return [batch.numpy().tolist() for batch in shard(data, rank=1, size=size)]

    rows = tf.data.Dataset.range(16)
    assert second_of(rows.batch(4).prefetch(1)) == [[4, 5, 6, 7], [12, 13, 14, 15]]
    assert second_of(rows.take(14).batch(4).map(lambda x: x)) == [[4, 5, 6, 7], [12, 13]]
    assert second_of(rows.take(11).batch(4)) == [[4, 5, 6, 7]]
    assert second_of(rows.take(6).batch(4).repeat(2)) == [[4, 5], [4, 5]]
    assert second_of(rows.take(6).batch(4).concatenate(rows.batch(4)), size=3) == [[4, 5], [8, 9, 10, 11]]


def test_weights_that_the_data_has_are_kept_and_those_of_fillers_are_zero() -> None:
    weights = np.linspace(1, 2, 10, dtype=np.float32)
    data = tf.data.Dataset.from_tensor_slices((ids[:10], ids[:10], weights)).batch(4)
    place: Any = {"size": 2, "uneven": "pad"}

    for given in (shard(data, rank=0, **place), shard((ids[:10], ids[:10], weights), rank=0, batch_size=4, **place)):
        np.testing.assert_allclose(list(given)[-1][2], weights[8:10])
    for given in (shard(data, rank=1, **place), shard((ids[:10], ids[:10], weights), rank=1, batch_size=4, **place)):
        np.testing.assert_allclose(list(given)[-1][2], [0, 0])


def test_arrays_keep_their_structure_and_their_kinds() -> None:
    data = ({"a": np.arange(6.0), "b": np.array(["x", "y"] * 3)}, np.arange(6, dtype=np.int8))
    [[x, y], _] = list(shard(data, rank=1, size=2, batch_size=2, uneven="repeat"))

    assert x["a"].dtype == tf.float32  # as fit would have it
    assert x["a"].numpy().tolist() == [2.0, 3.0]
    assert x["b"].numpy().tolist() == [b"x", b"y"]
    assert y.dtype == tf.int8
    assert shard(np.arange(6), rank=0, size=1, batch_size=2).element_spec.shape == [2]


def test_ragged_batches_are_filled_too() -> None:
    rows = tf.ragged.constant([[1], [2, 2], [3], [4, 4, 4], [5]])
    data = tf.data.Dataset.from_tensor_slices(rows).batch(2)

    [*_, last] = shard(data, rank=0, size=2, uneven="repeat")
    assert last.to_list() == [[5]]
    [first] = shard(data, rank=1, size=3)
    assert first.to_list() == [[3]]


def test_steps_are_known_beforehand_where_they_can_be() -> None:
    assert steps_of(feed_of("arrays", None, rank=1, size=4)) == 5
    assert steps_of(feed_of("known", None, rank=1, size=4, uneven="pad")) == 6
    assert steps_of(feed_of("unknown", None)) is None
    assert steps_of(feed_of("endless", None)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_no_strategy_shards_a_share_again(kind: str) -> None:
    options = feed_of(kind, None, rank=1, size=4).options()
    assert options.experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.OFF


def test_datasets_in_another_order_have_other_numbers() -> None:
    plain = tf.data.Dataset.range(20)
    numbers = [order_of(plain.shuffle(20, seed=seed).batch(size)) for seed in (1, 1, 2) for size in (2, 4)]

    assert numbers[:2] == numbers[2:4]
    assert len(set(numbers)) == 4


def test_no_example_is_read_for_earlier_epochs() -> None:
    made: list[int] = []
    noted = tf.data.Dataset.range(40).map(
        lambda x: tf.numpy_function(lambda y: (made.append(int(y)), y)[1], [x], tf.int64)
    )
    position = Position()
    data = shard(
        noted.shuffle(40, seed=1).map(lambda x: tf.ensure_shape(x, [])).batch(4), rank=0, size=1, position=position
    )
    position.start_fit(10)
    position.resume(50, 0, 500)
    position.start_epoch(50)

    assert sorted(np.concatenate(list(data))) == list(range(40))
    assert sorted(made) == list(range(40))


def test_iterators_that_are_not_read_start_no_epoch() -> None:
    data, other = feed_of("known", None), feed_of("known", None)
    idle = [iter(data) for _ in range(3)]

    assert read(data) == read(other)
    assert read(idle[0]) == read(other)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (tf.data.Dataset.range(3).batch(1), {}, "3 batches for 4 members: each member needs at least one batch"),
        (np.zeros((12, 2)), {"batch_size": 4}, "3 batches for 4 members"),
        (np.zeros(12), {}, "batch_size is None (NoneType); pass the examples of one member's batch"),
        (np.zeros(12), {"batch_size": 0}, "batch_size (0) must be at least 1"),
        ((np.zeros(12), np.zeros(11)), {"batch_size": 1}, "the arrays have 11 and 12 examples"),
        (np.zeros(12), {"batch_size": 1, "uneven": "pad"}, "needs (x, y) for that, not a numpy.ndarray"),
        (tf.data.Dataset.range(9), {}, "and no batches: call .batch(...) on it first"),
        (tf.data.Dataset.range(9).batch(1), {"uneven": "pad"}, "needs (x, y) for that"),
        (tf.data.Dataset.range(9).batch(1), {"batch_size": 2}, "batch_size (2) is for arrays"),
        (tf.data.Dataset.range(9).batch(1), {"shuffle": True}, "shuffle (True) is for arrays"),
        (generator(), {}, "pass the function that makes it, without calling it"),
        (lambda: iter(()), {}, "the data yields no batch at all"),
        (lambda: iter([[1, 2]]), {}, "the data yields lists"),
        (lambda: iter([1, 2]), {}, "batches are arrays with examples along the first axis"),
    ],
)
def test_data_that_cannot_be_shared_is_an_error(data: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        shard(data, rank=0, size=4, **options)


def test_members_that_would_shuffle_each_in_its_own_way_are_an_error() -> None:
    tf.random.set_seed(None)  # a global seed, which another test may have set, gives every shuffle one
    data = tf.data.Dataset.range(20).shuffle(20).batch(2)

    with pytest.raises(SpecError, match=re.escape("pass seed=ctx.seed to it")):
        shard(data, rank=0, size=2)
    assert steps_of(shard(data, rank=0, size=1)) == 10


def test_too_little_data_of_unknown_length_is_an_error_when_it_ends() -> None:
    data = shard(tf.data.Dataset.range(3).filter(lambda x: True).batch(1), rank=0, size=4)

    with pytest.raises(tf.errors.InvalidArgumentError, match="for 4 members: each member needs at least one batch"):
        list(data)


def test_several_inputs_are_lists_or_tuples_of_arrays() -> None:
    x, y = np.arange(16.0).reshape(8, 2), np.arange(8)
    for given in ([x, x + 1], (x, x + 1)):
        second = list(shard((given, y), rank=1, size=2, batch_size=2))
        assert [[part.numpy().tolist() for part in inputs] for inputs, _ in second] == [
            [x[2:4].tolist(), (x[2:4] + 1).tolist()],
            [x[6:8].tolist(), (x[6:8] + 1).tolist()],
        ]
    (batch,) = shard(lambda: iter([([x, x], y)]), rank=0, size=1)
    assert [part.shape for part in batch[0]] == [(8, 2), (8, 2)]


class Shuffled(keras.utils.PyDataset):  # type: ignore[misc] # Keras has no types
    """Shuffles between epochs, by the generator that others draw from too."""

    def __init__(self, own: Any = None) -> None:
        super().__init__()
        self.own = own
        self.order = np.arange(12)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.order[2 * index : 2 * index + 2]

    def on_epoch_end(self) -> None:
        (np.random if self.own is None else self.own).shuffle(self.order)


@pytest.mark.parametrize("own", [None, 3])
def test_a_pydataset_may_shuffle_between_epochs(own: int | None) -> None:
    def made(**place: Any) -> Any:
        data = Shuffled(None if own is None else np.random.default_rng(own))
        return shard(data, **({"rank": 0, "size": 1, "seed": 5} | place))

    def numbers(data: Any) -> list[int]:
        return [int(each) for batch in data for each in batch]

    np.random.seed(0)
    whole = made()
    epochs = [numbers(whole) for _ in range(3)]
    np.random.seed(1)
    drawn = np.random.get_state()[1].tolist()
    members = [made(rank=rank, size=2) for rank in range(2)]
    halves = [[numbers(member) for _ in range(3)] for member in members]

    assert epochs[0] == list(range(12))
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch, parts in zip(epochs, zip(*halves, strict=True), strict=True):
        assert sorted([*parts[0], *parts[1]]) == list(range(12))
        assert parts[0][:2] == epoch[:2]
        assert parts[1][:2] == epoch[2:4]
    assert np.random.get_state()[1].tolist() == drawn


def test_a_pydataset_resumes_in_the_middle_of_an_epoch() -> None:
    straight = shard(Shuffled(), rank=0, size=1, seed=5)
    for _ in range(2):
        list(straight)
    third = [batch.numpy().tolist() for batch in straight]
    position = Position()
    resumed = shard(Shuffled(), rank=0, size=1, seed=5, position=position)
    position.start_fit(6)
    position.resume(2, 4, 16)
    position.start_epoch(2)

    assert [batch.numpy().tolist() for batch in resumed] == third[4:]


@pytest.mark.parametrize("classes", [np.array([0, 1, 2, 1, 0]), np.eye(3)[[0, 1, 2, 1, 0]]])
def test_classes_have_weights_beside_those_of_padding(classes: Any) -> None:
    x = np.zeros((5, 1))
    place: dict[str, Any] = {"rank": 0, "size": 1, "uneven": "pad", "class_weight": {0: 0.5, 1: 3.0}}
    dataset = tf.data.Dataset.from_tensor_slices((x, classes)).batch(2)
    batches = lambda: iter([(x[at : at + 2], classes[at : at + 2]) for at in (0, 2, 4)])  # noqa: E731

    for data in (shard((x, classes), batch_size=2, **place), shard(dataset, **place), shard(batches, **place)):
        found = np.concatenate([weights for _, _, weights in data]).tolist()
        assert [each for each in found if each] == [0.5, 3.0, 1.0, 3.0, 0.5]
    given = np.array([2.0, 1, 1, 1, 0])
    found = [weights.numpy().tolist() for *_, weights in shard((x, classes, given), batch_size=5, **place)]
    assert found == [[1.0, 3.0, 1.0, 3.0, 0.0]]


@pytest.mark.parametrize(
    ("data", "weights", "words"),
    [
        (np.zeros(4), {0: 1.0}, "needs (x, y) with classes of one output"),
        ((np.zeros(4), (np.zeros(4), np.zeros(4))), {0: 1.0}, "needs (x, y) with classes of one output"),
        ((np.zeros(4), np.zeros((4, 2, 2))), {0: 1.0}, "one class for each example, and y has the shape (4, 2, 2)"),
        ((np.zeros(4), np.zeros(4)), [1.0], "pass a dict such as {0: 1.0, 1: 5.0}"),
        ((np.zeros(4), np.zeros(4)), {"a": 1.0}, "pass a dict such as {0: 1.0, 1: 5.0}"),
    ],
)
def test_weights_that_no_class_has_are_an_error(data: Any, weights: Any, words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        shard(data, rank=0, size=1, batch_size=2, class_weight=weights)


@pytest.mark.parametrize("labels", [["a", "b", "a"], [b"a", b"b", b"a"], np.array(["a", "b", "a"], dtype=object)])
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_weights_of_texts_are_refused_with_how_to_index_them(labels: Any, kind: str) -> None:
    arrays = np.zeros((3, 1), "float32"), np.asarray(labels)
    data = arrays if kind == "arrays" else tf.data.Dataset.from_tensor_slices(arrays).batch(2)
    options = {"batch_size": 2} if kind == "arrays" else {}
    with pytest.raises(SpecError, match="classes as numbers from 0, and labels are string: index them, in Spark with"):
        shard(data, rank=0, size=1, class_weight={0: 1.0}, **options)
