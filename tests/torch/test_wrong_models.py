"""Models and optimizers of Keras in PyTorch's calls, and the reverse: real ones, named in each error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import torch

import sparktrain as st
from sparktrain.base.model_kinds import kind_of
from sparktrain.errors import SpecError, UserError
from sparktrain.training.checkpoint import tensor_files, training_state
from tests.torch.ddp_programs import network
from tests.torch.test_torch_export import loaded

pytestmark = pytest.mark.torch


def keras_model() -> Any:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def torch_optimizer() -> Any:
    return torch.optim.SGD(network().parameters(), 0.1)


def test_real_classes_have_their_kinds() -> None:
    optimizer = torch_optimizer()
    kinds = {
        "a Keras model": keras_model(),
        "a Keras optimizer": keras.optimizers.Adam(),
        "a Keras layer": keras.layers.Dense(1),
        "a model of PyTorch": network(),
        "an optimizer of PyTorch": optimizer,
        "a schedule of PyTorch": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "a gradient scaler of PyTorch": torch.amp.GradScaler("cpu"),
        "a tensor of PyTorch": torch.nn.Parameter(torch.ones(1)),
        "a tape of TensorFlow": tf.GradientTape(),
    }
    assert {name: kind_of(value) for name, value in kinds.items()} == {name: name for name in kinds}


CALLS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda ctx: ctx.distribute(keras_model()), SpecError, r"a Keras model \(Sequential\); .* pass the optimizer that"),
    (lambda ctx: ctx.distribute(torch_optimizer()), SpecError, r"optimizer of PyTorch \(SGD\).*pass the model"),
    (lambda ctx: ctx.distribute_tape(network()), SpecError, r"a model of PyTorch \(Sequential\), and takes a tf\.Grad"),
    (lambda ctx: ctx.warmup_lr(keras.optimizers.SGD(), 3), SpecError, r"a Keras optimizer \(SGD\), .*pass warmup= to"),
    (lambda ctx: ctx.export(keras.optimizers.SGD()), SpecError, r"given a Keras optimizer \(SGD\); pass a Keras model"),
    (
        lambda ctx: ctx.export(torch_optimizer()),
        SpecError,
        r"object of PyTorch \(SGD\), which is no model: pass a",
    ),
    (
        lambda ctx: ctx.checkpoint.save(1, keras_model(), torch_optimizer()),
        TypeError,
        r"checkpoint\.save got a Keras model \(Sequential\) and an optimizer of PyTorch \(SGD\): pass one Keras mo",
    ),
    (
        lambda ctx: ctx.checkpoint.save(1, network(), keras.optimizers.SGD()),
        TypeError,
        r"a model of PyTorch \(Sequential\) and a Keras optimizer \(SGD\): pass one Keras model, which holds its opt",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), CALLS)
def test_each_call_names_what_it_got_and_what_it_takes(
    call: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    with st.testing.local_context() as ctx, pytest.raises(error, match=message):
        call(ctx)


def test_a_checkpoint_of_the_one_is_not_restored_into_the_other(tmp_path: Path) -> None:
    models = {"a Keras model": keras_model(), "a model of PyTorch": network()}
    for name, model in models.items():
        state = training_state.capture(model, 3)
        tensor_files.save(tmp_path / name, state.tensors, state.document)
    with pytest.raises(UserError, match=r"without a Keras model, and restore\(\) got a Keras model \(Sequential\): pa"):
        training_state.restore(models["a Keras model"], tmp_path / "a model of PyTorch", 0)
    with pytest.raises(
        UserError, match=r"without objects that have state_dict\(\), and .* got a model of PyTorch \(Se"
    ):
        training_state.restore(models["a model of PyTorch"], tmp_path / "a Keras model", 0)


def test_stored_weights_of_pytorch_are_not_given_to_a_keras_model(tmp_path: Path) -> None:
    from sparktrain.training.export import export

    home = tmp_path / "runs" / "member"
    export(network(), home, 0)
    with pytest.raises(SpecError, match=r"module=\.\.\.\) got a Keras model \(Sequential\), and the stored weights a"):
        loaded(home, module=keras_model())
