"""`ctx.distribute` for Keras on JAX: the train step of `fit` is one program over the devices of all members.

Each member's variables and batch become the parts of global arrays, without a copy, for the compiled step alone: the
variables as copies on all members, the batches one after the other. XLA then sums within the step, so that gradients,
metrics, batch normalization and regularization are those of one process with the batches of all. Outside of the step
every member has its variables to itself: it may evaluate, predict and save without the others.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.jax.jax_ring import AXIS, JaxRing
from sparktrain.training.frameworks.keras.distributed_apply import DistributedApply, own_apply
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.keras.start_check import StartCheck

_CALL = "ctx.distribute()"
_SPEC: Any = PartitionSpec  # untyped


def average_by(ring: Ring, optimizer: Any, compression: str) -> Any:
    """Make `optimizer` average by `ring`; returns `optimizer` itself. Raises SpecError.

    See `sparktrain.training.frameworks.keras.distributed_optimizer.distribute`.
    """
    if compression != "none":
        raise SpecError(
            f"{_CALL}: compression {compression!r} on JAX: XLA sums gradients within the compiled step, in their own "
            "type; leave it out, or train in mixed precision"
        )
    if not isinstance(ring, JaxRing):
        optimizer.apply = LoneApply(optimizer)
        return optimizer
    from keras.src.backend.jax.trainer import JAXTrainer

    replace(JAXTrainer, "make_train_function", _makes_global_steps)
    replace(JAXTrainer, "jax_state_sync", _syncs_parts)
    optimizer.apply = GlobalApply(ring, optimizer)
    return optimizer


class GlobalApply(DistributedApply):
    """Takes the place of `apply`: in a step over all members, and with `keras.distribution`, XLA has averaged."""

    passenger: Any = None
    """Nothing: each step has the batches of all members, and leaves all of them with equal values."""
    belongs_outside_scale = False

    def __init__(self, ring: JaxRing, optimizer: Any) -> None:
        self.ring = ring
        self.in_step = False
        """Whether a step over all members is being traced."""
        self._apply = type(optimizer).apply.__get__(optimizer)

    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """See base class. Raises SpecError in a compiled step of the user's own, and RingError."""
        if not self.in_step and keras.distribution.distribution() is None:
            if any(isinstance(gradient, jax.core.Tracer) for gradient in grads):
                raise SpecError(
                    f"the optimizer of {_CALL} is applied in a compiled function of your own, where the ring cannot "
                    "average: train by fit() or train_on_batch(), apply it outside of jax.jit, or average by "
                    "jax.lax.pmean in a jax.shard_map over jax.devices()"
                )
            grads = self.ring.allreduce(list(grads), average=True, name="gradients")
        self._apply(grads, trainable_variables)

    def around(self, outer: Any) -> DistributedApply:
        """See base class."""
        return self


class LoneApply(DistributedApply):
    """Takes the place of `apply` in a test without other members: those that mirror this one have its gradients."""

    belongs_outside_scale = False

    def __init__(self, optimizer: Any) -> None:
        self._apply = type(optimizer).apply.__get__(optimizer)

    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """See base class."""
        self._apply(grads, trainable_variables)

    def around(self, outer: Any) -> DistributedApply:
        """See base class."""
        return self


class GlobalStep:
    """The train step of one model over the devices of all members, as Keras's own `train_function`."""

    def __init__(self, model: Any, replacement: GlobalApply, *, repeats: bool = False, starts: bool = True) -> None:
        """`repeats`: a step leaves the state that it gets as it is. `starts`: it is the first one of all."""
        self._model = model
        self._replacement = replacement
        self._ring = replacement.ring
        self._repeats = repeats
        self._compared: set[tuple[str, ...]] = set()
        self._start: StartCheck | None = StartCheck(self._ring) if starts else None

    # A process that waits for its place in the ring makes a step, and calls it once it has that.

    @cached_property
    def _copies(self) -> NamedSharding:
        return NamedSharding(self._ring.mesh, _SPEC())

    @cached_property
    def _split(self) -> NamedSharding:
        return NamedSharding(self._ring.mesh, _SPEC(AXIS))

    @cached_property
    def _device(self) -> Any:
        return self._ring.mesh.devices[self._ring.rank]

    @cached_property
    def _steps(self) -> Any:
        donated = () if self._repeats else 0
        return self._model._make_function(jax.jit(self._step, donate_argnums=donated, out_shardings=self._copies))

    def __call__(self, state: Any, iterator: Iterator[Any]) -> Any:
        """The logs, and the state after a step. Raises OutOfStepError where members have batches of other shapes, or
        start with other weights."""
        if self._start is not None:  # Keras has taken the values out of the variables
            self._start.check_start(self._model.trainable_variables, [np.asarray(part_of(value)) for value in state[0]])
            self._start = None
        logs, after = self._steps(jax.tree.map(self._as_copy, state), map(self._batch, iterator))
        return jax.tree.map(part_of, logs), after

    def _step(self, state: Any, data: Any) -> Any:
        self._replacement.in_step = True
        try:
            return self._model.train_step(state, data)
        finally:
            self._replacement.in_step = False

    def _as_copy(self, value: Any) -> Any:
        # Devices of a ring that was left have the same numbers, and JAX takes them for these.
        is_here = isinstance(value, jax.Array) and any(device is self._device for device in value.devices())
        if is_here and len(value.sharding.device_set) > 1:
            return value
        mine = jax.device_put(value if is_here else np.asarray(part_of(value)), self._device)
        return jax.make_array_from_single_device_arrays(mine.shape, self._copies, [mine])

    def _batch(self, data: Any) -> Any:
        leaves, structure = jax.tree.flatten(data)
        shapes = tuple(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        if shapes not in self._compared:
            self._compare(shapes)
        self._ring.calls.note("step", "fit", shapes)  # for members that call something else
        return jax.tree.unflatten(structure, map(self._as_rows, leaves))

    def _as_rows(self, leaf: Any) -> Any:
        mine = jax.device_put(leaf, self._device)
        shape = (len(leaf) * self._ring.size, *leaf.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self._split, [mine])

    def _compare(self, shapes: tuple[str, ...]) -> None:
        mine = np.array([zlib.crc32(" ".join(shapes).encode())], np.int64)
        digests = self._ring.allgather_array(mine, name="batch_shapes")
        if len(set(digests.tolist())) > 1:
            raise OutOfStepError(
                f"rank {self._ring.rank} has a batch of {', '.join(shapes)}, and another member one of other shapes: "
                "on JAX all members need batches of equal size in each step; drop the last batch that is smaller, or "
                "give each member as many rows"
            )
        self._compared.add(shapes)


def part_of(value: Any) -> Any:
    """This member's part of an array over all devices, without a copy; anything else as it is."""
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1 and value.is_fully_replicated:
        return value.addressable_data(0)
    return value


def _makes_global_steps(original: Any) -> Any:
    def make_train_function(model: Any, force: bool = False) -> None:
        has_function = model.train_function is not None and not force
        original(model, force=force)
        replacement = replacement_of(model)
        if has_function or replacement is None:
            return
        if model.run_eagerly or not model.jit_compile:
            raise SpecError(
                "the model is compiled with run_eagerly=True or jit_compile=False, and in a gang of JAX the compiled "
                "step averages over the members: leave both out of compile()"
            )
        model.train_function = GlobalStep(model, replacement)

    return make_train_function


def _syncs_parts(original: Any) -> Any:
    def jax_state_sync(model: Any) -> None:
        state = getattr(model, "_jax_state", None)
        if state and not model._jax_state_synced and replacement_of(model) is not None:
            model._jax_state = jax.tree.map(part_of, state)
        original(model)

    return jax_state_sync


def replacement_of(model: Any) -> GlobalApply | None:
    """What has taken the place of `apply` in the optimizer of `model`, or in the one that a loss scale wraps."""
    if keras.distribution.distribution() is not None:
        return None
    optimizer = getattr(model, "optimizer", None)
    candidates = (own_apply(optimizer), own_apply(getattr(optimizer, "inner_optimizer", None)))
    return next((apply for apply in candidates if isinstance(apply, GlobalApply)), None)
