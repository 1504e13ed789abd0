"""A ring with eager collectives alone: what such rings have in common, whatever framework their tensors are of.

Values travel as flat arrays: sums by type, and all else as bytes. Before each collective the members compare what they
call, by 16 bytes.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from sparktrain.base.formatting import first_line
from sparktrain.state.topology import Formation
from sparktrain.training.collectives.eager_call_log import EagerCallLog
from sparktrain.training.collectives.gang_ring import GangRing
from sparktrain.training.collectives.ring import Tensor, values_in
from sparktrain.training.frameworks.imported import ALL


class EagerRing(GangRing):
    """See base class. A framework adds how flat arrays travel: these are of NumPy, or tensors of the framework where it
    also replaces what makes arrays flat and back."""

    calls: EagerCallLog
    # All errors of torch are, and few have a class of their own.
    broken: tuple[type[Exception], ...] = (RuntimeError,)
    """What the framework raises where a member is gone, or has passed another shape."""
    mismatch = "rank {rank} does not call {call}"
    """The text of the error where a member calls something else."""

    def __init__(self, formation: Formation) -> None:
        super().__init__(formation)
        self.calls = EagerCallLog()

    @property
    def values(self) -> Any:
        """See base class. That of the ring's framework."""
        [values] = [framework.values for framework in ALL if framework.module == self.framework]
        return values_in(values)

    def allreduce(self, tensors: Sequence[Tensor], *, average: bool, name: str) -> list[Tensor]:
        """See base class. Tensors of one type travel together."""
        return self.continuity.call(
            lambda: self._allreduce(tensors, average, name),
            lambda: list(tensors) if average else [tensor * self.size for tensor in tensors],
            name,
        )

    def _allreduce(self, tensors: Sequence[Tensor], average: bool, name: str) -> list[Tensor]:
        with self._operation("allreduce", name, [_described(tensor, tensor.shape) for tensor in tensors]):
            reduced = list(tensors)
            kinds = [(tensor.dtype, getattr(tensor, "device", None)) for tensor in tensors]
            for kind in dict.fromkeys(kinds):
                indices = [index for index in range(len(tensors)) if kinds[index] == kind]
                parts = [self._summable(tensors[index]) for index in indices]
                for index, total in zip(indices, _split(self._sum(self._joined(parts)), parts), strict=True):
                    reduced[index] = self._from_sum(total, tensors[index], self.size if average else 1)
            return reduced

    def broadcast(self, tensors: Sequence[Tensor], *, name: str) -> list[Tensor]:
        """See base class. Tensors travel together."""
        return self.continuity.call(lambda: self._broadcast(tensors, name), lambda: list(tensors), name)

    def _broadcast(self, tensors: Sequence[Tensor], name: str) -> list[Tensor]:
        with self._operation("broadcast", name, [_described(tensor, tensor.shape) for tensor in tensors]):
            if not tensors:
                return []
            flat = [self._bytes(tensor) for tensor in tensors]
            pairs = zip(tensors, _split(self._sent(self._joined(flat)), flat), strict=True)
            # A copy, because the bytes of one tensor may start where no number of the next type can.
            return [self._from_bytes(self._joined([part]), like, like.shape) for like, part in pairs]

    def allgather(self, tensor: Tensor, *, name: str) -> Tensor:
        """See base class."""
        if not len(tensor.shape):
            raise ValueError(f"allgather {name!r}: a tensor without axes has no first axis; give it one")
        [gathered] = self.continuity.call(
            lambda: [self._allgather(tensor, name)], lambda: [self._joined([tensor] * self.size)], name
        )
        return gathered

    def _allgather(self, tensor: Tensor, name: str) -> Tensor:
        row_shape = tensor.shape[1:]
        with self._operation("allgather", name, [_described(tensor, (0, *row_shape))], len(tensor)) as counts:
            row_bytes = prod(row_shape) * tensor.dtype.itemsize
            padding = np.zeros((max(counts) - len(tensor)) * row_bytes, np.uint8)
            rows = self._rows(self._joined([self._bytes(tensor), self.tensor(padding)]))
            joined = self._joined([row[: count * row_bytes] for row, count in zip(rows, counts, strict=True)])
            return self._from_bytes(joined, tensor, (sum(counts), *row_shape))

    # ---- what a framework has

    @abstractmethod
    def _sum(self, flat: Tensor) -> Tensor:
        """The sum over all members, who pass arrays of one type and length, which it may change. Blocks."""

    @abstractmethod
    def _rows(self, flat: Tensor) -> Sequence[Tensor]:
        """The bytes of each member, by rank; all pass as many. Blocks."""

    def _sent(self, flat: Tensor) -> Tensor:
        """The bytes of the member `source`; all pass as many. Blocks."""
        return self._sum(flat if self.rank == self.source else np.zeros_like(flat))

    def _connected(self) -> AbstractContextManager[None]:
        """Entered for each collective, once it is logged."""
        return nullcontext()

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """A new tensor: `tensors` one after the other along their first axis, where the first one is."""
        return np.concatenate(tensors)

    def _summable(self, tensor: Tensor) -> Tensor:
        """`tensor`, flat, in a type that `_sum` takes: truth values as numbers, because a sum of them counts."""
        return (tensor.astype(np.uint8) if tensor.dtype == bool else tensor).reshape(-1)

    def _from_sum(self, total: Tensor, like: Tensor, divisor: int) -> Tensor:
        """The flat `total`, divided, in the type and shape of `like`."""
        if divisor > 1:
            # Toward zero, as the ring of PyTorch rounds.
            exact = total.dtype.kind in "iu"
            total = (np.sign(total) * (np.abs(total) // divisor)) if exact else total / np.array(divisor, total.dtype)
        return total.astype(like.dtype).reshape(like.shape)

    def _bytes(self, tensor: Tensor) -> Tensor:
        """The bytes of `tensor`, flat, where they can travel."""
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)

    def _from_bytes(self, flat: Tensor, like: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor of `shape` with these bytes, in the type of `like`, and where that is."""
        return flat.view(like.dtype).reshape(shape)

    # ---- a collective

    @contextmanager
    def _operation(self, kind: str, name: str, shapes: Sequence[str], count: int = 0) -> Iterator[list[int]]:
        """Log a collective, and compare it with those of the others; yields the `count` of each. Raises RingError."""
        self.calls.note(kind, name, tuple(shapes))
        with self._failing(name), self._connected():
            entered_ns = self.notes.now_ns()
            yield self._counts(f"{kind} {name} {shapes}", count)
            self.notes.call(entered_ns)

    def _counts(self, call: str, count: int) -> list[int]:
        """The `count` of each member. Raises RuntimeError where members make different calls."""
        # Gloo sums arrays of different lengths without an error, and so does it with those of different calls.
        digest = int.from_bytes(sha256(call.encode()).digest()[:7])
        header = np.array([digest, count], np.int64).view(np.uint8)
        table = np.stack([np.asarray(row).view(np.int64) for row in self._rows(self.tensor(header))])
        if differing := np.flatnonzero(table[:, 0] != digest).tolist():
            raise RuntimeError(self.mismatch.format(rank=differing[0], call=call))
        return [int(number) for number in table[:, 1]]

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except self.broken as error:
            raise self._failed(name, first_line(error)) from error


def _split(flat: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """The parts of `flat`, one after the other, with the lengths of `like`."""
    start = 0
    for part in like:
        yield flat[start : start + len(part)]
        start += len(part)


def _described(tensor: Tensor, shape: Sequence[int]) -> str:
    return f"{str(tensor.dtype).rpartition('.')[2]}{list(shape)}"
