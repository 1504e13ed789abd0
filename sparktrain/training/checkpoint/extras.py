"""The values that a training function saves beside its model: numbers, strings and arrays, in lists and dicts."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.tensor_files import Array, numeric
from sparktrain.training.frameworks.imported import split_arrays

EXTRA = "extra/"
"""Starts the names of arrays among the tensors of a state."""
Path = list[str | int]
"""Keys and indices that lead to an array."""
_ROOT: Path = []


class FileContent(np.memmap[Any, Any]):
    """The content of a file that nothing changes, mapped for reading: it is saved without a copy in memory."""


def pack(values: Mapping[str, Any], *, splits: bool = False) -> tuple[dict[str, Any], list[tuple[Path, Array]]]:
    """`values` as JSON values, with null in place of each array, and copies of the arrays with their paths.

    An array is anything that numpy can read as one: numpy's arrays and scalars, tensors, variables. An array that owns
    its memory and is read-only is not copied, nor a `FileContent`. Arrays that members hold in parts raise TypeError,
    or with `splits` are left out: see `split_arrays_in`. Raises TypeError for anything else than these and JSON values,
    and for keys that are not strings.
    """
    arrays: list[tuple[Path, Array]] = []
    packed = {name: _packed(value, [name], arrays, splits) for name, value in values.items()}
    return packed, arrays


def split_arrays_in(value: Any, path: Path = _ROOT) -> Iterator[tuple[Path, Any]]:
    """The arrays in `value`, a dict or list, that members hold in parts, with their paths."""
    if isinstance(value, dict | list | tuple):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from split_arrays_in(child, [*path, key])
    elif split_arrays(value) is not None:
        yield path, value


def split_name(path: Sequence[str | int]) -> str:
    """The name, among the tensors of a state, of an array that members hold in parts: equal on all of them."""
    return f"{EXTRA}{json.dumps(path)}"


def unpack(packed: dict[str, Any], arrays: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """Restore the values in place; tuples have become lists, and numpy's scalars arrays without dimensions."""
    for path, array in arrays:
        place: Any = packed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = array
    return packed


def _packed(value: Any, path: Path, arrays: list[tuple[Path, Array]], splits: bool) -> Any:
    if split_arrays(value) is not None:
        if splits:
            return None
        raise TypeError(
            f"{_named(path)} is a {type(value).__name__}, and other members hold parts of it: save the model that "
            "has it, or gather it first, on every member, by full_tensor() of PyTorch, or by "
            "jax.experimental.multihost_utils.process_allgather"
        )
    if hasattr(value, "__array__"):
        array = value if _constant(value) else np.array(value.__array__(), order="C")
        if not numeric(array.dtype):
            raise TypeError(f"{_named(path)} is an array of {array.dtype}, and only numbers can be saved")
        arrays.append((path, array))
        return None
    if isinstance(value, dict):
        return {_key(key, path): _packed(child, [*path, key], arrays, splits) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(child, [*path, index], arrays, splits) for index, child in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{_named(path)} is of type {type(value).__name__}, and cannot be saved: numbers, strings, arrays, and lists "
        "and dicts of them can"
    )


def _constant(value: Any) -> bool:
    flags = value.flags if isinstance(value, np.ndarray) else None
    return (
        flags is not None
        and (flags.owndata or isinstance(value, FileContent))
        and flags.c_contiguous
        and not flags.writeable
    )


def _key(key: Any, path: Path) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{_named(path)} has the key {key!r:.100} of type {type(key).__name__}: keys must be strings")
    return key


def _named(path: Path) -> str:
    return f"ctx.checkpoint.save({path[0]}=...): {path[0]}" + "".join(f"[{key!r}]" for key in path[1:])


def encoded(values: Mapping[str, Any]) -> bytes:
    """The values as JSON, with the bytes of arrays in Base64. Raises TypeError for what a checkpoint cannot have."""
    packed, arrays = pack(values)
    listed = [(path, leaf.dtype.str, leaf.shape, base64.b64encode(leaf.tobytes()).decode()) for path, leaf in arrays]
    return json.dumps({"values": packed, "arrays": listed}).encode()


def decoded(data: bytes) -> dict[str, Any]:
    """The values that `encoded` made `data` of."""
    document = json.loads(data)
    return unpack(
        document["values"],
        (
            (path, np.frombuffer(base64.b64decode(content), dtype).reshape(shape).copy())
            for path, dtype, shape, content in document["arrays"]
        ),
    )
