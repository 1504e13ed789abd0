"""Writes tensors to safetensors files with one JSON document beside them, and reads them. No pickle."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sparktrain.errors import CheckpointError
from sparktrain.training.checkpoint import tensor_slices
from sparktrain.training.checkpoint.part_files import KEYS, TYPES, save_pieces
from sparktrain.training.checkpoint.tensor_slices import (
    Index,
    TensorSlice,
    assemble,
    bounds_of,
    index_file,
    naming,
    read_indices,
    save_index,
    writer_of,
)

SHARD_BYTES = 127 * 2**20
"""The most bytes of tensors in one file, which with its header fits in an HDFS block. Larger ones are cut."""
DOCUMENT = "state.json"
SOURCE = "source"
"""The key, in the document of a state, of the rank that has saved it."""
HELD = "held"
"""The key, in the document of a state in memory, of whether its files have only the parts that one member needs."""
MEMBER = "members/"
"""Prefix of a member's own tensors, before its rank and their names."""
MEMBER_BYTES = 2**22
"""The most bytes of one member's own tensors; beyond that all members continue with the chief's."""

_CORRUPT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors of Python and numpy for names, types and numbers that `save` has not written."""

Array = tensor_slices.Array

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PLAIN = _INTEGERS | {"float16", "float32", "float64", "bool"}
"""The types of safetensors' numpy API; any other, such as bfloat16, is stored as integers of its size."""
_DTYPES = {f"{sign}{8 * size}": f"{kind}{size}" for sign, kind in (("I", "i"), ("U", "u")) for size in (1, 2, 4, 8)}
_DTYPES |= {"F16": "f2", "F32": "f4", "F64": "f8", "BOOL": "bool"}
_DTYPES |= {"BF16": "u2", "F8_E4M3": "u1", "F8_E5M2": "u1"}
"""The names of these types in a file's header, and NumPy's; integers for those that NumPy lacks."""
ONE_FILE = 2**62
"""More bytes than any state has: no tensor is cut."""
_LENGTH_BYTES = 8
"""At the start of a file: the length of its header."""
_FOREIGN = "sparktrain"
"""The key in a file's metadata with names, dtypes and shapes of tensors that are stored as integers."""
_CUT = "\0"
"""Separates the name of a cut tensor from the offset of the part among its integers, in the part's key."""


def save(folder: Path, tensors: Mapping[str, Array], document: Any, shard_bytes: int = SHARD_BYTES) -> None:
    """Write the tensors, each C-contiguous, and a JSON document to files in the new `folder`. Blocks on the disk.

    Makes no copy of a tensor. Raises CheckpointError when the disk fails, or a dtype is not of fixed size.
    """
    with _writing(folder):
        _save_tensors(folder, "tensors", tensors, shard_bytes)
        save_document(folder, document)


def send(folder: Path, tensors: Mapping[str, Array], document: Any) -> None:
    """As `save`, for a process that waits for the files: it cuts no tensor, and writes two files at a time.

    Such a process reads a tensor that is not cut without a copy of it (`TensorFiles.view`).
    """
    shard_bytes = max([SHARD_BYTES, *(tensor.nbytes for tensor in tensors.values())])
    with _writing(folder):
        _save_tensors(folder, "tensors", tensors, shard_bytes, writers=2)
        save_document(folder, document)


def save_part(
    folder: Path,
    rank: int,
    tensors: Mapping[str, Array],
    slices: Sequence[TensorSlice],
    document: Any = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write what member `rank` has of a state to files in the new `folder`, with an index of its slices.

    `slices` name pieces of split tensors among `tensors`; no other member has any of these elements. The chief writes a
    `document`, and all tensors that are not split. `TensorFiles` reads a folder with the files of all members, and
    torch reads the pieces (`part_files`). Blocks and raises as `save`.
    """
    pieces = [entry for entry in slices if entry.dtype in TYPES]
    named = {entry.key for entry in pieces}
    with _writing(folder):
        save_pieces(folder, rank, tensors, pieces, shard_bytes)
        unnamed = {key: tensor for key, tensor in tensors.items() if key not in named}
        _save_tensors(folder, f"tensors-{rank:04d}" if rank else "tensors", unnamed, shard_bytes)
        save_index(folder, rank, slices)
        if document is not None:
            save_document(folder, document)


def save_held(
    folder: Path, part: int, tensors: Mapping[str, Array], slices: Sequence[TensorSlice], document: Any
) -> None:
    """Write all that a member holds of a state to files in the new `folder`: its `part`, and what is not split.

    `held_files` has those of the part, to which other members add theirs. Blocks and raises as `save`.
    """
    pieces = {entry.key for entry in slices}
    with _writing(folder):
        for prefix, keys in ((_held_prefix(part), pieces), ("tensors", tensors.keys() - pieces)):
            _save_tensors(folder, prefix, {key: tensors[key] for key in tensors if key in keys}, ONE_FILE)
        save_index(folder, part, slices)
        save_document(folder, document)


def held_files(folder: Path, part: int) -> list[Path]:
    """The files with a part of a state in memory: of tensors, and of where their pieces are."""
    return [folder / f"{_held_prefix(part)}-00000.safetensors", index_file(folder, part)]


def is_held(path: Path) -> bool:
    """Whether a file has a part of a state in memory, and not what all parts have."""
    return path.name.startswith(("held-", "slices-"))


def _held_prefix(part: int) -> str:
    return f"held-{part:04d}"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True)
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"state cannot be written to {folder}: {error}; free some space there") from error


def save_document(folder: Path, document: Any) -> None:
    """Write the JSON document beside the tensors in `folder`, in place of an earlier one. Raises OSError."""
    (folder / DOCUMENT).write_text(json.dumps(document), encoding="utf-8")


def source_rank(document: Mapping[str, Any]) -> int:
    """The rank that has saved a state: the chief, unless another member has sent it to a new process."""
    return int(document.get(SOURCE, 0))


class TensorFiles:
    """A folder that `save` has written, opened for reading; tensors are read one by one. A context manager.

    The files are mapped: only what is read takes memory. It may also have the files that `save_part` has written for
    all members. Raises CheckpointError, here and in its methods, if the files are not those of `save`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = ExitStack()
        self._parts: dict[str, list[tuple[int, str, _MappedFile]]] = {}
        """For each tensor name, its parts: offset, key, and file."""
        self._foreign: dict[str, tuple[str, list[int]]] = {}
        try:
            self.document: Any = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
            is_held = isinstance(self.document, dict) and self.document.get(HELD)
            self._slices = read_indices(folder, whole=not is_held)
            for path in sorted(folder.glob("*.safetensors")):
                with naming(path):
                    self._index(_MappedFile(path, self._open.enter_context(safe_open(path, framework="np"))))
            self._names = self._all_names()
        except (OSError, SafetensorError, *_CORRUPT) as error:
            self._parts.clear()
            self._open.close()
            raise CheckpointError(
                f"files in {folder} are no saved state: {error}; copy all of them again, or use another checkpoint"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.clear()
        self._open.close()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def is_split(self) -> bool:
        """Whether several members have written it."""
        return len(list(self.folder.glob("slices-*.json"))) > 1

    @property
    def split_bytes(self) -> int:
        """The bytes of all tensors that are in slices."""
        slices = [entries[0] for entries in self._slices.values()]
        return sum(math.prod(entry.shape) * dtype_of(entry.dtype).itemsize for entry in slices)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the tensor `name`."""
        with self._reading(name):
            if name in self._slices:
                return self._slices[name][0].shape
            if name in self._foreign:
                return tuple(self._foreign[name][1])
            [(_, key, file)] = self._parts[name]
            return tuple(file.shape(key))

    def read(self, name: str) -> Array:
        """A copy of the tensor `name`, in memory."""
        with self._reading(name):
            if name not in self._slices:
                return self._stored(name)
            shape = self._slices[name][0].shape
            return self._sliced(name, tuple(slice(0, extent) for extent in shape))

    def view(self, name: str) -> Array:
        """The tensor `name` in the memory of its file, where it is stored in one piece; any other as `read`.

        It stays valid after the files are closed or deleted, and a change of it does not change the file.
        """
        with self._reading(name):
            if name in self._slices or name in self._foreign:
                return self.read(name)
            [(_, key, file)] = self._parts[name]
            return file.mapped(key)

    def read_slice(self, name: str, index: Index) -> Array:
        """A copy of the part `index` of the tensor `name`, with a slice for each dimension, in memory.

        Of a tensor that `save_part` has written in slices, it reads those that overlap with `index`.
        """
        with self._reading(name):
            if name in self._slices:
                return self._sliced(name, index)
            return self._stored(name, index)

    def _all_names(self) -> set[str]:
        """The names of all tensors. Raises ValueError where slices are missing in the files."""
        keys = {entry.key for entries in self._slices.values() for entry in entries if 0 not in entry.piece_shape}
        if missing := keys - self._parts.keys():
            raise ValueError(
                f"the files part-*.safetensors lack {len(missing)} slices of tensors that slices-*.json name, such as "
                f"{min(missing)!r} of rank {writer_of(min(missing))}"
            )
        return (self._parts.keys() - keys) | self._slices.keys()

    def _sliced(self, name: str, index: Index) -> Array:
        entries = self._slices[name]
        bounds = bounds_of(index, entries[0].shape)
        dtype = dtype_of(entries[0].dtype)
        target = np.empty([stop - start for start, stop in zip(*bounds, strict=True)], dtype)

        def read(entry: TensorSlice, part: Index) -> Array:
            piece = self._stored(entry.key, part)
            if piece.dtype.itemsize != dtype.itemsize:
                raise ValueError(f"its slice {entry.key!r} is of {piece.dtype}, and not of {dtype}")
            return piece.view(dtype)

        assemble(target, bounds, entries, read)
        return target

    def _stored(self, name: str, index: Index | None = None) -> Array:
        """A tensor or a slice as it is in the files, or its part `index`."""
        parts = self._parts[name]
        if name in self._foreign:
            joined = _joined(name, parts, *self._foreign[name])
            return joined if index is None else np.ascontiguousarray(joined[index])
        [(_, key, file)] = parts
        content: Array = file.mapped(key)
        # Of an array: a number would be none.
        return np.array(content[index] if index else content)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (SafetensorError, *_CORRUPT) as error:
            raise CheckpointError(f"tensor {name!r} cannot be read from {self.folder}: {error}") from error

    def _index(self, file: "_MappedFile") -> None:
        pieces = json.loads(file.metadata.get(KEYS, "{}"))
        for key in file.keys:
            name, _, start = pieces.get(key, key).partition(_CUT)
            self._parts.setdefault(name, []).append((int(start or 0), key, file))
        self._foreign |= json.loads(file.metadata.get(_FOREIGN, "{}"))


class _MappedFile:
    """The tensors of one file as views of it.

    The library copies what it reads twice, into new memory each time: of 1 GB that takes a second.
    """

    def __init__(self, path: Path, opened: Any) -> None:
        """`opened` is the file as the library has it, which has checked its header."""
        self.keys: list[str] = list(opened.keys())
        self.metadata: dict[str, str] = opened.metadata() or {}
        with path.open("rb") as file:
            self._start = _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little")
            self._header: dict[str, Any] = json.loads(file.read(self._start - _LENGTH_BYTES))
        self._content = np.memmap(path, np.uint8, "c")

    def shape(self, key: str) -> list[int]:
        """The shape of a tensor."""
        return list(self._header[key]["shape"])

    def mapped(self, key: str) -> Array:
        """The tensor, in the memory of the file."""
        entry = self._header[key]
        first, end = entry["data_offsets"]
        content = self._content[self._start + first : self._start + end]
        return content.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def numeric(dtype: np.dtype[Any]) -> bool:
    """Whether `save` takes tensors of this dtype: numbers, those of `ml_dtypes` too, and truth values."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.isbuiltin == 2)


def as_plain(tensor: Array) -> Array:
    """A view of the same shape and memory in a type of safetensors, where there is one of its size: else itself.

    What is stored so is read in parts, and not as a row of integers.
    """
    size = tensor.dtype.itemsize
    if tensor.dtype.name in _PLAIN or size not in (1, 2, 4, 8):
        return tensor
    return tensor.view(f"uint{8 * size}")


def _save_tensors(
    folder: Path, prefix: str, tensors: Mapping[str, Array], shard_bytes: int, *, writers: int = 1
) -> None:
    shards = [
        partial(_save_shard, folder / f"{prefix}-{number:05d}.safetensors", parts, tensors)
        for number, parts in enumerate(_groups(_parts(tensors, shard_bytes), shard_bytes))
    ]
    if min(writers, len(shards)) < 2:
        for save_shard in shards:
            save_shard()
        return
    with ThreadPoolExecutor(writers) as pool:
        for saved in [pool.submit(save_shard) for save_shard in shards]:
            saved.result()


def _parts(tensors: Mapping[str, Array], shard_bytes: int) -> Iterator[tuple[str, Array]]:
    """The stored parts of the tensors with their keys: views of their memory, none larger than a file."""
    for name, tensor in tensors.items():
        if tensor.nbytes <= shard_bytes:
            yield name, tensor if tensor.dtype.name in _PLAIN else _as_integers(name, tensor)
            continue
        integers = _as_integers(name, tensor)
        count = max(1, shard_bytes // integers.itemsize)
        # In parts, because files are written and read concurrently: one large embedding was one file otherwise.
        for start in range(0, len(integers), count):
            yield f"{name}{_CUT}{start}", integers[start : start + count]


def _groups(parts: Iterable[tuple[str, Array]], shard_bytes: int) -> Iterator[dict[str, Array]]:
    """The parts of each file, in order."""
    group: dict[str, Array] = {}
    size = 0
    for key, part in parts:
        if group and size + part.nbytes > shard_bytes:
            yield group
            group = {}
            size = 0
        group[key] = part
        size += part.nbytes
    if group:
        yield group


def _save_shard(path: Path, parts: dict[str, Array], tensors: Mapping[str, Array]) -> None:
    names = [key.partition(_CUT)[0] for key, part in parts.items() if part is not tensors.get(key)]
    foreign = {name: (tensors[name].dtype.name, tensors[name].shape) for name in names}
    save_file(parts, path, {_FOREIGN: json.dumps(foreign)} if foreign else None)


def _joined(name: str, parts: "list[tuple[int, str, _MappedFile]]", dtype: str, shape: list[int]) -> Array:
    """A tensor from its parts, which are stored as integers."""
    stored = sum(math.prod(file.shape(key)) for _, key, file in parts)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype_of(dtype).itemsize > 8 * stored:
        raise ValueError(f"it has the shape {shape}, and {stored} integers are stored")  # before it takes the memory
    tensor = np.empty(shape, dtype_of(dtype))
    integers = _as_integers(name, tensor)
    filled = 0
    for start, key, file in sorted(parts, key=lambda part: part[0]):
        part = file.mapped(key)
        if start != filled:
            raise ValueError(f"its part from {filled} to {start} is missing")
        integers[start : start + len(part)] = part
        filled += len(part)
    if filled != len(integers):
        raise ValueError(f"it has {filled} of {len(integers)} integers")
    return tensor


def _as_integers(name: str, tensor: Array) -> Array:
    """A flat view of the same memory."""
    if not numeric(tensor.dtype):
        raise CheckpointError(f"tensor {name!r} has dtype {tensor.dtype}, and must be of numbers to be saved")
    size = tensor.dtype.itemsize
    integers = f"uint{8 * size}" if size in (1, 2, 4, 8) else "uint8"
    return tensor.reshape(-1).view(integers)


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype `name`; one that numpy lacks comes from `ml_dtypes`, which TensorFlow installs.

    Without `ml_dtypes`, as beside PyTorch alone, integers stand for the types of `TYPES`.
    """
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(_DTYPES[TYPES[name]])
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
