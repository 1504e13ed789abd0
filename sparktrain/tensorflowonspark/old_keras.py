"""What programs of 2019 write for Keras 2, in members of a `TFCluster`: Keras 3 accepts it in this process.

Only calls that Keras 3 refuses, and `decay=`, which it ignores, change their meaning. docs/keras3.md lists them, and
what is left to the program. Imports Keras: import it in a member alone.
"""

import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from sparktrain.tensorflowonspark.single_warnings import warn_once
from sparktrain.training.frameworks.keras.keras_patches import replace

_PATHS = (str, os.PathLike)
_WEIGHTS = ".weights.h5"
_SHARDS = ".weights.json"
_MODEL_FILES = (".keras", ".h5", ".hdf5")
_SAVED_MODEL = ("tf", "tensorflow")
_WORKER_OPTIONS = ("workers", "use_multiprocessing", "max_queue_size")
_REMOVED = {
    "estimator": "estimators ended with TensorFlow 2.15: write a Keras model, and train it with model.fit",
    "contrib": "it ended with TensorFlow 1.15: use the library that took the place of the part that you need",
}


def accept() -> None:
    """Have Keras accept these calls from now on, in this process. A second call does nothing."""
    replace(BaseOptimizer, "__init__", _optimizer)
    if not hasattr(BaseOptimizer, "lr"):
        BaseOptimizer.lr = property(lambda self: self.learning_rate, _set_rate)
    for name in ("fit", "evaluate", "predict"):
        replace(keras.Model, name, _steps)
    for old, new in (("fit_generator", "fit"), ("evaluate_generator", "evaluate"), ("predict_generator", "predict")):
        if not hasattr(keras.Model, old):
            setattr(keras.Model, old, _by_generator(new))
    replace(keras.Model, "save", _save)
    replace(keras.Model, "save_weights", _save_weights)
    replace(keras.Model, "load_weights", _load_weights)
    replace(keras.callbacks.ModelCheckpoint, "__init__", _checkpoint)
    replace(keras.callbacks.ModelCheckpoint, "on_epoch_end", _epoch_end)
    vars(tf).setdefault("__getattr__", _gone_name)


# ---- optimizers


def _optimizer(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def init(self: Any, learning_rate: Any, *args: Any, **kwargs: Any) -> None:
        """`lr` is `learning_rate`; with `decay` the rate is that of Keras 2, lr / (1 + decay * updates)."""
        rate = kwargs.pop("lr", learning_rate)
        if decay := kwargs.pop("decay", None):
            rate = keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=decay)
        plain(self, rate, *args, **kwargs)

    return init


def _set_rate(optimizer: Any, rate: Any) -> None:
    optimizer.learning_rate = rate


# ---- training


def _steps(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in ("steps_per_epoch", "validation_steps", "steps"):
            if isinstance(kwargs.get(name), float):
                kwargs[name] = math.ceil(kwargs[name])  # as Keras 2 counts
        for name in _WORKER_OPTIONS:
            if name in kwargs:
                warn_once(f"{plain.__name__}({name}=) has no effect with Keras 3: it is an option of a PyDataset")
                del kwargs[name]
        return plain(self, *args, **kwargs)

    return call


def _by_generator(name: str) -> Callable[..., Any]:
    steps = "steps_per_epoch" if name == "fit" else "steps"

    def call(self: Any, generator: Any, *counts: Any, **kwargs: Any) -> Any:
        if len(counts) > 1:
            raise TypeError(f"{name}_generator takes the generator and {steps} by position: name its other arguments")
        options = {steps: counts[0]} if counts else {}
        if name == "predict" and inspect.isgenerator(generator):
            generator = (batch if isinstance(batch, tuple) else (batch,) for batch in generator)  # as Keras 3 asks for
        return getattr(self, name)(generator, **options, **kwargs)

    call.__name__ = f"{name}_generator"
    return call


# ---- files


def _save(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """A path without the ending of a file, or `save_format="tf"`, is the folder of a SavedModel."""
        form = kwargs.pop("save_format", None)
        path = os.fspath(filepath) if isinstance(filepath, _PATHS) else ""
        is_keras_file = not path or path.endswith(_MODEL_FILES) or kwargs.get("zipped") is not None
        if form not in _SAVED_MODEL and (form is not None or is_keras_file):
            plain(self, filepath, *args, **kwargs)
            return
        from sparktrain.tensorflowonspark.compat import export_saved_model

        warn_once(
            "model.save(folder) writes a SavedModel, which predicts and does not train: to continue from it, save to a "
            "file that ends in .keras too"
        )
        export_saved_model(self, path, is_chief=True)

    return save


def weights_file(path: str) -> str:
    """The file in which Keras 3 keeps the weights that Keras 2 kept at `path`."""
    if path.endswith((_WEIGHTS, _SHARDS)):
        return path
    return f"{path.removesuffix('.h5').removesuffix('.hdf5')}{_WEIGHTS}"


def _save_weights(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("save_format", None)
        plain(self, weights_file(os.fspath(filepath)), *args, **kwargs)

    return save


def _load_weights(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def load(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """A file that is there as it is named comes first: Keras 3 reads those of Keras 2 that end in .h5."""
        path = os.fspath(filepath)
        weights_path = path if os.path.exists(path) or not os.path.exists(weights_file(path)) else weights_file(path)
        plain(self, weights_path, *args, **kwargs)

    return load


def _checkpoint(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def init(self: Any, filepath: Any, *args: Any, period: int = 1, **kwargs: Any) -> None:
        """Give the file the ending that Keras 3 asks for, and save after each `period` epochs."""
        if type(period) is not int or period < 1:
            raise ValueError(f"ModelCheckpoint(period={period!r}): pass a whole number of epochs from 1")
        path = os.fspath(filepath)
        alone = kwargs.get("save_weights_only", args[3] if len(args) > 3 else False)
        if alone:
            path = weights_file(path)
        elif not path.endswith(_MODEL_FILES):
            path = f"{path}.keras"
        plain(self, path, *args, **kwargs)
        self._period = period

    return init


def _epoch_end(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def end(self: Any, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % getattr(self, "_period", 1) == 0:  # no counter, which a restart would lose
            plain(self, epoch, logs)

    return end


# ---- names of TensorFlow


def _gone_name(name: str) -> Any:
    """See PEP 562: `hasattr(tf, name)` stays False for a name that TensorFlow has no more."""
    why = _REMOVED.get(name, "")
    compat = vars(tf).get("compat")  # None while TensorFlow is imported
    if not why and not name.startswith("_") and hasattr(getattr(compat, "v1", None), name):
        why = f"write tf.compat.v1.{name}, after tf.compat.v1.disable_eager_execution() where it is for graphs"
    problem = f"module 'tensorflow' has no attribute {name!r}"
    raise AttributeError(f"{problem}: {why}" if why else problem, name=name, obj=tf)
