"""The frameworks that this process has imported. Imports none of them."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.config.environment import TENSORFLOW
from sparktrain.training.frameworks.contract import Framework
from sparktrain.training.frameworks.jax.jax_framework import Jax
from sparktrain.training.frameworks.keras.keras_framework import Keras, backend_in_use
from sparktrain.training.frameworks.lightgbm.lightgbm_framework import LightGBM
from sparktrain.training.frameworks.tensorflow.tensorflow_framework import TensorFlow
from sparktrain.training.frameworks.torch.torch_framework import Torch
from sparktrain.training.frameworks.xgboost.xgboost_framework import XGBoost

if TYPE_CHECKING:
    from sparktrain.training.checkpoint.tensor_slices import Array, Bounds, Index

# Their modules import nothing of the frameworks, so that a zygote of a function without them has none.
_KERAS = Keras()
ALL: tuple[Framework, ...] = (TensorFlow(), Torch(), Jax(), XGBoost(), LightGBM(), _KERAS)
"""Keras comes last: its seeds are those of its backend too."""
_TRAINING = __package__.rpartition(".")[0]
_HOMES = {
    "BoostingMember": "boosting",
    "LightGBMCallback": "frameworks.lightgbm.lightgbm_callback",
    "Strategies": "frameworks.tensorflow.strategies.strategy",
    "XGBoostCallback": "frameworks.xgboost.xgboost_callback",
    "distribute_tape": "frameworks.tensorflow.optimizers.optimizer",
    "install_sessions": "frameworks.tensorflow.strategies.sessions",
    "jax_key": "frameworks.jax.jax_framework",
    "keras_callbacks": "frameworks.keras.glue",
    "known_ring": "frameworks.keras.keras_distribution",
    "save_torch": "frameworks.torch.torch_export",
    "serve_cluster": "frameworks.tensorflow.strategies.tf_cluster",
    "serve_shard": "frameworks.tensorflow.parameter_server.shard_member",
    "training_ring": "frameworks.keras.keras_distribution",
}


def from_framework(name: str) -> Any:
    """What the training process asks of one framework alone, by its name. Imports its module, which may import more."""
    return getattr(importlib.import_module(f"{_TRAINING}.{_HOMES[name]}"), name)


def joins(step: str) -> list[Callable[..., None]]:
    """The functions `step` of the modules `Framework.joins`, of all frameworks. Imports none of these."""
    modules = [importlib.import_module(name) for framework in ALL for name in framework.joins]
    return [getattr(module, step) for module in modules if hasattr(module, step)]


def owner(value: object) -> Framework | None:
    """The framework that has imported, and distributes, the model or the optimizer `value`; None for all others."""
    return next((framework for framework in imported() if framework.owns(value)), None)


def distribution_of(value: object) -> Any:
    """The module `Framework.distribution` of the owner of `value`, or else of Keras."""
    framework = owner(value)
    return importlib.import_module((framework and framework.distribution) or _KERAS.distribution)


def data_owner(value: object) -> Framework | None:
    """The framework that has imported, and alone reads, the data `value`; None for all other data."""
    return next((framework for framework in imported() if framework.owns_data(value)), None)


def fit_feeds() -> str:
    """The package with the feeds that `fit` reads: TensorFlow, or Keras itself where that runs on another backend.

    Blocks on the local disk where Keras is not imported.
    """
    return TENSORFLOW if backend_in_use() == TENSORFLOW else _KERAS.module


def feeds_of(package: str) -> Any:
    """The module `Framework.data` of the framework that is imported as `package`. Imports the framework."""
    [data] = [framework.data for framework in ALL if framework.module == package and framework.data is not None]
    return importlib.import_module(data)


def keeper(parts: Sequence[object]) -> Framework | None:
    """The framework with the state module that saves all of `parts`; None where there is none."""
    return next((framework for framework in ALL if all(map(framework.keeps, parts))), None)


def joined(value: object) -> Any:
    """`value` as an array of the host, where other members hold parts of it; None for any other: see `Framework`."""
    arrays = (framework.joined(value) for framework in imported())
    return next((array for array in arrays if array is not None), None)


def is_split(value: object) -> bool:
    """Whether other members hold parts of the array `value`: see `Framework`."""
    return any(framework.is_split(value) for framework in imported())


def own_slices(value: object) -> "list[tuple[Bounds, Array]] | None":
    """The pieces of `value` that this member saves, where members hold parts of it; None for any other: see
    `Framework`."""
    pieces = (framework.own_slices(value) for framework in imported())
    return next((piece for piece in pieces if piece is not None), None)


def from_slices(value: object, read: "Callable[[Index], Array]") -> Any:
    """A value in place of `value`, from what `read` returns; None where no other member holds a part of it: see
    `Framework`."""
    values = (framework.from_slices(value, read) for framework in imported())
    return next((assembled for assembled in values if assembled is not None), None)


def imported() -> list[Framework]:
    """The frameworks that this process has imported, by themselves or through others."""
    return [framework for framework in ALL if framework.module in sys.modules]
