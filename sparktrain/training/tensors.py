"""Tensors in files and back: safetensors files, and one JSON document beside them. No pickle."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sparktrain.errors import CheckpointError

SHARD_BYTES = 256 * 2**20
"""A file takes no more tensors when it would grow larger; one tensor may be larger."""
DOCUMENT = "state.json"

Array = np.ndarray[Any, np.dtype[Any]]

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PLAIN = _INTEGERS | {"float16", "float32", "float64", "bool"}
"""What safetensors' numpy API writes and reads; anything else, such as bfloat16, goes as integers of its size."""
_FOREIGN = "sparktrain"
"""Key in a file's metadata: names, dtypes and shapes of what is stored as integers."""


def save(folder: Path, tensors: Mapping[str, Array], document: Any, shard_bytes: int = SHARD_BYTES) -> None:
    """Write the tensors, each C-contiguous, and what JSON can say, to files in the new `folder`. Blocks on the disk.

    Makes no copy of a tensor. Raises CheckpointError when the disk fails, or a dtype is not of fixed size.
    """
    try:
        folder.mkdir(parents=True)
        for number, names in enumerate(_groups(tensors, shard_bytes)):
            _save_shard(folder / f"tensors-{number:05d}.safetensors", {name: tensors[name] for name in names})
        (folder / DOCUMENT).write_text(json.dumps(document), encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"state cannot be written to {folder}: {error}; free some space there") from error


class TensorFiles:
    """A folder that `save` has written, opened for reading; tensors are read one by one. A context manager.

    Raises CheckpointError, here and in its methods, when the files are not what `save` has written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = ExitStack()
        self._files: dict[str, Any] = {}
        """By the name of each tensor."""
        self._foreign: dict[str, tuple[str, list[int]]] = {}
        try:
            self.document: Any = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.safetensors")):
                file = self._open.enter_context(safe_open(path, framework="np"))
                self._files |= dict.fromkeys(file.keys(), file)
                self._foreign |= json.loads((file.metadata() or {}).get(_FOREIGN, "{}"))
        except (OSError, SafetensorError, ValueError) as error:
            self._open.close()
            raise CheckpointError(f"files in {folder} are no saved state: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.clear()
        self._open.close()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> Array:
        """A copy of the tensor `name`, in memory."""
        try:
            stored: Array = self._files[name].get_tensor(name)
            if name not in self._foreign:
                return stored
            dtype, shape = self._foreign[name]
            return stored.view(_dtype(dtype)).reshape(shape)
        except (KeyError, SafetensorError, TypeError, ValueError) as error:
            raise CheckpointError(f"tensor {name!r} cannot be read from {self.folder}: {error}") from error


def numeric(dtype: np.dtype[Any]) -> bool:
    """Whether `save` takes tensors of this dtype: numbers, those of `ml_dtypes` too, and truth values."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.isbuiltin == 2)


def _groups(tensors: Mapping[str, Array], shard_bytes: int) -> Iterator[list[str]]:
    """The names of what goes to the same file, in their order."""
    group: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        if group and size + tensor.nbytes > shard_bytes:
            yield group
            group, size = [], 0
        group.append(name)
        size += tensor.nbytes
    if group:
        yield group


def _save_shard(path: Path, tensors: Mapping[str, Array]) -> None:
    foreign = {name: (each.dtype.name, each.shape) for name, each in tensors.items() if each.dtype.name not in _PLAIN}
    stored = {name: _as_integers(name, each) if name in foreign else each for name, each in tensors.items()}
    save_file(stored, path, {_FOREIGN: json.dumps(foreign)} if foreign else None)


def _as_integers(name: str, tensor: Array) -> Array:
    """A flat view of the same memory."""
    if not numeric(tensor.dtype):
        raise CheckpointError(f"tensor {name!r} has dtype {tensor.dtype}, and must be of numbers to be saved")
    size = tensor.dtype.itemsize
    integers = f"uint{8 * size}" if size in (1, 2, 4, 8) else "uint8"
    return tensor.reshape(-1).view(integers)


def _dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name; those that numpy lacks come from `ml_dtypes`, which whoever saved one has."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # comes with TensorFlow

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
