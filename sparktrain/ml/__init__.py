"""Stages of Spark ML: `KerasEstimator` trains a Keras model on a DataFrame, and `KerasModel` adds its predictions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.ml.keras_estimator import KerasEstimator
    from sparktrain.ml.keras_model import KerasModel
    from sparktrain.ml.stage_params import EstimatorParams, ModelParams

_HOMES = {
    "EstimatorParams": "stage_params",
    "KerasEstimator": "keras_estimator",
    "KerasModel": "keras_model",
    "ModelParams": "stage_params",
}
"""Imported when they are used: members import the training function of this package without PySpark."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain.ml' has no attribute {name!r}")
    from importlib import import_module

    from sparktrain.base.optional_packages import require_spark

    require_spark(f"sparktrain.ml.{name}")
    return getattr(import_module(f"sparktrain.ml.{_HOMES[name]}"), name)


__all__ = ["EstimatorParams", "KerasEstimator", "KerasModel", "ModelParams"]
