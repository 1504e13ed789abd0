"""Weights in one file that all processes of a host map: their memory counts once, however many workers predict."""

import mmap
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.datasets.group_file import checksum

LEAST_BYTES = 2**20
"""Smaller variables stay copies: a page of a file for each would save nothing."""
_PAGE = 4096
_MAGIC = b"sparktrain weights 2\n"
_CHECKSUM_BYTES = 4
"""At the end: CRC-32C of all bytes before."""


class MappedVariable(Struct, frozen=True, array_like=True):
    """One variable in the file."""

    index: int
    """Its place among the variables of the model."""
    dtype: str
    shape: tuple[int, ...]
    offset: int


class MappedWeights:
    """The large variables of a model, in a private mapping of a file: TensorFlow reads its pages, and copies none."""

    def __init__(self, path: Path) -> None:
        """Map the file at `path`. Raises OSError."""
        with path.open("rb") as file:
            # Private and writable: DLPack refuses what is read-only; predictions write no weights.
            self._map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        end = self._map.find(b"\n", len(_MAGIC))
        self._variables = from_json(self._map[len(_MAGIC) : end], list[MappedVariable])

    @staticmethod
    def is_intact(path: Path) -> bool:
        """Whether no byte of the file has changed since it was written. Blocks on the disk. Raises OSError."""
        if path.stat().st_size < len(_MAGIC) + _CHECKSUM_BYTES:
            return False
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            expected = int.from_bytes(content[-_CHECKSUM_BYTES:], "little")
            return checksum(pa.py_buffer(content).slice(0, len(content) - _CHECKSUM_BYTES)) == expected

    def give_to(self, model: Any) -> None:
        """Replace the values of the model's variables by those in the file, which must be of the same model."""
        import tensorflow as tf

        variables = model.variables
        for entry in self._variables:
            count = int(np.prod(entry.shape))
            flat = np.frombuffer(self._map, np.dtype(entry.dtype), count, entry.offset)
            # convert_to_tensor copies arrays; a tensor from DLPack is a view, and a variable keeps the tensor itself.
            tensor = tf.experimental.dlpack.from_dlpack(flat.reshape(entry.shape).__dlpack__())
            variables[entry.index].value.assign(tensor)

    @staticmethod
    def write(model: Any, path: Path) -> None:
        """Write the large variables of the model. Raises OSError."""
        large_variables: list[tuple[MappedVariable, Any]] = []
        offset = 0
        for index, variable in enumerate(model.variables):
            values = np.ascontiguousarray(variable.numpy())
            if values.nbytes >= LEAST_BYTES and values.dtype.kind in "fiu" and values.dtype.isnative:
                large_variables.append((MappedVariable(index, values.dtype.name, values.shape, offset), variable))
                offset += -(-values.nbytes // _PAGE) * _PAGE
        # The head holds the offsets of what follows it, so its room must be fixed before they are known.
        head = -(-(len(_MAGIC) + 128 * (len(large_variables) + 1)) // _PAGE) * _PAGE
        placed = [msgspec.structs.replace(mapped, offset=head + mapped.offset) for mapped, _ in large_variables]
        with path.open("wb+") as file:
            file.write(_MAGIC + msgspec.json.encode(placed) + b"\n")
            for entry, (_, variable) in zip(placed, large_variables, strict=True):
                file.seek(entry.offset)
                file.write(np.ascontiguousarray(variable.numpy()).tobytes())
            file.truncate(max(file.tell(), head))
            file.flush()
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                value = checksum(pa.py_buffer(content))
            file.seek(0, os.SEEK_END)
            file.write(value.to_bytes(_CHECKSUM_BYTES, "little"))
            file.flush()
            os.fsync(file.fileno())
