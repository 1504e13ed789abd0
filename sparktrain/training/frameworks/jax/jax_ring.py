"""A ring of the processes of JAX: sums and rows of all members by XLA, over Gloo on CPUs and NCCL on GPUs.

Each collective is a jitted function on one device of each member. XLA compiles one for each shape, so values travel in
buffers of few lengths.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sparktrain.base.threads import spawn
from sparktrain.errors import RingError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.eager_call_log import CLOSING
from sparktrain.training.collectives.eager_ring import EagerRing
from sparktrain.training.collectives.opened_sockets import PeerConnections, open_sockets
from sparktrain.training.collectives.ring import JAX_AVERAGING, LocalRing, Ring
from sparktrain.training.frameworks.jax import jax_gang

AXIS = "members"
_LEAST = 64
_STEP = 2**20
"""Elements of a buffer: powers of two, and multiples of this above it."""
_SPEC: Any = PartitionSpec  # untyped
Array = np.ndarray[Any, Any]


def join(joining: Joining) -> Ring:
    """See `sparktrain.training.collectives.backend.JoinRing`."""
    if joining.formation.size == 1:
        return LocalRing()
    return JaxRing(joining, jax_gang.connect(joining))


class JaxRing(EagerRing):
    """See base class. Takes arrays of JAX and of NumPy, and returns the same kind. Made by `join`."""

    framework = "jax"
    keras_averaging = JAX_AVERAGING
    # XLA raises one of the first two for a connection that is gone.
    broken = (ValueError, RuntimeError, TimeoutError)
    mismatch = "the members call different operations"

    heals = True

    def __init__(self, joining: Joining, shutdown: Callable[[], None]) -> None:
        """`shutdown` disconnects this process, and blocks until all others do it too."""
        super().__init__(joining.formation)
        self._joining = joining
        self._shutdown = shutdown
        self._timeout_s = joining.operation_s
        self.peers = PeerConnections()
        """Those of Gloo, once the ring has had a collective."""
        self._is_used = False
        self.on_leave: list[Callable[[], object]] = []
        """Called before the process leaves its devices."""

    def start_waiting(self, on_rank_read: Callable[[], object]) -> None:
        """This process waits for a place in the ring of others: it has devices of its own.

        `on_rank_read` is called when the function asks JAX for its rank.
        """

        def process_index(backend: Any = None) -> int:
            on_rank_read()
            return self.rank

        def process_count(backend: Any = None) -> int:
            return self.size

        jax_gang.answer(process_index=process_index, process_count=process_count, device_count=process_count)

    def prepare(self) -> None:
        """Nothing has to be ready before the process gets its place."""

    def break_off(self) -> None:
        """End all connections to the other members: collectives fail. Any thread may call it; it does not block."""
        self.peers.shut_down()

    def leave(self) -> None:
        """Leave the devices of all members, after `break_off`."""
        for callback in self.on_leave:
            callback()
        jax_gang.leave()
        for name in ("mesh", "_summed", "_gathered"):
            vars(self).pop(name, None)
        self._is_used = False

    def rejoin(self, formation: Formation, number: int) -> None:
        """Leave, and join ring `number` with `formation`. Blocks until all members have joined. Raises FormError."""
        self.leave()
        changes = replace(self._joining.changes, number=number)
        self._joining = replace(self._joining, formation=formation, changes=changes)
        self.take_place(formation)
        jax_gang.answer_as_is()
        jax_gang.enter(self._joining)

    @cached_property
    def mesh(self) -> Mesh:
        """One device of each member, by rank, on the axis `members`. Its first use waits for all members."""
        first: dict[int, Any] = {}
        for device in jax.devices():
            first.setdefault(device.process_index, device)
        return Mesh(np.array([first[rank] for rank in range(self.size)]), (AXIS,))

    def allreduce(self, tensors: Sequence[Any], *, average: bool, name: str) -> list[Any]:
        """See base class."""
        return _like(super().allreduce(list(map(np.asarray, tensors)), average=average, name=name), tensors)

    def broadcast(self, tensors: Sequence[Any], *, name: str) -> list[Any]:
        """See base class."""
        return _like(super().broadcast(list(map(np.asarray, tensors)), name=name), tensors)

    def allgather(self, tensor: Any, *, name: str) -> Any:
        """See base class."""
        return _like([super().allgather(np.asarray(tensor), name=name)], [tensor])[0]

    def _end(self) -> None:
        """Where another member is gone, this one leaves by its end."""
        with suppress(RingError), self._operation(CLOSING, CLOSING, ()):
            self._shutdown()

    def _sum(self, flat: Array) -> Array:
        return self._run("_summed", flat)[: flat.size]

    def _rows(self, flat: Array) -> Sequence[Array]:
        return list(self._run("_gathered", flat)[:, : flat.size])

    def _run(self, function: str, flat: Array) -> Array:
        """What the jitted `function` makes of the flat arrays of all members, one beside the other.

        Raises TimeoutError: XLA's operations have no timeout, and return only when they are done.
        """
        result: Future[Array] = Future()

        def run() -> None:
            try:
                result.set_result(self._exchanged(function, flat))
            except BaseException as error:
                result.set_exception(error)

        spawn(run, jax_gang.RING_THREAD)
        try:
            return result.result(self._timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"no answer of all members within {self._timeout_s:g} s") from error

    def _exchanged(self, function: str, flat: Array) -> Array:
        sockets_before = None if self._is_used else open_sockets()
        total = self._operated(function, flat)
        if sockets_before is not None:
            self._is_used = True
            self.peers = PeerConnections(open_sockets() - sockets_before)
        return total

    def _operated(self, function: str, flat: Array) -> Array:
        padded = np.zeros((1, _length(flat.size)), flat.dtype)
        padded[0, : flat.size] = flat
        with jax.enable_x64(True):  # otherwise JAX cuts 64 bits to 32
            mine = jax.device_put(padded, self.mesh.devices[self.rank])
            shape = (self.size, padded.shape[1])
            members = jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, _SPEC(AXIS)), [mine])
            return np.asarray(getattr(self, function)(members).addressable_data(0))

    @cached_property
    def _summed(self) -> Any:
        return jax.jit(lambda rows: rows.sum(0, dtype=rows.dtype), out_shardings=NamedSharding(self.mesh, _SPEC()))

    @cached_property
    def _gathered(self) -> Any:
        return jax.jit(lambda rows: rows, out_shardings=NamedSharding(self.mesh, _SPEC()))


def _length(size: int) -> int:
    """The length of the buffer for so many elements."""
    if size <= _STEP:
        return max(_LEAST, 1 << max(0, size - 1).bit_length())
    return -(-size // _STEP) * _STEP


def _like(values: Sequence[Array], tensors: Sequence[Any]) -> list[Any]:
    """`values` as arrays of JAX, where the tensors that were passed are."""
    return [
        jax.device_put(value, _place(tensor)) if isinstance(tensor, jax.Array) else value
        for value, tensor in zip(values, tensors, strict=True)
    ]


def _place(array: jax.Array) -> Any:
    """Where `array` is; None for devices of a ring that was left."""
    return None if jax_gang.is_left(array) else array.sharding
