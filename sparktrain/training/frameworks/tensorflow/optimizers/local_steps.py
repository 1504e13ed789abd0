"""Local SGD: members train by themselves, and average their weights after some steps.

Stich 2019, "Local SGD Converges Fast and Communicates Little", algorithm 1; the same for the members of a federation:
McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data". What the optimizer
knows beside the weights, such as momentum, stays with each member, as with DiLoCo's inner optimizer (Douillard et al.
2023) and PyTorch's `PostLocalSGDOptimizer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import DistributedApply
from sparktrain.training.frameworks.keras.outer_scale import OuterScale
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.optimizers.first_step import FirstStep
from sparktrain.training.notices import notice


class Averager(ABC):
    """Averages variables with those of other members."""

    @abstractmethod
    def check(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Called before each step; raises what makes this member unable to train with the others."""

    @abstractmethod
    def average(self, optimizer: Any) -> None:
        """Set the variables that `optimizer` trains to their mean; eagerly, or while a function is traced."""


class RingAverager(Averager):
    """By the ring: all members average after the same step, and have equal weights then."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._first = FirstStep(ring, None)

    def check(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Raises OutOfStepError, see `FirstStep`."""
        self._first.check_start(variables)
        self._first.compare_sums(gradients)

    def average(self, optimizer: Any) -> None:
        """See base class. The averages of weights that the optimizer keeps (`use_ema`) are averaged too: `fit` ends
        with them. A constraint holds for the mean too.
        """
        variables = list(optimizer._trainable_variables)
        emas = [ema for ema in getattr(optimizer, "_model_variables_moving_average", None) or [] if ema is not None]
        values = [tf.convert_to_tensor(weight.value) for weight in (*variables, *emas)]
        means = self._ring.allreduce(values, average=True, name="local-steps")
        for variable, mean in zip((*variables, *emas), means, strict=True):
            variable.assign(mean)
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))


class LocalSteps(DistributedApply):
    """Applies this member's own gradients, and averages when it is time."""

    def __init__(self, optimizer: Any, averager: Averager, steps: int) -> None:
        """Averages after each `steps` calls; also those that a loss scale skips, so that all members count alike."""
        self._optimizer = optimizer
        self._averager = averager
        self._steps = steps
        self._apply = optimizer.apply
        self._outer = OuterScale(optimizer)
        with tf.device("/CPU:0"):
            self._since = tf.Variable(0, trainable=False, dtype=tf.int64)
        _instances.add(self)

    @property
    def since(self) -> int:
        """Steps since the newest average. Not while a function is traced."""
        return int(self._since.numpy())

    @as_written
    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        self._outer.refuse(traced=not tf.executing_eagerly())
        gradients = list(grads)
        variables = None if trainable_variables is None else list(trainable_variables)
        self._averager.check(gradients, self._optimizer._trainable_variables if variables is None else variables)
        self._apply(gradients, variables)
        # A variable counts, and not Python: in a traced step, and with several steps per execution, Python runs once.
        due = self._since.assign_add(1) >= self._steps
        if tf.executing_eagerly():
            if due:
                self.average()
            return

        def average() -> bool:
            self.average()
            return True

        tf.cond(due, average, lambda: False)

    def around(self, outer: Any) -> "LocalSteps":
        """See base class."""
        return LocalSteps(outer, self._averager, self._steps)

    def average(self) -> None:
        """Average now, and count from 0. All members of a ring call it at the same step; blocks until they do."""
        self._averager.average(getattr(self._optimizer, "inner_optimizer", self._optimizer))
        self._since.assign(0)


_instances: "WeakSet[LocalSteps]" = WeakSet()


def report_unaveraged(chief: bool) -> None:
    """Print to the chief's log that the training function has returned with steps that were not averaged."""
    steps = max((instance.since for instance in _instances), default=0)
    if steps and chief:
        notice(
            f"the members of the gang end with different weights, {steps} of local_steps after their newest average, "
            "and what counts is the chief's alone: train by fit() with callbacks=ctx.keras_callbacks(), or end a loop "
            "of your own after a multiple of local_steps"
        )


def refuse_compression(compression: str, steps: int) -> None:
    """Raise SpecError for weights that would be rounded on their way."""
    if compression != "none":
        raise SpecError(
            f"compression={compression!r} with local_steps={steps}: members send weights, and rounding them would lose "
            "what they have trained; leave it out"
        )
