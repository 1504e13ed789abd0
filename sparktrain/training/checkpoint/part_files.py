"""Writes pieces of split tensors to safetensors files that `torch.distributed.checkpoint` reads too.

A file has at most one piece of a tensor, under the name of the tensor, and torch's own metadata about where the pieces
start. So `HuggingFaceStorageReader` of torch reads the files of all members, on any number of processes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from sparktrain.training.checkpoint.tensor_slices import Array, TensorSlice

KEYS = "sparktrain.keys"
"""In a file's metadata: for the name of each piece in it, its key in the index of slices."""
TYPES = {f"{sign}int{bits}": f"{sign[:1].upper() or 'I'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TYPES |= {"float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL", "bfloat16": "BF16"}
TYPES |= {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
"""The types of tensors that such a file takes, and their names in it."""
_ALIGNMENT = 8
_LENGTH_BYTES = 8
"""At the start of a file: the length of its header."""


def save_pieces(
    folder: Path, rank: int, tensors: Mapping[str, Array], slices: Sequence[TensorSlice], most_bytes: int
) -> None:
    """Write the pieces that `slices` name, of types in `TYPES`, for member `rank`. Raises OSError.

    No file has more than `most_bytes`, unless a single piece has. Makes no copy.
    """
    for number, group in enumerate(_groups(tensors, slices, most_bytes)):
        _write(folder / f"part-{rank:04d}-{number:05d}.safetensors", group, tensors)


def _groups(
    tensors: Mapping[str, Array], slices: Sequence[TensorSlice], most_bytes: int
) -> Iterator[list[TensorSlice]]:
    """The pieces of each file."""
    group: dict[str, TensorSlice] = {}
    size = 0
    for entry in slices:
        count = tensors[entry.key].nbytes
        if group and (entry.name in group or size + count > most_bytes):
            yield [*group.values()]
            group = {}
            size = 0
        group[entry.name] = entry
        size += count
    if group:
        yield [*group.values()]


def _write(path: Path, group: Sequence[TensorSlice], tensors: Mapping[str, Array]) -> None:
    # Readers may map the file: the pieces of large types come first, so that all are aligned.
    ordered = sorted(group, key=lambda entry: -tensors[entry.key].itemsize)
    offsets = {entry.name: {"saved_offsets": entry.start} for entry in ordered}
    metadata = {
        "format": "pt",
        "DCP_VERSION": "1.0",
        "DCP_SHARDING_INFO": json.dumps(offsets),
        KEYS: json.dumps({entry.name: entry.key for entry in ordered}),
    }
    header: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for entry in ordered:
        first, end = end, end + tensors[entry.key].nbytes
        header[entry.name] = {
            "dtype": TYPES[entry.dtype],
            "shape": entry.piece_shape,
            "data_offsets": (first, end),
        }
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % _ALIGNMENT)
    with path.open("xb") as file:
        file.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
        for entry in ordered:
            file.write(np.ascontiguousarray(tensors[entry.key]).reshape(-1).view(np.uint8).data)
