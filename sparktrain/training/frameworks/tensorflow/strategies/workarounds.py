"""Works around what Keras 3 cannot do under TensorFlow's strategies where a test covers that, and refuses the rest.

Keras fails there with unreadable errors (a placeholder without a value), or computes wrong metrics silently. `install`
adds a check to the methods of `keras.Model`, which examines the model's strategy at each call.

The workaround is for two bugs of `keras/src/backend/tensorflow/trainer.py` under MultiWorkerMirroredStrategy:
- `_maybe_symbolic_build` averages a batch over all members only to get its shapes, which fails for a `PerReplica`; the
  member's own part has the same shapes.
- `reduce_per_replica` averages logs, which are scalars, along their first axis instead of over the members.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from sparktrain.errors import StrategyError
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.data import pipeline

WORKED_AROUND = ("3.15.1",)
"""Versions of Keras that have the two bugs, with these names, and train correctly with the workaround."""

_METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

_sharding: "weakref.WeakSet[Any]" = weakref.WeakSet()


def install() -> None:
    """Start to check Keras's models in this process. A second call does nothing."""
    for name in _METHODS:
        replace(keras.Model, name, functools.partial(_checked, name))
    replace(keras.Metric, "add_variable", _checked_metric)
    if keras.__version__ in WORKED_AROUND:
        _work_around()


def refuse_keras_variables(strategy: Any) -> None:
    """Refuse Keras variables under `strategy`: its partitioner would cut them into shards."""
    replace(keras.Variable, "__init__", _checked_variable)
    _sharding.add(strategy)


def passing(error: StrategyError) -> StrategyError:
    """Mark `error` so that AutoGraph raises it unchanged, in place of an error of its own with the same text."""
    error.ag_pass_through = True  # type: ignore[attr-defined]
    return error


# ---- checks


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        for problem in _problems(self, name):
            raise StrategyError(f"model.{name}() under strategy {_name(self.distribute_strategy)!r}: {problem}")
        return method(self, *args, **kwargs)

    return checked


def _problems(model: Any, name: str) -> Iterator[str]:
    """Why calling method `name` of `model` fails, worst first; empty if it works."""
    strategy = model.distribute_strategy
    if _is_ps(strategy):
        yield (
            "Keras cannot train or predict through a coordinator; schedule steps with "
            "tf.distribute.coordinator.ClusterCoordinator as examples/parameter_server.py does, and call model(x) "
            "for a prediction"
        )
    if not _is_multi_worker(strategy) and strategy.num_replicas_in_sync == 1:
        return
    # Measured: the weights are exact, and the reported loss was 6.23 where it is 3.70.
    if _is_central(strategy) and name != "predict":
        yield (
            "Keras adds up its metrics and its loss wrongly there, and they would be wrong numbers; use strategy "
            "'mirrored', or a loop of your own as in examples/central_storage.py"
        )
    yield from problems_in_step(model, name, multi_worker=_is_multi_worker(strategy))


def problems_in_step(model: Any, name: str, *, multi_worker: bool) -> Iterator[str]:
    """Why method `name` of `model` fails under a strategy of several devices or members, worst first."""
    if name == "predict_on_batch":
        yield "it would predict the batch once for each device; use model.predict(x), or model(x)"
    if multi_worker:
        yield from _problems_of_version()
    if name in ("fit", "evaluate") and model.steps_per_execution > 1:
        yield (
            f"steps_per_execution={model.steps_per_execution} fails there; compile with steps_per_execution=1, "
            "which is the default"
        )
    if model.compiled and model.jit_compile:
        yield "jit_compile=True fails there; compile with jit_compile=False"


def _problems_of_version() -> Iterator[str]:
    if keras.__version__ not in WORKED_AROUND:
        yield (
            f"Keras {keras.__version__} is not tested there, and Keras 3 fails without a workaround for its "
            f"version; install Keras {' or '.join(WORKED_AROUND)}, write a loop with strategy.run as in "
            "examples/multi_worker_mirrored.py, or use ctx.distribute(optimizer) without a strategy"
        )


def _check_metrics(model: Any) -> None:
    """Check metrics that have their variables. Raises StrategyError."""
    for container in model.metrics if model.compiled else []:
        for metric in getattr(container, "metrics", None) or [container]:
            if not all(_is_distributed(variable) for variable in metric.variables):
                raise StrategyError(
                    f"metric {metric.name!r} was made outside of the scope of strategy 'multi_worker_mirrored', and "
                    "would count the batches of one member alone; make it, and call compile(), within strategy.scope()"
                )


def _is_distributed(variable: Any) -> bool:
    return isinstance(variable.value, tf.distribute.DistributedValues)


def _checked_metric(add_variable: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(add_variable)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = tf.distribute.get_strategy()
        if _is_central(strategy) and strategy.num_replicas_in_sync > 1:
            raise passing(
                StrategyError(
                    f"metric {self.name!r} within the scope of strategy 'central_storage': Keras adds its metrics up "
                    "wrongly there, so compile() and fit() cannot be used; make metrics outside of strategy.scope(), "
                    "and train with a loop of your own as in examples/central_storage.py, or use strategy 'mirrored'"
                )
            )
        return add_variable(self, *args, **kwargs)

    return checked


def _checked_variable(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        # Later Keras raises that a ShardedVariable has no attribute `handle`, and names neither the line nor the
        # option.
        if tf.distribute.get_strategy() in _sharding:
            raise passing(
                StrategyError(
                    "variable_partitioner cuts variables into shards, which Keras 3 cannot use: leave it out, or make "
                    "the large variables with tf.Variable, and Keras's layers outside of strategy.scope()"
                )
            )
        init(self, *args, **kwargs)

    return checked


# ---- strategies


def _is_ps(strategy: Any) -> bool:
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def _is_central(strategy: Any) -> bool:
    return isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)


def _is_multi_worker(strategy: Any) -> bool:
    return bool(trainer._collective_all_reduce_multi_worker(strategy))


def _first_local_part(strategy: Any, part: Any) -> Any:
    """This member's first part of a distributed value."""
    return strategy.experimental_local_results(part)[0]


def _name(strategy: Any) -> str:
    if _is_ps(strategy):
        return "parameter_server"
    if _is_central(strategy):
        return "central_storage"
    return "multi_worker_mirrored" if _is_multi_worker(strategy) else "mirrored"


# ---- the workaround


def _work_around() -> None:
    # With both bugs `fit` fails before its first step; with the workaround two and three workers equal one process to
    # 2e-7.
    replace(trainer.TensorFlowTrainer, "_maybe_symbolic_build", _built_from_own_part)
    replace(trainer, "reduce_per_replica", _reduced_over_members)


def _built_from_own_part(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def built(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if strategy is None or not _is_multi_worker(strategy):
            build(self, iterator, data_batch)
            return
        if not _built_without_reading(build, self, iterator):
            for _, _, batches in iterator or ():
                data_batch = keras.tree.map_structure(lambda part: _first_local_part(strategy, part), next(batches))
                break
            build(self, None, data_batch)
        _check_metrics(self)

    return built


def _built_without_reading(build: Callable[..., None], model: Any, iterator: Any) -> bool:
    """Build `model` for a share, and read no row for that; returns whether that was possible."""
    batch = None if iterator is None else batch_like(iterator.data_adapter.get_tf_dataset())
    if batch is None:
        return False
    try:
        build(model, None, batch)
    except ValueError:  # it takes batches of one size alone
        return False
    return True


def _reduced_over_members(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def reduced(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction in ("auto", "mean") and _is_multi_worker(strategy):
            return keras.tree.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)
        return reduce(values, strategy, reduction)

    return reduced


def keep_whole(strategy: Any) -> None:
    """Have `strategy`, of several members, give each member the batches of its share as they are.

    TensorFlow takes the batches of a dataset for those of all members together, and divides each by their number, also
    of a dataset that it does not shard. Of its share, a member of two would train on half batches: in twice the steps,
    or, where Keras knows the number of batches, on half of its rows.

    Keras's methods and loops of the user's own distribute datasets by the same call. Other datasets stay TensorFlow's.
    """
    distribute = strategy.experimental_distribute_dataset

    @functools.wraps(distribute)
    def distributed(dataset: Any, options: Any = None) -> Any:
        if not pipeline.is_share(dataset):
            return distribute(dataset, options)
        if (devices := len(strategy.extended.worker_devices)) > 1:
            raise StrategyError(
                f"ctx.dataset, ctx.stream and ctx.shard give a member whole batches, and it has {devices} devices, "
                "among which strategy 'multi_worker_mirrored' does not divide them: start a member for each device "
                "(gpus=1), or pass the whole data to fit, without ctx.shard"
            )
        return strategy.distribute_datasets_from_function(lambda _: dataset, options)

    strategy.experimental_distribute_dataset = distributed


def batch_like(dataset: Any) -> Any | None:
    """A batch of one row of zeros as `dataset` gives them; None for other data than shares, and for unknown shapes.

    To build a model from: a batch that is read for that takes rows of a stream, and a pass of a dataset.
    """
    if not pipeline.is_share(dataset):
        return None
    leaves = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape[1:].is_fully_defined() for leaf in leaves):
        return None
    return tf.nest.map_structure(lambda spec: tf.zeros([1, *spec.shape[1:]], spec.dtype), dataset.element_spec)
