"""A ring of the processes of JAX: sums and rows of all members by XLA, over Gloo on CPUs and NCCL on GPUs.

Each collective is a jitted function on one device of each member. XLA compiles one for each shape, so values travel
flat, in buffers of few lengths. Before each one the members compare what they call, by a digest of 16 bytes: padded
buffers of other shapes would otherwise be summed without an error.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sparktrain.base.threads import spawn
from sparktrain.errors import RingError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.eager_call_log import CLOSING, EagerCallLog
from sparktrain.training.collectives.ring import JAX_AVERAGING, LocalRing, Ring
from sparktrain.training.collectives.step_notes import StepNotes
from sparktrain.training.frameworks.jax import jax_gang, jax_values

AXIS = "members"
_LEAST = 64
_STEP = 2**20
"""Elements of a buffer: powers of two, and multiples of this above it."""
Array = np.ndarray[Any, Any]


def join(joining: Joining) -> Ring:
    """See `sparktrain.training.collectives.backend.JoinRing`."""
    if joining.formation.size == 1:
        return LocalRing()
    return JaxRing(joining.formation, jax_gang.connect(joining), joining.operation_s)


class JaxRing(Ring):
    """See base class. Takes arrays of JAX and of NumPy, and returns the same kind. Made by `join`."""

    framework = "jax"
    keras_averaging = JAX_AVERAGING
    calls: EagerCallLog
    notes: StepNotes

    def __init__(self, formation: Formation, shutdown: Callable[[], None], timeout_s: float) -> None:
        """`shutdown` disconnects this process, and blocks until all others do it too.

        `timeout_s` is how long an operation waits for the others.
        """
        self.rank = formation.rank
        self.size = formation.size
        self.calls = EagerCallLog()
        self.notes = StepNotes()
        self._formation = formation
        self._shutdown = shutdown
        self._timeout_s = timeout_s
        self._closed = False

    @property
    def values(self) -> Any:
        """See base class."""
        return jax_values

    @cached_property
    def mesh(self) -> Mesh:
        """One device of each member, by rank, on the axis `members`. Its first use waits for all members."""
        first: dict[int, Any] = {}
        for device in jax.devices():
            first.setdefault(device.process_index, device)
        return Mesh(np.array([first[rank] for rank in range(self.size)]), (AXIS,))

    def allreduce(self, tensors: Sequence[Any], *, average: bool, name: str) -> list[Any]:
        """See base class. Arrays of one type travel together."""
        arrays = [np.asarray(tensor) for tensor in tensors]
        with self._operation("allreduce", name, [_described(array) for array in arrays]):
            reduced = list(arrays)
            for dtype in dict.fromkeys(array.dtype for array in arrays):
                indices = [index for index, array in enumerate(arrays) if array.dtype == dtype]
                total = self._sum(np.concatenate([_countable(arrays[index]).reshape(-1) for index in indices]))
                start = 0
                for index in indices:
                    part = total[start : start + arrays[index].size]
                    start += arrays[index].size
                    reduced[index] = _averaged(part, self.size if average else 1, arrays[index])
        return _like(reduced, tensors)

    def broadcast(self, tensors: Sequence[Any], *, name: str) -> list[Any]:
        """See base class. Arrays travel together, as bytes."""
        arrays = [np.asarray(tensor) for tensor in tensors]
        with self._operation("broadcast", name, [_described(array) for array in arrays]):
            sent = np.concatenate([_bytes(array) for array in arrays]) if arrays else np.zeros(0, np.uint8)
            received = self._sum(sent if self.rank == 0 else np.zeros_like(sent))
            values = []
            start = 0
            for array in arrays:
                values.append(received[start : start + array.nbytes].copy().view(array.dtype).reshape(array.shape))
                start += array.nbytes
        return _like(values, tensors)

    def allgather(self, tensor: Any, *, name: str) -> Any:
        """See base class."""
        array = np.asarray(tensor)
        if not array.ndim:
            raise ValueError(f"allgather {name!r}: an array without axes has no first axis; give it one")
        with self._operation("allgather", name, [_described(array[:0])], len(array)) as counts:
            row_bytes = array[:0].itemsize * int(np.prod(array.shape[1:], dtype=int))
            padded = np.zeros(max(counts) * row_bytes, np.uint8)
            padded[: array.nbytes] = _bytes(array)
            rows = self._rows(padded)
            joined = np.concatenate([row[: count * row_bytes] for row, count in zip(rows, counts, strict=True)])
            gathered = joined.view(array.dtype).reshape(sum(counts), *array.shape[1:])
        return _like([gathered], [tensor])[0]

    def note_step(self, shapes: Sequence[str]) -> None:
        """Log a step that XLA runs on the devices of all members, for members that call another one."""
        self.calls.note("step", "fit", tuple(shapes))

    def close(self) -> None:
        """See base class. Where another member is gone, this one leaves by its end."""
        if self._closed:
            return
        self._closed = True
        with suppress(RingError), self._operation(CLOSING, CLOSING, ()), self._failing(CLOSING):
            self._shutdown()

    @contextmanager
    def _operation(self, kind: str, name: str, shapes: Sequence[str], count: int = 0) -> Iterator[list[int]]:
        """Log a collective, and compare it with those of the others; yields the `count` of each. Raises RingError."""
        self.calls.note(kind, name, tuple(shapes))
        entered_ns = self.notes.now_ns()
        with self._failing(name):
            digest = zlib.crc32(f"{kind} {name} {' '.join(shapes)}".encode())
            headers = self._rows(np.array([digest, count], np.int64).view(np.uint8))
            table = headers[:, :16].copy().view(np.int64)
            if (table[:, 0] != digest).any():
                raise ValueError("the members call different operations")
            yield table[:, 1].tolist()
        self.notes.call(entered_ns)

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError, TimeoutError) as error:  # XLA raises either for a connection that is gone
            raise RingError(
                f"{barrier.this_member(self._formation)}: operation {name!r} of the ring failed: a member is gone, or "
                f"passed another shape ({_first_line(error)})"
            ) from error

    def _sum(self, flat: Array) -> Array:
        return self._run("_summed", flat)[: flat.size]

    def _rows(self, flat: Array) -> Array:
        return self._run("_gathered", flat)[:, : flat.size]

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

        spawn(run, "sparktrain-ring")
        try:
            return result.result(self._timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"no answer of all members within {self._timeout_s:g} s") from error

    def _exchanged(self, function: str, flat: Array) -> Array:
        padded = np.zeros((1, _length(flat.size)), flat.dtype)
        padded[0, : flat.size] = flat
        with jax.enable_x64(True):  # otherwise JAX cuts 64 bits to 32
            mine = jax.device_put(padded, self.mesh.devices[self.rank])
            shape = (self.size, padded.shape[1])
            members = jax.make_array_from_single_device_arrays(shape, self._split, [mine])
            return np.asarray(getattr(self, function)(members).addressable_data(0))

    @cached_property
    def _split(self) -> NamedSharding:
        return _sharding(self.mesh, AXIS)

    @cached_property
    def _summed(self) -> Any:
        return jax.jit(lambda rows: rows.sum(0, dtype=rows.dtype), out_shardings=self._everywhere)

    @cached_property
    def _gathered(self) -> Any:
        return jax.jit(lambda rows: rows, out_shardings=self._everywhere)

    @property
    def _everywhere(self) -> NamedSharding:
        return _sharding(self.mesh)


def _sharding(mesh: Mesh, *axes: str) -> NamedSharding:
    spec: Any = PartitionSpec  # untyped
    return NamedSharding(mesh, spec(*axes))


def _length(size: int) -> int:
    """The length of the buffer for so many elements."""
    if size <= _STEP:
        return max(_LEAST, 1 << max(0, size - 1).bit_length())
    return -(-size // _STEP) * _STEP


def _countable(array: Array) -> Array:
    """Truth values as numbers: a sum of them counts, and JAX's is true or false."""
    return array.astype(np.uint8) if array.dtype == bool else array


def _averaged(total: Array, divisor: int, like: Array) -> Array:
    """The sum, or the mean, in the type and shape of `like`."""
    if divisor > 1:
        exact = total.dtype.kind in "iu"
        # Toward zero, as the other rings round.
        total = (np.sign(total) * (np.abs(total) // divisor)) if exact else total / np.array(divisor, total.dtype)
    return total.astype(like.dtype).reshape(like.shape)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _like(values: Sequence[Array], tensors: Sequence[Any]) -> list[Any]:
    """`values` as arrays of JAX, where the tensors that were passed are."""
    return [
        jax.device_put(value, tensor.sharding) if isinstance(tensor, jax.Array) else value
        for value, tensor in zip(values, tensors, strict=True)
    ]


def _described(array: Array) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
