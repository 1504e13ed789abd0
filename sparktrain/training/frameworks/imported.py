"""The frameworks that this process has imported. Imports none of them."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sparktrain.config.environment import TENSORFLOW
from sparktrain.training.frameworks.boosting_framework import LIGHTGBM, XGBOOST
from sparktrain.training.frameworks.contract import Framework
from sparktrain.training.frameworks.jax.jax_framework import Jax
from sparktrain.training.frameworks.keras.keras_framework import Keras, backend_in_use
from sparktrain.training.frameworks.tensorflow.tensorflow_framework import TensorFlow
from sparktrain.training.frameworks.torch.torch_framework import Torch

# Their modules import nothing of the frameworks, so that a zygote of a function without them has none.
_KERAS = Keras()
ALL: tuple[Framework, ...] = (TensorFlow(), Torch(), Jax(), XGBOOST, LIGHTGBM, _KERAS)
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


def fits_of(package: str) -> Any:
    """The module `Framework.fits` of the framework that is imported as `package`; None where it has none."""
    modules = [framework.fits for framework in ALL if framework.module == package and framework.fits is not None]
    return importlib.import_module(modules[0]) if modules else None


def loops_of(parts: Sequence[object], package: str) -> Any:
    """The module `Framework.loops` of the framework that keeps `parts`; None where it has none.

    Without parts it is that of the framework that is imported as `package`: the state of its loops is values.
    """
    framework = keeper(parts) if parts else next(framework for framework in ALL if framework.module == package)
    return importlib.import_module(framework.loops) if framework is not None and framework.loops else None


def keeper(parts: Sequence[object]) -> Framework | None:
    """The framework with the state module that saves all of `parts`; None where there is none."""
    return next((framework for framework in ALL if all(map(framework.keeps, parts))), None)


def check_parts(parts: Sequence[object]) -> None:
    """Raise TypeError for parts with a state that no checkpoint can have, before they train."""
    for framework in imported():
        framework.check_parts(parts)


def split_arrays(value: object) -> Any:
    """The module `Framework.arrays` for `value`, where other members hold parts of it; None for any other value."""
    modules = [importlib.import_module(framework.arrays) for framework in imported() if framework.arrays]
    return next((module for module in modules if module.is_split(value)), None)


def imported() -> list[Framework]:
    """The frameworks that this process has imported, by themselves or through others."""
    return [framework for framework in ALL if framework.module in sys.modules]
