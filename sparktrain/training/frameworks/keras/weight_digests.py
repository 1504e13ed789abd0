"""Compares weights of members by checksums."""

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

_SHOWN = 3
"""How many variables a message names."""


def digest(*arrays: Any) -> int:
    """A checksum of the bytes of arrays, several times as fast as a cryptographic hash: it is for mistakes alone."""
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(np.ravel(array).view(np.uint8).data, checksum)
    return checksum


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
