"""Keras 3 optimizers and tapes whose gradients are averaged over all members of a ring."""

import traceback
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.collectives.gradients import Gradient, averaged_gradients, width
from sparktrain.training.collectives.op_names import as_written
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.keras.missing_wrappers import FirstStep


def distribute(optimizer: Any, ring: Ring, *, compression: str = "none") -> Any:
    """`optimizer` itself, which from now on averages gradients over all members before it applies them.

    It keeps its state and its class: what is saved of it loads as the plain optimizer, without this package. Clipping
    acts on the averaged gradients. With `gradient_accumulation_steps` the gradients of each call are averaged, not only
    those of the last: so the accumulators are equal on all members, and a checkpoint between two updates is exact. In a
    ring of one it is left as it is.

    `compression` is what gradients travel as: "none" for their own type, "fp16" or "bf16" (which saves nothing with
    Horovod: it has no sums of that type). Raises SpecError for anything but a Keras optimizer, for one that is
    distributed already, and for an unknown compression.

    A model is to be compiled with `jit_compile=False`: no ring's operations can be compiled by XLA.
    """
    narrow = width(compression)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SpecError(
            f"distribute() was given a {type(optimizer).__name__}, a Keras 3 optimizer is expected; pass one, "
            "such as keras.optimizers.SGD(0.01)"
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if _reducer(optimizer) is not None or _reducer(inner) is not None:
        raise SpecError(
            f"the optimizer {optimizer.name!r} is distributed already; distribute each optimizer once, "
            "and before it is compiled into a model"
        )
    if ring.size > 1:
        # An attribute, and no subclass: Keras saves the name of the class, and knows its own by identity.
        optimizer.apply = _Reducer(optimizer, ring, narrow)
    return optimizer


def reduce_outside_scale(optimizer: Any) -> None:
    """Where a loss scale was put around an optimizer after it was distributed, have the scale's optimizer reduce.

    `compile()` does so in a model of policy `mixed_float16`. The loss scale skips an update when a gradient is not
    finite: its members agree about that only when they look at the same gradients, the averaged ones. Otherwise some
    would wait in the ring for those that skip. To be called before the first step; does nothing for other optimizers.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    reducer = _reducer(inner)
    if reducer is not None:
        del vars(inner)["apply"]
        optimizer.apply = _Reducer(optimizer, reducer.ring, reducer.narrow)


def is_distributed(optimizer: Any) -> bool:
    """Whether `optimizer` averages its gradients over a ring."""
    return _reducer(optimizer) is not None


def own_optimizers(model: Any) -> dict[str, Any]:
    """The optimizers that `model` has for a train_step of its own, by the names of its attributes."""
    found = {name: each for name, each in vars(model).items() if isinstance(each, keras.optimizers.Optimizer)}
    return {name: each for name, each in found.items() if each is not getattr(model, "optimizer", None)}


def stray_optimizer(model: Any) -> str | None:
    """How to call an optimizer of `model` that does not know the gang; None where all do that train it.

    `compile()` without one makes one that is not used, where train_step has its own.
    """
    own = own_optimizers(model)
    alone = [name for name, each in own.items() if not _reduces(each)]
    if not own and not _reduces(getattr(model, "optimizer", None)):
        return "optimizer"
    return alone[0] if alone else None


def _reduces(optimizer: Any) -> bool:
    return optimizer is not None and any(map(is_distributed, (optimizer, getattr(optimizer, "inner_optimizer", None))))


def distribute_tape(tape: tf.GradientTape, ring: Ring, *, compression: str = "none") -> "DistributedTape":
    """`tape`, whose `gradient` averages over all members. Raises SpecError for an unknown compression."""
    return DistributedTape(tape, ring, width(compression))


_FIRST_TAPE: "WeakKeyDictionary[Ring, FirstStep]" = WeakKeyDictionary()
"""A loop makes a tape for each of its steps: the first one of a ring is looked at."""


class DistributedTape:
    """A gradient tape; what is not here is the tape's own."""

    def __init__(self, tape: tf.GradientTape, ring: Ring, narrow: tf.DType | None) -> None:
        self._tape = tape
        self._ring = ring
        self._narrow = narrow
        self._first = _FIRST_TAPE.setdefault(ring, FirstStep(ring, narrow))

    def __enter__(self) -> "DistributedTape":
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    @as_written
    def gradient(self, target: Any, sources: Any, **options: Any) -> Any:
        """The averaged gradients of `target`, in the structure of `sources`: Keras variables, or TensorFlow's."""
        plain = tf.nest.map_structure(lambda each: each.value if isinstance(each, keras.Variable) else each, sources)
        gradients = tf.nest.flatten(self._tape.gradient(target, plain, **options))
        self._first.begin([each for each in tf.nest.flatten(sources) if hasattr(each, "numpy")])
        averaged = averaged_gradients(self._ring, gradients, self._narrow, "tape", single=True)
        self._first.compare(gradients, averaged)
        return tf.nest.pack_sequence_as(plain, averaged)


class _Reducer:
    """Takes the place of an optimizer's `apply`."""

    def __init__(self, optimizer: Any, ring: Ring, narrow: tf.DType | None) -> None:
        self.ring = ring
        self.narrow = narrow
        self._optimizer = optimizer
        self._apply = optimizer.apply
        self._looked = False
        self._first = FirstStep(ring, narrow)

    @as_written
    def __call__(self, grads: Sequence[Gradient], trainable_variables: Sequence[Any] | None = None) -> None:
        self._refuse_outer_scale()
        gradients = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            gradients = [_shaped(*each) for each in zip(gradients, trainable_variables, strict=True)]
        self._first.begin(self._optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        single = not _adds_rows(self._optimizer)
        averaged = averaged_gradients(self.ring, gradients, self.narrow, "gradients", single=single)
        self._first.compare(gradients, averaged)
        self._apply(averaged, trainable_variables)

    def _refuse_outer_scale(self) -> None:
        """Raise SpecError when a loss scale calls, for it has decided by this member's gradients alone."""
        if self._looked and tf.executing_eagerly():
            return
        self._looked = True
        for frame, _ in traceback.walk_stack(None):
            caller = frame.f_locals.get("self")
            if isinstance(caller, keras.optimizers.LossScaleOptimizer) and caller.inner_optimizer is self._optimizer:
                raise SpecError(
                    f"the optimizer {self._optimizer.name!r} was wrapped into a LossScaleOptimizer after it was "
                    "distributed; wrap it first, and distribute the LossScaleOptimizer"
                )


def _adds_rows(optimizer: Any) -> bool:
    """Whether a row that occurs twice in a gradient is to the optimizer what the sum of the two is.

    To others it is not: Adam adds up the squares of the two, and clipping measures them one by one.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    clips = any(getattr(inner, name, None) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
    return type(inner) is keras.optimizers.SGD and not clips


def _shaped(gradient: Gradient, variable: Any) -> Gradient:
    """`gradient` with the variable's shape, where its own is not known while a function is traced."""
    if isinstance(gradient, tf.Tensor) and not gradient.shape.is_fully_defined():
        return tf.ensure_shape(gradient, variable.shape)
    return gradient


def _reducer(optimizer: Any) -> _Reducer | None:
    found = getattr(optimizer, "__dict__", {}).get("apply")
    return found if isinstance(found, _Reducer) else None
