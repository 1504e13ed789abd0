"""Makes Keras 3 optimizers and tapes average over all members of a ring: gradients, or weights after some steps."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.missing_wrappers import FirstStep
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.optimizers.gradients import Gradient, averaged_gradients, width
from sparktrain.training.frameworks.tensorflow.optimizers.local_steps import (
    LocalSteps,
    RingAverager,
    refuse_compression,
)
from sparktrain.training.frameworks.tensorflow.optimizers.outer_scale import OuterScale
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel
from sparktrain.training.frameworks.tensorflow.parameter_server.server_push import (
    ServerAverager,
    ServerPush,
    distribute_to_servers,
)


def distribute(optimizer: Any, ring: Ring, *, compression: str = "none") -> Any:
    """Make `optimizer` average gradients over all members before it applies them; returns `optimizer` itself.

    It keeps its state and its class: a saved one loads as the plain optimizer, without this package. Clipping acts on
    the averaged gradients. With `gradient_accumulation_steps` each call averages its gradients, not only the last one:
    the accumulators stay equal on all members, and a checkpoint between two updates is exact. In a ring of one nothing
    changes. Where the ring has `local_steps`, `optimizer` applies the member's own gradients, and averages the weights
    after so many calls (see `sparktrain.training.frameworks.tensorflow.optimizers.local_steps`).

    `compression` is the type in which gradients are sent: "none" for their own, "fp16" or "bf16" (which saves nothing
    with Horovod: it has no sums of that type). Compile the model with `jit_compile=False`: XLA cannot compile
    collectives. Does not block. Raises SpecError for anything but a Keras optimizer, for one that is distributed
    already, and for an unknown compression.
    """
    narrow = width(compression)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SpecError(
            f"distribute() was given a {type(optimizer).__name__}, a Keras 3 optimizer is expected; pass one, "
            "such as keras.optimizers.SGD(0.01)"
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if is_distributed(optimizer) or is_distributed(inner):
        raise SpecError(
            f"the optimizer {optimizer.name!r} is distributed already; distribute each optimizer once, "
            "and before it is compiled into a model"
        )
    if ring.ps_model is not None:
        return _to_servers(optimizer, ring.ps_model, compression, ring.local_steps)
    if ring.local_steps is not None:
        refuse_compression(compression, ring.local_steps)
        if ring.size > 1:
            optimizer.apply = LocalSteps(optimizer, RingAverager(ring), ring.local_steps)
    elif ring.size > 1:
        # An attribute instead of a subclass: Keras saves the name of the class, and knows its own by identity.
        optimizer.apply = _Reducer(optimizer, ring, narrow)
    return optimizer


def reduce_outside_scale(optimizer: Any) -> None:
    """Move what a distributed optimizer does beside its own update to the loss scale that was put around it.

    `compile()` puts one in a model of policy `mixed_float16`. The loss scale skips an update when a gradient is not
    finite: the members agree about that only if they look at the averaged gradients. Otherwise some would wait in the
    ring for those that skip. Members that average weights count their steps outside, for the same reason. Call it
    before the first step; it does nothing for other optimizers.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    wrapper = _own_apply(inner)
    if isinstance(wrapper, _Reducer):
        del vars(inner)["apply"]
        optimizer.apply = _Reducer(optimizer, wrapper.ring, wrapper.narrow)
    elif isinstance(wrapper, LocalSteps):
        del vars(inner)["apply"]
        optimizer.apply = LocalSteps(optimizer, wrapper.averager, wrapper.steps)


def is_distributed(optimizer: Any) -> bool:
    """Whether `optimizer` averages gradients or weights over a ring, or sends them to servers."""
    return isinstance(_own_apply(optimizer), _Reducer | LocalSteps | ServerPush)


def own_optimizers(model: Any) -> dict[str, Any]:
    """The optimizers in the attributes of `model`, for its own train_step, by attribute."""
    optimizers = {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer)}
    return {
        name: optimizer for name, optimizer in optimizers.items() if optimizer is not getattr(model, "optimizer", None)
    }


def stray_optimizer(model: Any) -> str | None:
    """The name of an optimizer of `model` that is not distributed; None if all that train it are.

    `compile()` without an optimizer creates one, which a train_step with its own optimizers does not use.
    """
    optimizers = own_optimizers(model)
    alone = [name for name, optimizer in optimizers.items() if not _reduces(optimizer)]
    if not optimizers and not _reduces(getattr(model, "optimizer", None)):
        return "optimizer"
    return alone[0] if alone else None


def is_averaged(model: Any) -> bool:
    """Whether no member has trained `model` since its newest average.

    Members have equal weights then, as always where they average gradients. All members have the same answer.
    """
    return not any(wrapper.since for wrapper in _local_ones(model))


def average_weights(model: Any) -> None:
    """Average what members have trained by themselves since the newest average. All call it; blocks until they do."""
    for wrapper in _local_ones(model):
        if wrapper.since:
            wrapper.average()


def _local_ones(model: Any) -> list[LocalSteps]:
    optimizers = [getattr(model, "optimizer", None), *own_optimizers(model).values()]
    wrappers = [
        _own_apply(candidate) for outer in optimizers for candidate in (outer, getattr(outer, "inner_optimizer", None))
    ]
    return [wrapper for wrapper in wrappers if isinstance(wrapper, LocalSteps)]


def _reduces(optimizer: Any) -> bool:
    return optimizer is not None and any(map(is_distributed, (optimizer, getattr(optimizer, "inner_optimizer", None))))


def distribute_tape(tape: tf.GradientTape, ring: Ring, *, compression: str = "none") -> "DistributedTape":
    """Wrap `tape` so that its `gradient` averages over all members.

    Raises SpecError for an unknown compression, and in gangs that average no gradients.
    """
    if ring.ps_model is not None:
        raise SpecError(
            "ctx.distribute_tape() in a gang with backend 'parameter-server': its servers apply gradients; use "
            "ctx.distribute(optimizer) and optimizer.apply_gradients(), or choose backend 'horovod' or 'tensorflow'"
        )
    if ring.local_steps is not None:
        raise SpecError(
            f"ctx.distribute_tape() with local_steps={ring.local_steps}: a tape averages gradients in each step, and "
            "such members average weights; use ctx.distribute(optimizer) and optimizer.apply_gradients(), or leave "
            "local_steps out"
        )
    return DistributedTape(tape, ring, width(compression))


_FIRST_TAPE: "WeakKeyDictionary[Ring, FirstStep]" = WeakKeyDictionary()


def _first_tape(ring: Ring, narrow: tf.DType | None) -> FirstStep:
    """The check of a ring's tapes: a loop makes one for each step, and only the first one is checked."""
    if ring not in _FIRST_TAPE:
        _FIRST_TAPE[ring] = FirstStep(ring, narrow)
    return _FIRST_TAPE[ring]


class DistributedTape:
    """A gradient tape that averages; all other attributes are those of the wrapped tape."""

    def __init__(self, tape: tf.GradientTape, ring: Ring, narrow: tf.DType | None) -> None:
        self._tape = tape
        self._ring = ring
        self._narrow = narrow
        self._first = _first_tape(ring, narrow)

    def __enter__(self) -> "DistributedTape":
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    @as_written
    def gradient(self, target: Any, sources: Any, **options: Any) -> Any:
        """The averaged gradients of `target`, in the structure of `sources`: Keras variables, or TensorFlow's.

        Every member calls it. Blocks until all do. Raises RingError when called eagerly.
        """
        # TensorFlow's tape knows its own variables alone, and Keras 3 wraps them: Horovod's tape fails with those of
        # Keras.
        plain = tf.nest.map_structure(
            lambda variable: variable.value if isinstance(variable, keras.Variable) else variable, sources
        )
        gradients = tf.nest.flatten(self._tape.gradient(target, plain, **options))
        self._first.check_start([source for source in tf.nest.flatten(sources) if hasattr(source, "numpy")])
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
        self._outer = OuterScale(optimizer)
        self._first = FirstStep(ring, narrow)

    @as_written
    def __call__(self, grads: Sequence[Gradient], trainable_variables: Sequence[Any] | None = None) -> None:
        self._outer.refuse()
        gradients = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            gradients = [_shaped(*pair) for pair in zip(gradients, trainable_variables, strict=True)]
        self._first.check_start(
            self._optimizer._trainable_variables if trainable_variables is None else trainable_variables
        )
        single = not _adds_rows(self._optimizer)
        averaged = averaged_gradients(self.ring, gradients, self.narrow, "gradients", single=single)
        self._first.compare(gradients, averaged)
        self._apply(averaged, trainable_variables)


def _adds_rows(optimizer: Any) -> bool:
    """Whether the optimizer treats a row that occurs twice in a gradient as the sum of the two.

    Others do not: Adam adds up the squares of the two, and clipping measures them one by one.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    clips = any(getattr(inner, name, None) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
    return type(inner) is keras.optimizers.SGD and not clips


def _shaped(gradient: Gradient, variable: Any) -> Gradient:
    """`gradient` with the variable's shape, where its own is unknown while a function is traced."""
    if isinstance(gradient, tf.Tensor) and not gradient.shape.is_fully_defined():
        return tf.ensure_shape(gradient, variable.shape)
    return gradient


def _own_apply(optimizer: Any) -> Any:
    """What has taken the place of the optimizer's `apply`, or None."""
    return getattr(optimizer, "__dict__", {}).get("apply")


def _to_servers(optimizer: Any, ps_model: PsModel, compression: str, steps: int | None) -> Any:
    if compression != "none":
        raise SpecError(
            f"compression={compression!r} in a gang with backend 'parameter-server': its servers take gradients in the "
            "types of the variables; leave it out"
        )
    if steps is not None:
        ps_model.check(optimizer)
        optimizer.apply = LocalSteps(optimizer, ServerAverager(optimizer, ps_model), steps)
        return optimizer
    return distribute_to_servers(optimizer, ps_model)
