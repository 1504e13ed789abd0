"""Makes Keras 3 optimizers and tapes average over all members of a ring: gradients, or weights after some steps."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from sparktrain.base.model_kinds import named_kind
from sparktrain.errors import SpecError
from sparktrain.training.collectives.passenger import Passenger
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import DistributedApply
from sparktrain.training.frameworks.keras.outer_scale import OuterScale
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.optimizers.first_step import FirstStep
from sparktrain.training.frameworks.tensorflow.optimizers.gradients import (
    GRADIENTS,
    TAPE,
    Gradient,
    averaged_gradients,
    width,
)
from sparktrain.training.frameworks.tensorflow.optimizers.local_steps import (
    LocalSteps,
    RingAverager,
    refuse_compression,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel
from sparktrain.training.frameworks.tensorflow.parameter_server.server_push import (
    ServerAverager,
    distribute_to_servers,
)


def average_by(ring: Ring, optimizer: Any, compression: str) -> Any:
    """Make `optimizer` average by `ring`; returns `optimizer` itself. Raises SpecError.

    See `sparktrain.training.frameworks.keras.distributed_optimizer.distribute`.
    """
    narrow = width(compression)
    if ring.ps_model is not None:
        return _to_servers(optimizer, ring.ps_model, compression, ring.local_steps)
    if ring.local_steps is not None:
        refuse_compression(compression, ring.local_steps)
        if ring.size > 1:
            optimizer.apply = LocalSteps(optimizer, RingAverager(ring), ring.local_steps)
    elif ring.size > 1:
        # An attribute instead of a subclass: Keras saves the name of the class, and knows its own by identity.
        optimizer.apply = GradientAverage(optimizer, ring, narrow)
    return optimizer


def distribute_tape(tape: tf.GradientTape, ring: Ring, *, compression: str = "none") -> "DistributedTape":
    """Wrap `tape` so that its `gradient` averages over all members.

    Raises SpecError for what is no tape, for an unknown compression, and in gangs that average no gradients.
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
    if not isinstance(tape, tf.GradientTape):
        raise SpecError(
            f"ctx.distribute_tape() got {named_kind(tape)}, and takes a tf.GradientTape: pass an optimizer of Keras, "
            "or a model of PyTorch, to ctx.distribute()"
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
        passenger: Passenger | None = getattr(self._ring, "passenger", None)
        sent = () if passenger is None else [passenger.sent()]
        averaged, sums = averaged_gradients(self._ring, gradients, self._narrow, TAPE, single=True, beside=sent)
        self._first.compare(gradients, averaged)
        if not tf.executing_eagerly():
            averaged = _together(averaged, sums)
        if passenger is not None:
            with tf.control_dependencies(tf.nest.flatten(averaged, expand_composites=True)):
                passenger.receive(sums[0])
        return tf.nest.pack_sequence_as(plain, averaged)


def _together(averaged: Sequence[Gradient], sums: Sequence[tf.Tensor]) -> list[Gradient]:
    """The `averaged` gradients: each of them is there once all of them are, and `sums`.

    A collective may fail after others of the same step: a member that repeats the step must have applied nothing.
    """
    tensors = tf.nest.flatten([mean for mean in averaged if mean is not None], expand_composites=True)
    with tf.control_dependencies([*tensors, *sums]):
        return [
            None if mean is None else tf.nest.map_structure(tf.identity, mean, expand_composites=True)
            for mean in averaged
        ]


class GradientAverage(DistributedApply):
    """Averages gradients over the ring, and applies nothing before all members have all averages."""

    passenger: Passenger | None = None
    """Set it before the step is traced."""

    def __init__(self, optimizer: Any, ring: Ring, narrow: tf.DType | None) -> None:
        self._ring = ring
        self._narrow = narrow
        self._optimizer = optimizer
        self._apply = optimizer.apply
        self._outer = OuterScale(optimizer)
        self._first = FirstStep(ring, narrow)

    @as_written
    def __call__(self, grads: Sequence[Gradient], trainable_variables: Sequence[Any] | None = None) -> None:
        self._outer.refuse(traced=not tf.executing_eagerly())
        gradients = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            gradients = [_shaped(*pair) for pair in zip(gradients, trainable_variables, strict=True)]
        self._first.check_start(
            self._optimizer._trainable_variables if trainable_variables is None else trainable_variables
        )
        single = not _adds_rows(self._optimizer)
        passenger = self.passenger
        averaged, sums = averaged_gradients(
            self._ring,
            gradients,
            self._narrow,
            GRADIENTS,
            single=single,
            beside=() if passenger is None else [passenger.sent()],
        )
        self._first.compare(gradients, averaged)
        received = [mean for mean in averaged if mean is not None]
        # A collective may fail after others of the same step: a member that repeats it must have applied nothing.
        with tf.control_dependencies([*tf.nest.flatten(received, expand_composites=True), *sums]):
            if passenger is not None:
                passenger.receive(sums[0])
            self._apply(averaged, trainable_variables)

    def around(self, outer: Any) -> "GradientAverage":
        """See base class."""
        return GradientAverage(outer, self._ring, self._narrow)


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
