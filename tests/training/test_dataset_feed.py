"""`to_tf` of a dataset: the parts of a batch, their types, and what is refused before training."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from sparktrain.errors import DataError, SpecError
from sparktrain.training.data import feed_request
from sparktrain.training.data.training_data import TrainingData
from tests.training import rowed

ROWS = 45


def table() -> pa.Table:
    ids = np.arange(ROWS)
    return pa.table(
        {
            "id": ids,
            "half": ids / 2,
            "small": ids.astype(np.int8),
            "name": [f"row {each}" for each in ids],
            "image": pa.array([int(each).to_bytes(4, "little") for each in ids]),
            "pair": pa.array([[each, -each] for each in ids.tolist()]),
            "weight": (ids % 3).astype(np.float32),
            "label": (ids % 2).astype(np.int32),
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("data")
    return rowed.parquet(folder, table()), folder / "cache"


@pytest.fixture
def data(made: tuple[Any, Path]) -> TrainingData:
    ref, cache = made
    return rowed.opened(ref, cache=cache)


def ids_of(feed: Any) -> list[int]:
    """The numbers in a feed without labels."""
    return [int(each) for x in feed for each in x]


def test_a_batch_has_features_labels_and_weights_in_their_types(data: TrainingData) -> None:
    feed = data.to_tf(batch_size=10, label_columns="label", weight_column="weight")
    [x, y, w] = next(iter(feed))

    assert list(x) == ["id", "half", "small", "name", "image", "pair"]
    assert {name: (each.dtype.name, each.shape.as_list()) for name, each in x.items()} == {
        "id": ("int64", [10]),
        "half": ("float32", [10]),
        "small": ("int8", [10]),
        "name": ("string", [10]),
        "image": ("uint8", [10, 4]),
        "pair": ("int64", [10, 2]),
    }
    assert x["name"].numpy().tolist() == [f"row {each}".encode() for each in range(10)]
    assert x["image"].numpy().tolist() == [[each, 0, 0, 0] for each in range(10)]
    assert x["pair"].numpy().tolist() == [[each, -each] for each in range(10)]
    assert y.numpy().tolist() == [0, 1] * 5
    assert w.numpy().tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    spec = feed.element_spec
    assert spec[0]["pair"].shape.as_list() == [None, 2]
    assert int(feed.cardinality()) == 5


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"feature_columns": "pair"}, (2,)),
        ({"feature_columns": ["half", "small"], "stack": True}, (2,)),
        ({"feature_columns": ["half"], "stack": True}, (1,)),
        ({"feature_columns": "half"}, ()),
    ],
)
def test_one_tensor_of_features(data: TrainingData, options: Any, spec: tuple[int, ...]) -> None:
    x = next(iter(data.to_tf(batch_size=4, **options)))

    assert tuple(x.shape[1:]) == spec
    weighed = next(iter(data.to_tf(batch_size=4, weight_column="weight", **options)))
    assert weighed[1] is None
    assert weighed[2].numpy().tolist() == [0, 1, 2, 0]
    labelled = next(iter(data.to_tf(batch_size=4, label_columns=["label", "small"], **options)))
    assert sorted(labelled[1]) == ["label", "small"]


def test_doubles_keep_their_digits_under_floatx_of_64_bits(data: TrainingData) -> None:
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        x = next(iter(data.to_tf(batch_size=4, feature_columns="half")))
    finally:
        keras.config.set_floatx(before)
    assert x.dtype == tf.float64


def test_passes_differ_and_repeat_for_the_same_seed(made: tuple[Any, Path]) -> None:
    ref, cache = made

    def passes(seed: int | None) -> list[list[int]]:
        feed = rowed.opened(ref, cache=cache).to_tf(batch_size=4, feature_columns="id", shuffle=True, seed=seed)
        return [ids_of(feed) for _ in range(3)]

    first = passes(None)
    assert [sorted(each) for each in first] == [list(range(ROWS))] * 3
    assert first[0] != first[1] != first[2]
    assert first == passes(None) == passes(rowed.SEED)
    assert first != passes(rowed.SEED + 1)


@pytest.mark.parametrize("chunk", [1, 4, 9, 4096])
@pytest.mark.parametrize("uneven", ["drop", "repeat", "pad"])
def test_chunks_of_any_size_carry_the_same_batches(
    made: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch, chunk: int, uneven: str
) -> None:
    monkeypatch.setattr(feed_request, "CHUNK_ROWS", chunk)
    ref, cache = made
    found = []
    for rank in range(2):
        member = rowed.opened(ref, rank, 2, cache=cache)
        feed = member.to_tf(batch_size=4, feature_columns="id", label_columns="label", shuffle=True, uneven=uneven)
        found.append([[np.ravel(part).tolist() for part in batch] for batch in feed])
    lengths = [[len(x) for x, *_ in batches] for batches in found]
    weighed = [zip(x, *w or [[1] * len(x)], strict=True) for batches in found for x, _, *w in batches]
    real = [row for batch in weighed for row, weight in batch if weight]

    assert lengths[0] == lengths[1] == [4] * 5 + [1 if uneven == "drop" else 4]
    assert set(real) <= set(range(ROWS))
    assert len(set(real)) == (42 if uneven == "drop" else ROWS)
    assert len(real) == (48 if uneven == "repeat" else len(set(real)))


def test_iterators_of_one_feed_do_not_disturb_each_other(data: TrainingData) -> None:
    feed = data.to_tf(batch_size=1, feature_columns="id", shuffle=True)
    first = iter(feed)
    begun = [int(next(first)[0])]
    second = ids_of(feed)
    whole = [*begun, *(int(x[0]) for x in first)]

    assert sorted(whole) == sorted(second) == list(range(ROWS))
    assert whole != second


def test_arrays_are_those_of_to_tf(data: TrainingData) -> None:
    batches = list(data.iter_batches(batch_size=10, shuffle=True, epoch=2, columns=["id", "pair"]))
    feed = data.to_tf(batch_size=10, feature_columns="id", shuffle=True)
    third = [ids_of(feed) for _ in range(3)][2]

    assert [int(each) for batch in batches for each in batch["id"]] == third
    rest = list(data.iter_batches(batch_size=10, shuffle=True, epoch=2, columns=["id"], skip=3))
    assert [each["id"].tolist() for each in rest] == [each["id"].tolist() for each in batches[3:]]
    whole = data.to_numpy()
    assert list(whole) == table().column_names
    assert whole["id"].tolist() == list(range(ROWS))
    assert whole["id"].flags.writeable


def test_shares_of_arrays_are_balanced(made: tuple[Any, Path]) -> None:
    ref, cache = made
    shares = [rowed.opened(ref, rank, 4, cache=cache).to_numpy(["id"])["id"].tolist() for rank in range(4)]

    assert [len(each) for each in shares] == [11, 11, 11, 12]
    assert [row for share in shares for row in share] == list(range(ROWS))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"feature_columns": ["ids", "halv"]}, DataError,
         "data['train'] has no column 'ids'; did you mean 'id'? and no column 'halv'; did you mean 'half'?"),
        ({"label_columns": "lable"}, DataError, "no column 'lable'; did you mean 'label'?"),
        ({"weight_column": "wight"}, DataError, "no column 'wight'; did you mean 'weight'?"),
        ({"feature_columns": ["half", "name"], "stack": True}, DataError, "stack joins columns of numbers, and 'name'"),
        ({"feature_columns": []}, SpecError, "data['train'] has no columns left for features"),
        ({"uneven": "pad"}, SpecError, "uneven='pad' gives rows a weight, and needs labels for that"),
        ({"feature_columns": 3}, SpecError, "feature_columns is 3 (int), the name of a column or a list of names"),
        ({"feature_columns": [("half",)]}, SpecError, "a list of names is expected"),
        ({"label_columns": []}, SpecError, "names no column: leave it out, or name one"),
        ({"weight_column": ["weight"]}, SpecError, "weight_column is ['weight'] (list), the name of one column"),
        ({"weight_column": "name"}, DataError, "weight_column 'name' is string, and a weight is one number"),
        ({"weight_column": "pair"}, DataError, "weight_column 'pair' is list<int64>, and a weight is one number"),
        ({"label_columns": "name", "class_weight": {0: 1.0}}, SpecError,
         "class_weight needs classes as numbers from 0, and labels are string: index them, in Spark with"),
        ({"uneven": "cut"}, SpecError, "uneven ('cut') must be one of drop, pad, repeat"),
        ({"batch_size": 0}, SpecError, "batch_size (0) must be at least 1"),
        ({"shuffle": True, "seed": 1.5}, SpecError, "seed is 1.5 (float), a whole number is expected"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(data: TrainingData, options: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        data.to_tf(**{"batch_size": 4, **options})


@pytest.mark.parametrize(
    ("size", "batch", "words"), [(46, 1, "45 rows for 46 members"), (4, 20, "3 batches for 4 members")]
)
def test_too_few_rows_are_refused_with_both_numbers(made: tuple[Any, Path], size: int, batch: int, words: str) -> None:
    member = rowed.opened(made[0], 0, size, cache=made[1])

    with pytest.raises(SpecError, match=words):
        member.to_tf(batch_size=batch)
    with pytest.raises(SpecError, match=words):
        member.iter_batches(batch_size=batch)
    assert len(rowed.opened(made[0], size - 1, size, cache=made[1]).to_numpy(["id"])["id"]) in (0, 1, 11, 12)


@pytest.mark.parametrize("options", [{"epoch": -1}, {"epoch": "1"}, {"skip": -1}, {"skip": None}, {"skip": True}])
def test_a_loop_resumes_at_a_number_from_0(data: TrainingData, options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"(epoch|skip) is .*, a number from 0 is expected"):
        data.iter_batches(batch_size=4, **options)


def test_a_batch_larger_than_memory_has_all_rows(data: TrainingData) -> None:
    assert [len(each) for each in data.to_tf(batch_size=10**12, feature_columns="id")] == [ROWS]


def test_no_strategy_shards_a_share_again(data: TrainingData) -> None:
    options = data.to_tf(batch_size=4, feature_columns="id").options()
    assert options.experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.OFF
