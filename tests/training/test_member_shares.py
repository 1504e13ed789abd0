"""Shares of members under TensorFlow's strategy of all members are whole, and data of the user's own is not touched."""

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from sparktrain.errors import StrategyError
from sparktrain.training.frameworks.tensorflow.strategies import workarounds
from tests.training.cluster_functions import BATCH, EPOCHS, ROWS
from tests.training.cluster_functions import shares as shares_of
from tests.training.clusters import results
from tests.training.gluing import feed_of, ids

KINDS = ("known", "unknown", "arrays", "generator", "rows")


class Strategy:
    """In place of TensorFlow's: notes what it distributes, and how."""

    def __init__(self, devices: int = 1) -> None:
        self.extended = SimpleNamespace(worker_devices=("CPU:0",) * devices)
        self.divided: list[Any] = []

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        self.divided.append(dataset)
        return "divided"

    def distribute_datasets_from_function(self, make: Any, options: Any = None) -> Any:
        return make(None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_any_data_stays_whole_whatever_is_made_of_it(kind: str) -> None:
    strategy = Strategy()
    workarounds.keep_whole(strategy)
    share = feed_of(kind, None, rank=0, size=2)
    mapped = share.map(lambda x, y: (x, y)).prefetch(1)
    joined = tf.data.Dataset.zip((share, tf.data.Dataset.range(9)))

    for each in (share, mapped, joined):
        assert strategy.experimental_distribute_dataset(each) is each
    assert strategy.divided == []


def test_data_of_the_user_is_left_to_tensorflow() -> None:
    strategy = Strategy()
    workarounds.keep_whole(strategy)
    for own in (tf.data.Dataset.from_tensor_slices(ids).batch(4), tf.data.Dataset.range(9).map(lambda x: x), object()):
        assert strategy.experimental_distribute_dataset(own) == "divided"
    assert len(strategy.divided) == 3


def test_a_share_of_a_member_with_several_devices_is_refused() -> None:
    strategy = Strategy(devices=2)
    workarounds.keep_whole(strategy)
    with pytest.raises(StrategyError, match=r"give a member whole batches, and it has 2 devices.*gpus=1"):
        strategy.experimental_distribute_dataset(feed_of("rows", None))
    assert strategy.experimental_distribute_dataset(tf.data.Dataset.range(4)) == "divided"


@pytest.mark.parametrize("kind", ["known", "arrays", "rows"])
def test_a_model_is_built_for_a_share_without_reading_it(kind: str) -> None:
    share = feed_of(kind, None, rank=0, size=2).map(lambda x, y: ({"x": x}, y))
    x, y = workarounds.batch_like(share)

    assert (x["x"].shape, x["x"].dtype, y.shape) == ((1, 1), tf.float32, (1, 1))
    assert workarounds.batch_like(share.map(lambda x, y: tf.RaggedTensor.from_tensor(y))) is None
    assert workarounds.batch_like(tf.data.Dataset.from_tensor_slices(ids).batch(4)) is None


def test_members_train_on_each_row_of_their_shares_once_as_one_process_does() -> None:
    (alone,) = results(shares_of, ("chief",))
    members = results(shares_of, ("chief", "worker"))

    for name, whole in alone.items():
        rounds = [one + other for one, other in zip(*(each[name]["seen"] for each in members), strict=True)]
        assert rounds == whole["seen"], name
        assert [len(batch) for batch in members[0][name]["seen"]] == [BATCH] * 2 * EPOCHS
        assert sorted(rounds[0] + rounds[1]) == sorted(rounds[2] + rounds[3]) == list(range(ROWS))
        for member in members:
            assert member[name]["weights"] == pytest.approx(whole["weights"], abs=1e-6)
            assert member[name]["evaluate"] == pytest.approx(whole["evaluate"], abs=1e-5)
    assert alone["dataset"] == alone["mapped"]
