"""A checksum of a folder in shared memory: fast enough to take several times a minute of state of many gigabytes."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # agents that hold nothing do without
    import numpy as np

_BLOCK_WORDS = 2**17


def folder_checksum(folder: Path, mapped: "Mapping[str, np.ndarray[Any, Any]] | None" = None) -> str:
    """64 hexadecimal digits for the names, sizes and content of the files in `folder`; other entries do not count.

    It finds changed bits, lost pages and exchanged blocks of 1 MiB, as bad memory or a partial write leave them: the
    sums of each block's 64-bit words, hashed by SHA-256. It is no protection against a change on purpose.

    `mapped` has the bytes of files that this process maps already, by name: 25 GB/s, and 7 GB/s for a file that it maps
    for this alone. Blocks. Raises OSError.
    """
    mapped = mapped or {}
    digest = hashlib.sha256()
    for entry in sorted(os.scandir(folder), key=lambda dir_entry: dir_entry.name):
        if entry.is_file(follow_symlinks=False):
            digest.update(f"{entry.name}\0{entry.stat().st_size}\0".encode())
            if entry.stat().st_size:
                digest.update(_sums(mapped.get(entry.name), entry.path))
    return digest.hexdigest()


def _sums(data: "np.ndarray[Any, Any] | None", path: str) -> bytes:
    import numpy as np

    if data is None:
        data = np.memmap(path, np.uint8, "r")
    words = data[: data.size // 8 * 8].view(np.uint64)
    even = words.size // _BLOCK_WORDS * _BLOCK_WORDS
    sums = words[:even].reshape(-1, _BLOCK_WORDS).sum(axis=1, dtype=np.uint64)
    tail_sum = words[even:].sum(dtype=np.uint64)
    return bytes(sums.tobytes() + tail_sum.tobytes() + data[words.size * 8 :].tobytes())
