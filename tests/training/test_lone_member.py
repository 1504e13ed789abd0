"""Rank 0 of a gang without other members: what Keras does with it, and that Keras is restored afterwards."""

import importlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

from sparktrain.errors import GangNeededError, SpecError, StrategyError
from sparktrain.testing import local_context

pytestmark = pytest.mark.filterwarnings("default")  # of Keras


def fit(ctx: Any, distributed: bool = True) -> dict[str, float]:
    x = np.arange(64, dtype="float32").reshape(-1, 2) / 64
    optimizer = keras.optimizers.SGD(ctx.scale_lr(0.1))
    model = keras.Sequential([keras.layers.Dense(2), keras.layers.BatchNormalization(synchronized=True)])
    model.compile(ctx.distribute(optimizer) if distributed else optimizer, loss="mse", jit_compile=False)
    data = ctx.shard((x, x), batch_size=4)
    history = model.fit(data, callbacks=ctx.keras_callbacks(), verbose=0, epochs=2)
    return {
        "loss": history.history["loss"][-1],
        "steps": float(optimizer.iterations),
        "lr": float(optimizer.learning_rate),
    }


def patched() -> list[Any]:
    return [
        BaseOptimizer.apply, Trainer.compute_loss, keras.layers.BatchNormalization._moments, keras.Model.fit,
        keras.Metric.add_variable, tf.distribute.MultiWorkerMirroredStrategy.__init__,
    ]  # fmt: skip


def test_a_mirrored_gang_trains_a_fit_as_rank_0() -> None:
    before = patched()
    with local_context(size=4, backend="tensorflow", mirrored=True) as ctx:
        metrics = ctx.call(fit)
        assert patched() != before
        assert ctx.notices == (), "that all members have the same batch is how this gang is made"
    assert (metrics["steps"], metrics["lr"]) == (4.0, pytest.approx(0.4)), "two steps of four members in each epoch"
    assert [each.step for each in ctx.reports] == [0, 1]
    assert patched() == before


def test_without_mirroring_the_first_operation_is_an_error_with_the_needed_option() -> None:
    with local_context(size=4, backend="tensorflow") as ctx:
        assert len(list(ctx.shard((np.zeros((64, 2), "float32"),) * 2, batch_size=4))) == 4
        with pytest.raises(GangNeededError, match="needs all 4 members"):
            ctx.call(fit)
    built = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
    assert built.predict(np.zeros((1, 2), "float32"), verbose=0).shape == (1, 2)
    assert not get_global_attribute("uninitialized_variables"), "the interrupted build leaves nothing to the next one"


def test_a_mirrored_gang_makes_the_checks_of_a_gang() -> None:
    with (
        local_context(size=2, backend="tensorflow", mirrored=True) as ctx,
        pytest.raises(SpecError, match="distribute"),
    ):
        ctx.call(lambda ctx: fit(ctx, distributed=False))


def test_the_values_of_a_mirrored_gang() -> None:
    with local_context(size=3, backend="horovod", mirrored=True) as ctx:
        assert ctx.allreduce(2.0) == 2.0
        assert ctx.allreduce(2, average=False) == 6
        assert ctx.broadcast({"x": 1}) == {"x": 1}
        assert ctx.allgather(np.array([1, 2])).tolist() == [1, 2, 1, 2, 1, 2]


def test_strategies_that_connect_a_gang_are_refused() -> None:
    with local_context(size=2, backend="tensorflow") as ctx:
        with pytest.raises(StrategyError, match="separate models"):
            ctx.strategy("mirrored")
        with pytest.raises(GangNeededError, match=r"ctx.strategy\('multi_worker_mirrored'\) needs all 2 members"):
            ctx.strategy()
        with pytest.raises(GangNeededError, match="MultiWorkerMirroredStrategy needs all 2 members"):
            tf.distribute.MultiWorkerMirroredStrategy()


def test_each_context_counts_layer_names_from_0_and_restores_keras() -> None:
    keras.layers.Dense(1)
    tf.random.set_seed(3)
    names = []
    for _ in range(2):
        with local_context():
            names.append(keras.layers.Dense(1).name)
            keras.config.set_dtype_policy("float16")
            tf.config.run_functions_eagerly(True)
    assert names == ["dense", "dense"]
    assert keras.config.dtype_policy().name == "float32"
    assert not tf.config.functions_run_eagerly()
    assert tf.random.uniform([]) == (tf.random.set_seed(3), tf.random.uniform([]))[1]


@pytest.mark.parametrize("name", ["jax", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_member_alone_gets_tensors_of_the_kind_that_it_passes_beside_tensorflow(name: str) -> None:
    """Once they came back as those of TensorFlow, where the process had imported that too."""
    framework = importlib.import_module(name)
    tensor = framework.numpy.asarray([1.0, 2.0]) if name == "jax" else framework.tensor([1.0, 2.0])
    with local_context() as ctx:
        [[reduced]] = ctx.allreduce({"a": [tensor]}).values()
        assert type(reduced) is type(ctx.broadcast(tensor)) is type(ctx.allgather(tensor)) is type(tensor)
        assert ctx.allreduce(3) == 3
    assert reduced.tolist() == [1.0, 2.0]
