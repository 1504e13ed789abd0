"""State dicts of PyTorch as JSON values beside arrays, and back.

A state dict is plain data: tensors, arrays and numbers of NumPy, Python's numbers, strings and None, in dicts, lists
and tuples. Whatever else is in one would need a pickle, and is refused by the path to it.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from sparktrain.config.param_values import described
from sparktrain.errors import CheckpointError
from sparktrain.training.checkpoint.member_slices import MemberSlices
from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles, numeric
from sparktrain.training.checkpoint.tensor_slices import TensorSlice
from sparktrain.training.frameworks.torch import split_tensors
from sparktrain.training.frameworks.torch.split_tensors import from_numpy, with_numpy_type

_PREFIX = "state/"
GENERATOR = f"{_PREFIX}generator"
_DICTS: dict[str, Any] = {"dict": dict, "counter": Counter, "ordered": OrderedDict}
_LISTS: dict[str, Any] = {"list": list, "tuple": tuple}
_NESTED = 100
"""How deep a state dict may be nested: one that contains itself has no end."""


@dataclass(frozen=True)
class PartName:
    """What an object with a state is called."""

    title: str
    """In messages."""
    label: str
    """In the names of its tensors."""
    parameters: Mapping[Any, str] = field(default_factory=dict)
    """Of an optimizer: the name of each parameter in its model, by its number in the state."""


Path = tuple[PartName, *tuple[Any, ...]]
"""The part, and the keys and indices that lead to a value."""


class Packing:
    """Turns state dicts into JSON, and collects copies of their arrays."""

    def __init__(self, spare: Mapping[str, Array], retained: Mapping[int, int]) -> None:
        """`retained`: the address and the bytes of tensors that need no copy."""
        self._retained = retained
        self.arrays: dict[str, Array] = {GENERATOR: torch.get_rng_state().numpy().copy()}
        self._spare = spare

    def packed(self, value: Any, path: Path) -> Any:
        """`value` as JSON: a list with a word for its kind, unless it is a scalar. Raises TypeError with its path."""
        if len(path) > _NESTED:
            raise TypeError(
                f"{shown(path)} is nested more than {_NESTED} deep, and cannot be saved: a value may contain itself"
            )
        if isinstance(value, torch.Tensor):
            return ["tensor", str(value.dtype).removeprefix("torch."), self._add_tensor(value, path)]
        if isinstance(value, np.ndarray | np.generic):
            return ["array" if isinstance(value, np.ndarray) else "scalar", self._add(value, path)]
        if isinstance(value, Mapping):
            kind = next((word for word in ("counter", "ordered") if isinstance(value, _DICTS[word])), "dict")
            return [kind, [[_key(key, path), self.packed(item, (*path, key))] for key, item in value.items()]]
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [self.packed(item, (*path, index)) for index, item in enumerate(value)]]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(
            f"{shown(path)} is {described(value)}, and cannot be saved: state dicts are saved "
            "without pickle, as tensors, arrays, numbers, strings, and lists and dicts of them. Have its state_dict() "
            "leave it out, or return its own state_dict() or its name"
        )

    def _add_tensor(self, value: torch.Tensor, path: Path) -> str:
        return self._add(value, path)

    def _add(self, value: Any, path: Path) -> str:
        key = f"{_PREFIX}{len(self.arrays)}"
        self.arrays[key] = self._array(value, self._spare.get(key), path)
        return key

    def _array(self, value: Any, spare: Array | None, path: Path) -> Array:
        """A tensor, an array or a number of NumPy as an array: a copy, unless it is retained."""
        if not isinstance(value, torch.Tensor):
            return _copied(value, shown(path))
        is_dense = value.layout is torch.strided and value.is_contiguous()
        if self._retained and is_dense and self._retained.get(value.data_ptr()) == value.nbytes:
            array: Array = with_numpy_type(value).numpy()
            return array
        return copied_array(value, spare, shown(path))


class PartPacking(Packing):
    """As its base, with the pieces of tensors that one member writes: rank 0 also writes what is not split.

    With `held`, the pieces are all that a member holds of part number `rank`, and it writes what is not split too.
    """

    def __init__(self, spare: Mapping[str, Array], rank: int, *, held: bool = False) -> None:
        super().__init__(spare, {})
        self._member_slices = MemberSlices(rank, spare)
        self._is_held = held
        self._writes_whole = held or not rank
        self._names: set[str] = set()
        self._count = 0
        if self._writes_whole:
            self._member_slices.arrays.update(self.arrays)
        self.arrays = self._member_slices.arrays

    @property
    def slices(self) -> list[TensorSlice]:
        """The index of the slices among the arrays."""
        return self._member_slices.slices

    def _add_tensor(self, value: torch.Tensor, path: Path) -> str:
        name = self._unused(_tensor_name(path))
        if split_tensors.is_split(value):
            pieces = split_tensors.own_slices(value, shared=not self._is_held)
        elif not self._writes_whole:
            return name
        elif not value.numel():
            # No piece has any of its elements.
            self.arrays[name] = copied_array(value, None, shown(path))
            return name
        else:
            pieces = [(((0,) * value.dim(), tuple(value.shape)), copied_array(value, None, shown(path)))]
        dtype = split_tensors.dtype_name(value)
        if not pieces and self._is_held:
            # The shape of the tensor is in no other file that this member may have.
            self._member_slices.note(name, value.shape, dtype, ((0,) * value.dim(), (0,) * value.dim()))
        self._member_slices.add(name, value.shape, dtype, pieces)
        return name

    def _unused(self, name: str) -> str:
        """`name`, or with a number where a tensor before has it; the same on all members: their states have one order.

        Two models of one optimizer may have equal names: one tensor once took the place of the other.
        """
        number = 1
        unused = name
        while unused in self._names:
            number += 1
            unused = f"{name}.{number}"
        self._names.add(unused)
        return unused

    def _add(self, value: Any, path: Path) -> str:
        self._count += 1
        key = f"{_PREFIX}{self._count}"
        if self._writes_whole:
            self.arrays[key] = self._array(value, self._spare.get(key), path)
        return key


def unpacked(value: Any, files: TensorFiles, like: Any = None) -> Any:
    """What `packed` has made `value` of, with arrays from `files`.

    `like` has tensors of several members, in dicts and lists as those of the state: in their places are tensors laid
    out equally, where the shapes are equal, and this member reads its own part of them. A tensor stands for all in its
    place.
    """
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "tensor":
        return _tensor(getattr(torch, value[1]), value[2], files, like)
    if kind in ("array", "scalar"):
        array = np.array(files.read(value[1]))
        return array if kind == "array" else array[()]
    if kind in _DICTS:
        pairs = ((_unpacked_key(key), item) for key, item in value[1])
        return _DICTS[kind]({key: unpacked(item, files, _inner(like, key)) for key, item in pairs})
    return _LISTS[kind](unpacked(item, files, _inner(like, index)) for index, item in enumerate(value[1]))


def shown(path: Path) -> str:
    """The path to a value, for messages."""
    return path[0].title + "".join(f"[{key!r:.100}]" for key in path[1:])


def copied_array(tensor: torch.Tensor, spare: Array | None, name: str) -> Array:
    """A copy of a tensor on the host: in `spare`, if that fits. Raises TypeError, with the `name`, for others."""
    if split_tensors.is_distributed(tensor):
        if tensor.device_mesh.size() > 1:
            raise TypeError(
                f"{name} is a DTensor, and other members hold parts of it: every member must call "
                "ctx.checkpoint.save(step, model, optimizer), after the same step"
            )
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(
            f"{name} is a sparse or quantized tensor, and only dense ones can be saved: have state_dict() return "
            "to_dense(), or dequantize()"
        )
    if tensor.device.type == "meta":
        raise TypeError(f"{name} is a tensor on the device meta, which has no values to save: materialize it first")
    plain = with_numpy_type(tensor)
    if spare is not None and plain.dim() == spare.ndim and tuple(plain.shape) == spare.shape:
        target = torch.from_numpy(spare)
        if target.dtype is plain.dtype:
            target.copy_(plain)
            return spare
    copied: Array = plain.resolve_conj().resolve_neg().to("cpu", copy=True).contiguous().numpy()
    return copied


def _tensor(dtype: torch.dtype, name: str, files: TensorFiles, like: Any) -> torch.Tensor:
    if split_tensors.is_distributed(like) and tuple(like.shape) == files.shape(name):
        return split_tensors.from_slices(like, lambda index: files.read_slice(name, index), dtype)
    try:
        return from_numpy(files.read(name), dtype)
    except CheckpointError as error:
        if files.is_split or not files.split_bytes:
            raise
        raise CheckpointError(
            f"{error}: in memory is the part of one member, and the object to restore has no part there. Call "
            "fully_shard, or make its tensors from those of the model, before ctx.checkpoint.restore()"
        ) from error


def _inner(like: Any, key: Any) -> Any:
    if isinstance(like, Mapping):
        return like.get(key)
    if isinstance(like, list | tuple):
        return like[key] if key < len(like) else None
    return like


def _tensor_name(path: Path) -> str:
    """The name of a tensor in torch's distributed checkpoints."""
    part, *keys = path
    if part.parameters and keys[:1] == ["state"] and len(keys) > 1:
        keys[1] = part.parameters.get(keys[1], keys[1])
    return ".".join(map(str, (part.label, *keys)))


def _key(key: Any, path: Path) -> str | int | float | list[Any] | None:
    """A key as JSON: that of a tuple is a list. Raises TypeError."""
    if key is None or isinstance(key, str | int | float):
        return key
    if isinstance(key, tuple):
        return [_key(part, path) for part in key]
    raise TypeError(
        f"{shown(path)} has the key {key!r:.100} of type {type(key).__name__}, and cannot be saved: keys must be "
        "strings, numbers, or tuples of them. Have state_dict() use names as keys"
    )


def _copied(value: Any, name: str) -> Array:
    """A copy of an array, or a number, of NumPy."""
    array = np.array(value, order="C")
    if not numeric(array.dtype):
        raise TypeError(f"{name} is an array of {array.dtype}, and only numbers can be saved: convert it to a list")
    return array


def _unpacked_key(key: Any) -> Any:
    return tuple(map(_unpacked_key, key)) if isinstance(key, list) else key
