"""Compares weights of members by checksums."""

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparktrain.training.collectives.ring import Ring

_SHOWN = 3
"""How many variables a message names."""
_WORDS = 4096
"""Words of 8 bytes in a block. The sums of all blocks stand for a large array: a checksum of its bytes takes five times
as long."""


def digest(*arrays: Any) -> int:
    """A checksum of the bytes of arrays, as fast as memory is read: it is for mistakes alone.

    Of a large array, blocks of `_WORDS` words may change places without another checksum.
    """
    checksum = 0
    for array in arrays:
        content = np.ravel(array).view(np.uint8)
        # Sums of words wrap around, and lose no bit as those of floating-point numbers do.
        end = content.size // (8 * _WORDS) * 8 * _WORDS
        if end:
            sums = np.add.reduce(content[:end].view(np.uint64).reshape(-1, _WORDS), axis=0)
            checksum = zlib.crc32(sums.data, checksum)
        checksum = zlib.crc32(content[end:].data, checksum)
    return checksum


def difference(ring: Ring, arrays: Sequence[tuple[str, Any]]) -> str:
    """Which ranks have other `arrays`, given with their names, and which of them; empty if all are equal, to the bit.

    All members call it, with the same names. It blocks until they do, and raises RingError.
    """
    digests = [digest(array) for _, array in arrays]
    table = ring.allgather_array(np.array([digests], "int64"), name="weights")
    return unequal(table, [name for name, _ in arrays])


def unequal(table: np.ndarray[Any, Any], names: Sequence[str]) -> str:
    """Which ranks differ, and in what; empty if none does. `table` has a row for each rank, a column for each name."""
    columns = [index for index in range(len(names)) if len(set(table[:, index].tolist())) > 1]
    if not columns:
        return ""
    rows = [tuple(row) for row in table.tolist()]
    usual, _ = Counter(rows).most_common(1)[0]
    odd_ranks = ", ".join(str(rank) for rank, row in enumerate(rows) if row != usual)
    shown = ", ".join(repr(names[index]) for index in columns[:_SHOWN])
    excess = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"rank {odd_ranks} differs from the others in {shown}{excess}"
