"""Keras's own optimizer as the update rule of a server: what it computes is what it computes in one process.

Imports TensorFlow and Keras.
"""

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import optimizers
from numpy.typing import NDArray

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import ShardPlan
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import UpdateRule

Array = NDArray[Any]

_BY_ELEMENT = (
    optimizers.SGD,
    optimizers.RMSprop,
    optimizers.Adam,
    optimizers.AdamW,
    optimizers.Adadelta,
    optimizers.Adagrad,
    optimizers.Adamax,
    optimizers.Nadam,
    optimizers.Ftrl,
    optimizers.Lion,
)
"""Optimizers that update each element by itself; others, such as Lamb, look at whole variables."""

_WITHOUT_DECAY = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
"""Where Keras keeps what `exclude_from_weight_decay` was given."""


def is_sliceable(optimizer: Any) -> bool:
    """Whether the pieces of a variable may be on several servers: no element's update depends on another element."""
    return type(optimizer) in _BY_ELEMENT and optimizer.clipnorm is None


def check_optimizer(optimizer: Any, servers: int) -> None:
    """Raise SpecError for an optimizer that servers would apply in another way than one process."""
    check_local_optimizer(optimizer)
    name = f"the optimizer {optimizer.name!r}"
    if isinstance(optimizer, optimizers.LossScaleOptimizer):
        raise SpecError(
            f"{name} scales losses, and members would skip different steps: pass its inner optimizer, "
            "and train without mixed_float16"
        )
    if optimizer.global_clipnorm is not None and servers > 1:
        raise SpecError(
            f"{name} has global_clipnorm={optimizer.global_clipnorm:g}, and each of ps={servers} servers knows only "
            "its own gradients: pass ps=1, or clip by clipnorm or clipvalue"
        )
    if any(getattr(optimizer, attribute, None) for attribute in _WITHOUT_DECAY):
        raise SpecError(
            f"{name} excludes variables from weight decay, and servers know none of their names: leave out "
            "exclude_from_weight_decay, or weight_decay"
        )


def check_local_optimizer(optimizer: Any) -> None:
    """Raise SpecError for an optimizer that cannot train weights which servers keep, in any mode."""
    if not isinstance(optimizer, optimizers.Optimizer):
        raise SpecError(
            f"a parameter server was given a {type(optimizer).__name__}, a Keras 3 optimizer is expected; pass one, "
            "such as keras.optimizers.SGD(0.01)"
        )
    if getattr(optimizer, "inner_optimizer", optimizer).use_ema:
        raise SpecError(
            f"the optimizer {optimizer.name!r} has use_ema=True, and servers keep no averages of weights: leave it out"
        )


def optimizer_bytes(optimizer: Any, plan: ShardPlan, shard: int) -> bytes:
    """What `keras_rule` makes the optimizer of a shard from. Raises SpecError: see `check_optimizer`."""
    check_optimizer(optimizer, len(plan.shards))
    shapes = []
    for piece in plan.shards[shard]:
        variable = plan.variables[piece.variable]
        shapes.append(variable.shape if piece.stop - piece.start == variable.size else (piece.stop - piece.start,))
    return json.dumps({"optimizer": optimizers.serialize(optimizer), "shapes": shapes}).encode()


def keras_rule(spec: bytes, values: Sequence[Array]) -> "KerasRule":
    """The rule that `optimizer_bytes` describes. Raises SpecError for an optimizer that this process cannot make."""
    described = json.loads(spec)
    try:
        # optimizers.deserialize() does not know all of Keras's own, such as Lamb.
        optimizer = keras.saving.deserialize_keras_object(described["optimizer"])
    except (TypeError, ValueError, ImportError, AttributeError) as error:
        name = described["optimizer"].get("class_name")
        raise SpecError(
            f"the parameter server cannot make the optimizer {name!r}: {error}; use one of keras.optimizers, or "
            "register its class by keras.saving.register_keras_serializable() in a module that the server imports"
        ) from error
    return KerasRule(optimizer, values, [tuple(shape) for shape in described["shapes"]])


class KerasRule(UpdateRule):
    """An optimizer with copies of the variables of one shard."""

    def __init__(self, optimizer: Any, values: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> None:
        """`optimizer` only serves as the description of the one that is used."""
        self._rate = _ServerRate(_base_rate(optimizer))
        self._optimizer = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": self._rate})
        self._shapes = list(shapes)
        with keras.device("cpu:0"):
            self._variables = [
                keras.Variable(value.reshape(shape), dtype=value.dtype.name, name=f"piece_{index}")
                for index, (value, shape) in enumerate(zip(values, shapes, strict=True))
            ]
            self._optimizer.build(self._variables)

    def apply(self, values: Sequence[Array], gradients: Sequence[Array], scale: float) -> None:
        """See base class."""
        self._rate.scale = scale
        arrays = [gradient.reshape(shape) for gradient, shape in zip(gradients, self._shapes, strict=True)]
        with keras.device("cpu:0"):
            self._optimizer.apply([keras.ops.convert_to_tensor(array) for array in arrays], self._variables)
        for value, variable in zip(values, self._variables, strict=True):
            value[...] = np.asarray(variable.value).reshape(-1)

    def slots(self) -> list[Array]:
        """See base class."""
        return [np.asarray(variable.value).copy() for variable in self._optimizer.variables]

    def restore(self, slots: Sequence[Array]) -> None:
        """See base class."""
        for variable, slot in zip(self._optimizer.variables, slots, strict=True):
            variable.assign(slot)


def _base_rate(optimizer: Any) -> Any:
    """The learning rate of `optimizer`: a number, or a schedule."""
    rate = optimizer.get_config()["learning_rate"]
    return optimizers.schedules.deserialize(rate) if isinstance(rate, dict) else rate


class _ServerRate(optimizers.schedules.LearningRateSchedule):  # type: ignore[misc] # Keras has no types
    """The rate of the user's optimizer, times the scale of the push that is applied."""

    def __init__(self, base: Any) -> None:
        self.scale = 1.0
        self._base = base

    def __call__(self, step: Any) -> Any:
        """See base class."""
        rate = self._base(step) if callable(self._base) else self._base
        return rate if self.scale == 1.0 else rate * self.scale
