"""The arrays of safetensors files as shared mappings: an assignment to one changes its file."""

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.tensor_files import Array

_HEADER_BYTES = 8
"""At the start of a safetensors file: the length of the JSON header that follows."""


def mapped_arrays(folder: Path, like: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors that `tensor_files.save` has written to `folder`, none of them cut, as views of the files.

    `like` has their dtypes and shapes: some dtypes are stored as integers. The memory stays mapped while a view lives.
    Raises OSError, and ValueError for other files.
    """
    arrays: dict[str, Array] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("r+b") as file:
            start = _HEADER_BYTES + int.from_bytes(file.read(_HEADER_BYTES), "little")
            header: dict[str, Any] = json.loads(file.read(start - _HEADER_BYTES))
            content = np.frombuffer(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE), np.uint8)
        for name, entry in header.items():
            if name != "__metadata__":
                first, end = entry["data_offsets"]
                arrays[name] = content[start + first : start + end].view(like[name].dtype).reshape(like[name].shape)
    if arrays.keys() != like.keys():
        raise ValueError(f"{folder} has {len(arrays)} tensors, and {len(like)} were saved")
    return arrays
