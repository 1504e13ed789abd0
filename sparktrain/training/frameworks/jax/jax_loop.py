"""What the steps of a user's loop of JAX compute: see `LoopSteps`.

They change nothing in place: a step gets all values as arguments, and the loop has what it returns. So a member repeats
a step by the same call. Where the ring is another one, the arrays among the arguments move to its devices before, and
JAX compiles what it calls for them again.
"""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sparktrain.errors import OutOfStepError
from sparktrain.training.checkpoint.extras import pack
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.collectives.weight_digests import difference
from sparktrain.training.elastic.loop_steps import LoopSteps
from sparktrain.training.elastic.state_source import RingRefusalError
from sparktrain.training.frameworks.jax import jax_gang
from sparktrain.training.frameworks.jax.jax_ring import JaxRing


def loop_steps(parts: Sequence[Any], healing: RingHealing) -> "JaxLoopSteps | None":
    """See `Framework.loops`. None on other devices than CPUs, and where a member has several: a program chooses their
    number before JAX is initialised, and it is, in a process that joins a ring."""
    ring: Any = healing.ring
    if parts or not isinstance(ring, JaxRing) or jax.default_backend() != "cpu" or jax.local_device_count() > 1:
        return None
    return JaxLoopSteps()


class JaxLoopSteps(LoopSteps):
    """See base class. The state of the loop is the arrays that it passes to `memory.step` by name."""

    is_in_place = False

    def __init__(self) -> None:
        self._has_programs = jax_gang.has_programs()
        """Whether the function has run one over the devices of all members before the loop."""
        self._arguments: deque[list[Any]] = deque(maxlen=2)
        """The leaves of those of the newest steps."""
        self._values: Mapping[str, Any] = {}

    def obstacle(self) -> str:
        """See base class."""
        if self._has_programs:
            return "a program over the devices of all members came before the block: call it in train_step"
        if self.is_applied():
            return "train_step donates its arguments, and could not be called again: leave donate_argnums out"
        try:
            _, arrays = pack(self._values)
        except TypeError as error:
            return str(error)
        return "" if arrays else "memory.step() gets no array by name, such as memory.step(step, params=params)"

    def passed(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """See base class."""
        self._arguments.append(jax.tree.leaves((arguments, options)))
        here: tuple[Sequence[Any], Mapping[str, Any]] = jax.tree.map(moved, (tuple(arguments), dict(options)))
        return here

    def returned(self, result: Any) -> Any:
        """See base class. XLA returns before it is done, and a failure would come later."""
        wait: Any = jax.block_until_ready
        return wait(result)

    def check_equal(self, ring: Ring) -> None:
        """See base class."""
        _, arrays = pack(self._values)
        if unequal := difference(ring, [("/".join(map(str, path)), array) for path, array in arrays]):
            raise OutOfStepError(
                f"{unequal}: the members do not train one model, or pass arrays of their own to memory.step(). A new "
                "process takes those of any member: pass arrays that are equal on all, and others as lists of numbers"
            )

    def note(self, values: Mapping[str, Any]) -> None:
        """See base class."""
        self._values = values

    def is_applied(self) -> bool:
        """See base class. Whether a step has used up its arguments, so that it cannot be repeated."""
        leaves = itertools.chain(*self._arguments)
        return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def moved(value: Any) -> Any:
    """`value`, or an equal one on the present devices where it is an array on those of a ring that was left.

    An array over all members keeps its partitions. Blocks for a copy. Raises RingRefusalError for an array that cannot
    be divided among the present members.
    """
    if not isinstance(value, jax.Array) or not jax_gang.is_left(value):
        return value
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # type: ignore[attr-defined] # a public name of JAX
        data = moved(jax.random.key_data(value))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    if len(value.sharding.device_set) == 1:
        return jax.device_put(np.asarray(value), jax.local_devices()[0] if value.committed else None)
    sharding = _sharding(value)
    parts = [jax.device_put(np.asarray(shard.data), jax.local_devices()[0]) for shard in value.addressable_shards]
    return jax.make_array_from_single_device_arrays(value.shape, sharding, parts)


def _sharding(array: Any) -> NamedSharding:
    """That of `array`, over the present devices: one of each member."""
    devices = {device.process_index: device for device in jax.devices()}
    spec: Any = PartitionSpec  # untyped
    old = array.sharding
    if isinstance(old, NamedSharding) and old.mesh.devices.size == len(devices):
        grid = np.vectorize(lambda device: devices[device.process_index], otypes=[object])(old.mesh.devices)
        return NamedSharding(Mesh(grid, old.mesh.axis_names, axis_types=old.mesh.axis_types), old.spec)
    if not array.is_fully_replicated:
        raise RingRefusalError(
            f"an array of shape {list(array.shape)} is divided over {len(old.device_set)} members, and {len(devices)} "
            "train on: make arrays with the rows of a step in train_step"
        )
    names = old.mesh.axis_names if isinstance(old, NamedSharding) and len(old.mesh.axis_names) == 1 else ("members",)
    return NamedSharding(Mesh(np.array([devices[rank] for rank in sorted(devices)]), names), spec())
