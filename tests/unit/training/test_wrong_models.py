"""A model or optimizer of one framework in a call for another: the error of each call, without the framework.

The classes stand in for those of the frameworks, with their modules and names. `tests/torch/test_wrong_models.py`
has the same with real ones.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.base.model_kinds import kind_of
from sparktrain.errors import SpecError
from sparktrain.ml.prediction import _url_of
from sparktrain.training.checkpoint.training_state import state_module
from sparktrain.training.export import export
from sparktrain.training.frameworks.keras.keras_framework import check_optimizer
from sparktrain.training.learning_rates import warmup_lr


def stand_in(module: str, name: str, *bases: type, **methods: Any) -> type:
    """A class of a framework, for code that looks at names."""
    return type(name, bases, {"__module__": module, **methods})


def _state(self: object, *_: object) -> dict[str, Any]:
    return {}


STATE = {"state_dict": _state, "load_state_dict": _state}
Module = stand_in("torch.nn.modules.module", "Module", **STATE)
Layer = stand_in("keras.src.layers.layer", "Layer", Module)
"""As on PyTorch."""
Model = stand_in("keras.src.models.model", "Model", Layer, built=True, variables=(), metrics_variables=())
Sequential = stand_in("keras.src.models.sequential", "Sequential", Model)
Adam = stand_in("keras.src.optimizers.adam", "Adam", stand_in("keras.src.optimizers.base_optimizer", "BaseOptimizer"))
SGD = stand_in("torch.optim.sgd", "SGD", stand_in("torch.optim.optimizer", "Optimizer", **STATE))
StepLR = stand_in("torch.optim.lr_scheduler", "StepLR", stand_in("torch.optim.lr_scheduler", "LRScheduler", **STATE))
Optax = stand_in("optax._src.base", "GradientTransformationExtraArgs", stand_in("optax", "GradientTransformation"))
Net = stand_in("user_nets", "Net", Module)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Sequential, "a Keras model"),
        (Layer, "a Keras layer"),
        (Adam, "a Keras optimizer"),
        (Net, "a model of PyTorch"),
        (SGD, "an optimizer of PyTorch"),
        (StepLR, "a schedule of PyTorch"),
        (Optax, "an optimizer of optax, for JAX"),
        (dict, None),
        (SimpleNamespace, None),
    ],
)
def test_objects_have_the_name_of_their_kind(kind: type, name: str | None) -> None:
    assert kind_of(kind()) == name


def distribute(value: Any) -> None:
    check_optimizer(value, "ctx.distribute()")


def save(*values: Any) -> None:
    state_module(values, "ctx.checkpoint.save()")


CALLS: list[tuple[Callable[..., object], tuple[type, ...], type[Exception], str]] = [
    (distribute, (Sequential,), SpecError, r"got a Keras model \(Sequential\); .*pass the optimizer that the model is"),
    (
        distribute,
        (StepLR,),
        SpecError,
        r"got a schedule of PyTorch \(StepLR\); a Keras 3 optimizer.*pass the model that",
    ),
    (distribute, (Optax,), SpecError, r"got an optimizer of optax, for JAX \(Gra.*\); .*average by ctx\.allreduce"),
    (distribute, (dict,), SpecError, r"got an object of type builtins\.dict; a Keras 3 optimizer is expected"),
    (
        save,
        (Sequential, SGD),
        TypeError,
        r"got a Keras model \(Sequential\) and an optimizer of PyTorch \(SGD\): pass on",
    ),
    (
        save,
        (Net, Adam),
        TypeError,
        r"got a model of PyTorch \(Net\) and a Keras optimizer \(Adam\): pass one Keras m",
    ),
    (save, (Adam,), TypeError, r"got a Keras optimizer \(Adam\): pass one Keras model, which holds its optimizer, or"),
    (save, (Sequential, Net, SGD), TypeError, r"a Keras model \(Sequential\), a model of PyTorch \(Net\) and an optim"),
    (save, (dict,), TypeError, r"got an object of type builtins\.dict: .*other values by name: params=params"),
    (
        lambda value: warmup_lr(value, 3, 2),
        (Adam,),
        SpecError,
        r"a Keras optimizer \(Adam\), and takes an opt",
    ),
    (_url_of, (Sequential,), SpecError, r"model is a Keras model \(Sequential\); pass the result of a run, its dir"),
    (_url_of, (Net,), SpecError, r"model is a model of PyTorch \(Net\); pass the result .*save\(\) of a Keras model"),
]


@pytest.mark.parametrize(("call", "kinds", "error", "message"), CALLS)
def test_another_kind_is_refused_by_its_name_with_what_to_pass(
    call: Callable[..., object], kinds: tuple[type, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(*(kind() for kind in kinds))


@pytest.mark.parametrize(("kind", "name"), [(Layer, "a Keras layer"), (Adam, "a Keras optimizer")])
def test_what_is_no_model_is_not_exported(kind: type, name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=rf"ctx\.export\(\) is given {name} \(\w+\); pass a Keras model, a module or"):
        export(kind(), tmp_path, 0)
    assert list(tmp_path.iterdir()) == []
