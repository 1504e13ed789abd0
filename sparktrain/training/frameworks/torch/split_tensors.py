"""Tensors of PyTorch with parts on other members, `DTensor`s: see `Framework.arrays`."""

import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from sparktrain.training.checkpoint.tensor_slices import Array, Bounds, Index

_INTEGERS = {1: torch.uint8, 2: torch.int16}
"""By size, what travels in place of floating-point types that NumPy lacks, such as bfloat16."""
_NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)


def is_split(value: Any) -> bool:
    """Whether `value` is on several members. Each may have a part of it, or a copy."""
    return is_distributed(value) and value.device_mesh.size() > 1


def is_distributed(value: Any) -> bool:
    """Whether `value` is a `DTensor`, on any number of members. Imports nothing: that takes long."""
    # A program without such tensors does not wait for the import of their module.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def dtype_name(value: Any) -> str:
    """The name of the dtype of `value`."""
    return str(value.dtype).removeprefix("torch.")


def joined(value: Any) -> Array:
    """`value` as an array of the host. All members call it in the same order; blocks until they do."""
    return as_numpy(value.full_tensor())


def own_slices(value: Any, *, shared: bool = True) -> list[tuple[Bounds, Array]]:
    """The part of this member, in the memory of the training on a CPU; of replicas each has an equal share of rows,
    where it is `shared`.

    Raises TypeError for a tensor that is a sum over members, or has a part of another shape than its layout.
    """
    start, stop = _bounds(value)
    local = value.to_local().detach()
    if (extents := tuple(last - first for first, last in zip(start, stop, strict=True))) != tuple(local.shape):
        raise TypeError(
            f"a DTensor of shape {list(value.shape)} has a part of shape {list(local.shape)} on this member, and by "
            f"its placements {value.placements} it has {list(extents)}: pass shape= and stride= to DTensor.from_local()"
        )
    # Equal shares of equal parts: the first replica alone would write all bytes of hybrid sharding.
    number, count = _replica(value) if shared else (0, 1)
    if count > 1:
        rows = local.shape[0] if local.dim() else int(number == 0)
        first, last = rows * number // count, rows * (number + 1) // count
        if local.dim():
            local = local[first:last]
            start, stop = (start[0] + first, *start[1:]), (start[0] + last, *stop[1:])
        elif not rows:
            return []
    return [((start, stop), as_numpy(local))] if local.numel() else []


def from_slices(value: Any, read: Callable[[Index], Array], dtype: torch.dtype | None = None) -> Any:
    """A `DTensor` of the shape and layout of `value`, with this member's part from what `read` returns.

    `dtype`: of what `read` returns; None: that of `value`. The slot of an optimizer may have another than its weight.
    """
    from torch.distributed.tensor import DTensor

    dtype = dtype or value.dtype
    start, stop = _bounds(value)
    extents = [last - first for first, last in zip(start, stop, strict=True)]
    if math.prod(extents):
        local = from_numpy(read(tuple(map(slice, start, stop))), dtype).to(value.device)
    else:
        local = torch.empty(extents, dtype=dtype, device=value.device)
    return DTensor.from_local(
        local, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
    )


def sharded_module() -> Any:
    """The class that `fully_shard` adds to those of a module; an empty tuple in a program without it."""
    return getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())


def named_parameters(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of `module` by name, which are the parts that an optimizer changes.

    After an evaluation without gradients they would be whole tensors, of the layers that `fully_shard` got last.
    """
    kind = sharded_module()
    for layer in module.modules():
        if isinstance(layer, kind):
            layer.reshard()
    yield from module.named_parameters()


def split_parts(parts: Sequence[Any]) -> bool:
    """Whether members hold parts of tensors of the modules and optimizers in `parts`."""
    return any(map(is_split, _tensors(parts)))


def has_distributed(parts: Sequence[Any]) -> bool:
    """As `split_parts`, also for a group of one member."""
    return any(map(is_distributed, _tensors(parts)))


def layout_digest(parts: Sequence[Any]) -> int:
    """A number for which part of each tensor of the modules and optimizers in `parts` this member holds."""
    return zlib.crc32(repr([_bounds(tensor) for tensor in _tensors(parts) if is_split(tensor)]).encode())


def as_numpy(tensor: torch.Tensor) -> Array:
    """The tensor in host memory; integers stand for types that NumPy lacks."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    array: Array = with_numpy_type(plain).cpu().contiguous().numpy()
    return array


def with_numpy_type(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a type of NumPy."""
    plain = tensor.detach()
    if plain.is_floating_point() and plain.dtype not in _NUMPY_FLOATS:
        return plain.view(_INTEGERS[plain.element_size()])
    return plain


def from_numpy(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """The tensor of the type `dtype` that `as_numpy` has turned into an array, perhaps with a type of `ml_dtypes`."""
    plain = array if array.dtype.isbuiltin == 1 else array.view(f"i{array.dtype.itemsize}")
    tensor = torch.from_numpy(np.array(plain))
    return tensor if tensor.dtype is dtype else tensor.view(dtype)


def _tensors(parts: Sequence[Any]) -> Iterator[torch.Tensor]:
    for part in parts:
        if isinstance(part, torch.nn.Module):
            yield from (parameter for _, parameter in named_parameters(part))
            yield from part.buffers()
        elif isinstance(part, torch.optim.Optimizer):
            for group in part.param_groups:
                yield from group["params"]


def _bounds(value: Any) -> Bounds:
    """Which part of `value` this member has."""
    if any(placement.is_partial() for placement in value.placements):
        raise TypeError(
            f"a DTensor of shape {list(value.shape)} has the placements {value.placements}, which are terms of a sum "
            "over members: redistribute() it to Shard or Replicate before it is saved"
        )
    [chunk] = value.__create_chunk_list__()  # of the protocol by which torch.distributed.checkpoint saves any tensor
    start = tuple(chunk.offsets)
    return start, tuple(first + extent for first, extent in zip(start, chunk.sizes, strict=True))


def _replica(value: Any) -> tuple[int, int]:
    """The number of this member among those with an equal part of `value`, and how many these are."""
    number, count = 0, 1
    mesh = value.device_mesh
    for axis, (placement, place) in enumerate(zip(value.placements, mesh.get_coordinate(), strict=True)):
        if placement.is_replicate():
            number, count = number * mesh.size(axis) + place, count * mesh.size(axis)
    return number, count
