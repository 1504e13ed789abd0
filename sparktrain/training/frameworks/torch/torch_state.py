"""State dicts of PyTorch as arrays and JSON, for checkpoints, and back. No pickle."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from sparktrain.errors import UserError

_PREFIX = "state/"
_GENERATOR = f"{_PREFIX}generator"
_CALL = "ctx.checkpoint.save"
_INTEGERS = {1: torch.uint8, 2: torch.int16}
"""By size, what travels in place of floating-point types that NumPy lacks, such as bfloat16."""
_SHOWN = 3


def captured(parts: Sequence[Any]) -> tuple[list[Any], dict[str, np.ndarray[Any, Any]]]:
    """A JSON value for each part's `state_dict()`, and copies of its tensors on the host, with that of the generator.

    Raises TypeError for what is no tensor, number, string, list or dict.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {_GENERATOR: torch.get_rng_state().numpy().copy()}
    return [[_kind(part), _packed(_plain(part).state_dict(), _name(part), arrays)] for part in parts], arrays


def assign(
    parts: Sequence[Any], document: Sequence[Any], read: Callable[[str], Any], step: int, *, alike: bool
) -> None:
    """Load the states of `document` into `parts`, with tensors by `read`; `alike`: the CPU's generator too.

    Raises UserError, with nothing changed, where the parts are others than those that were saved.
    """
    saved = [kind for kind, _ in document]
    if saved != [_kind(part) for part in parts]:
        raise UserError(
            f"the checkpoint of step {step} has states of {', '.join(saved)}, and restore() got "
            f"{', '.join(map(_kind, parts)) or 'none'}: pass what save() got, in the same order"
        )
    states = [_unpacked(state, read) for _, state in document]
    for part, state in zip(parts, states, strict=True):
        if isinstance(part, torch.nn.Module) and (problem := "; ".join([*_differences(_plain(part), state)][:_SHOWN])):
            raise UserError(f"the checkpoint of step {step} is of another {_kind(part)}: {problem}")
    for part, state in zip(parts, states, strict=True):
        _plain(part).load_state_dict(state)
    if alike:
        torch.set_rng_state(torch.from_numpy(np.array(read(_GENERATOR))))


def _plain(part: Any) -> Any:
    """The model itself, so that any number of members reads what a gang has saved."""
    return part.module if isinstance(part, DistributedDataParallel) else part


def _kind(part: Any) -> str:
    return type(_plain(part)).__name__


def _name(part: Any) -> str:
    return f"{_CALL}(): state_dict() of {_kind(part)}"


def _differences(model: torch.nn.Module, state: Mapping[str, Any]) -> Iterator[str]:
    """How the weights of a model differ from a state."""
    weights = model.state_dict()
    for name in sorted({*weights, *state}):
        if name not in state:
            yield f"{name} is not in it"
        elif name not in weights:
            yield f"the model has no {name}"
        elif isinstance(weights[name], torch.Tensor) and weights[name].shape != state[name].shape:
            yield f"{name} has shape {list(state[name].shape)} in it, and {list(weights[name].shape)} in the model"


def _packed(value: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """`value` as JSON: a list with a word for its kind, unless it is a scalar."""
    if isinstance(value, torch.Tensor):
        key = f"{_PREFIX}{len(arrays)}"
        arrays[key] = _array(value, name)
        return ["tensor", str(value.dtype).removeprefix("torch."), key]
    if isinstance(value, Mapping):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return [kind, [[_key(key, name), _packed(item, f"{name}[{key!r}]", arrays)] for key, item in value.items()]]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_packed(item, f"{name}[{index}]", arrays) for index, item in enumerate(value)]]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{name} is of type {type(value).__name__}, and cannot be saved: tensors, numbers, strings, and lists and "
        "dicts of them can"
    )


def _key(key: Any, name: str) -> str | int:
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{name} has the key {key!r:.100} of type {type(key).__name__}: keys must be strings or integers")


def _array(tensor: torch.Tensor, name: str) -> np.ndarray[Any, Any]:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"{name} is a sparse or quantized tensor, and only dense ones can be saved: convert it")
    plain = tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
    try:
        return np.asarray(plain.numpy())
    except TypeError:
        return np.asarray(plain.view(_INTEGERS[plain.element_size()]).numpy())


def _unpacked(value: Any, read: Callable[[str], Any]) -> Any:
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "tensor":
        tensor = torch.from_numpy(np.array(read(value[2])))
        dtype = getattr(torch, value[1])
        return tensor if tensor.dtype is dtype else tensor.view(dtype)
    if kind in ("dict", "counter"):
        pairs = {key: _unpacked(item, read) for key, item in value[1]}
        return Counter(pairs) if kind == "counter" else pairs
    items = [_unpacked(item, read) for item in value[1]]
    return items if kind == "list" else tuple(items)
