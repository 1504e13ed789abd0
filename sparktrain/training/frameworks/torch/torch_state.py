"""State dicts of PyTorch as arrays and JSON, for checkpoints, and back: see `Framework.state`. No pickle.

A state dict is plain data: tensors, arrays and numbers of NumPy, Python's numbers, strings and None, in dicts, lists
and tuples. Whatever else is in one would need a pickle, and is refused by the path to it.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from sparktrain.base.model_kinds import named_kinds
from sparktrain.config.param_values import described
from sparktrain.errors import OutOfStepError, UserError
from sparktrain.training.checkpoint.retention import Retention
from sparktrain.training.checkpoint.tensor_files import MEMBER, MEMBER_BYTES, Array, TensorFiles, numeric
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.weight_digests import difference
from sparktrain.training.frameworks.torch.resumable_loader import ResumableLoader
from sparktrain.training.frameworks.torch.step_gate import StepGate, updated_tensors
from sparktrain.training.frameworks.torch.torch_distribution import distributed_models

_PREFIX = "state/"
GENERATOR = f"{_PREFIX}generator"
_STATES = "states"
_INTEGERS = {1: torch.uint8, 2: torch.int16}
"""By size, what travels in place of floating-point types that NumPy lacks, such as bfloat16."""
_DICTS: dict[str, Any] = {"dict": dict, "counter": Counter, "ordered": OrderedDict}
_LISTS: dict[str, Any] = {"list": list, "tuple": tuple}
_NESTED = 100
"""How deep a state dict may be nested: one that contains itself has no end."""
_SHOWN = 3


class NotedState:
    """Stands for an object of the user, with a state that it had before."""

    def __init__(self, part: Any, state: Any) -> None:
        self.kind = _kind(part)
        self._state = state

    def state_dict(self) -> Any:
        """That state."""
        return self._state

    def load_state_dict(self, state: Any) -> None:
        """Nothing loads a state into it."""
        raise TypeError("a state that was noted cannot change")


def states_in(files: TensorFiles) -> list[Any]:
    """The states of all parts in `files`."""
    return [_unpacked(state, files.read) for _, state in files.document[_STATES]]


def captured(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON value for each part's `state_dict()`, and copies of its tensors on the host, with that of the generator.

    Raises TypeError for what is no plain data.
    """
    packing = _Packing(spare, {})
    states = [[_kind(part), packing.packed(_state_of(part), _name(part))] for part in parts]
    return {_STATES: states}, packing.arrays


def retained(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array], Retention]:
    """As `captured`, but with the memory of the CPU that an optimizer among the parts updates: its step waits."""
    updated = updated_tensors(parts)
    packing = _Packing(spare, {tensor.data_ptr(): tensor.nbytes for tensor in updated})
    retention = StepGate(updated)
    try:
        states = [[_kind(part), packing.packed(_state_of(part), _name(part))] for part in parts]
    except BaseException:
        retention.end()
        raise
    return {_STATES: states}, packing.arrays, retention


def assign(
    parts: Sequence[Any],
    files: TensorFiles,
    document: Mapping[str, Any],
    place: tuple[int, int],
    *,
    alike: bool = False,
) -> None:
    """Load the states in `files` into `parts`; on rank 0, and where members are `alike`, the CPU's generator too.

    In a gang of the size of the one that has saved them, each member gets its own buffers and generator; in one of
    another size, all get the buffers of rank 0. Raises UserError, with nothing changed, where the parts are others than
    those that were saved.
    """
    step = document["step"]
    if document.get(_STATES) is None:
        raise UserError(
            f"the checkpoint of step {step} was saved without objects that have state_dict(), and restore() got "
            f"{named_kinds(parts)}: pass what save() got"
        )
    saved_kinds = [kind for kind, _ in document[_STATES]]
    if saved_kinds != [_kind(part) for part in parts]:
        raise UserError(
            f"the checkpoint of step {step} has states of {', '.join(saved_kinds)}, and restore() got "
            f"{', '.join(map(_kind, parts)) or 'none'}: pass what save() got, in the same order"
        )
    states = [_unpacked(state, files.read) for _, state in document[_STATES]]
    for part, state in zip(parts, states, strict=True):
        if isinstance(part, torch.nn.Module) and (problem := "; ".join([*_differences(_plain(part), state)][:_SHOWN])):
            raise UserError(f"the checkpoint of step {step} is of another {_kind(part)}: {problem}")
    for part, state in zip(parts, states, strict=True):
        _plain(part).load_state_dict(state)
    rank, size = place
    has_own = document.get("members") == size
    prefix = f"{MEMBER}{rank if has_own else 0}/"
    for name, buffer in _buffers(parts).items():
        if f"{prefix}{name}" in files:
            _assign_buffer(buffer, files.read(f"{prefix}{name}"))
    own_generator = f"{prefix}{GENERATOR}"
    if has_own and own_generator in files:
        torch.set_rng_state(torch.from_numpy(np.array(files.read(own_generator))))
    elif alike or not rank:
        torch.set_rng_state(torch.from_numpy(np.array(files.read(GENERATOR))))


def assign_metrics(parts: Sequence[Any], files: TensorFiles, place: tuple[int, int]) -> bool:
    """False: modules have no metrics."""
    return False


def own(parts: Sequence[Any]) -> dict[str, Array]:
    """Copies of the buffers, which differ between steps of `DistributedDataParallel`, and of the CPU's generator."""
    states = {name: _array(buffer, None, name) for name, buffer in _buffers(parts).items()}
    return {**states, GENERATOR: torch.get_rng_state().numpy().copy()}


def with_members(arrays: dict[str, Array], members: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The arrays, and those of the members by rank."""
    own_arrays = {
        f"{MEMBER}{rank}/{name}": array for rank, member in enumerate(members) for name, array in member.items()
    }
    return {**arrays, **own_arrays}


def of_chief(parts: Sequence[Any]) -> dict[str, Array]:
    """The state of the CPU's generator."""
    return {GENERATOR: torch.get_rng_state().numpy().copy()}


def are_equal(parts: Sequence[Any]) -> bool:
    """True: members average the gradients of each step."""
    return True


def check_equal(ring: Ring, parts: Sequence[Any]) -> None:
    """Raise OutOfStepError, on all members, where parameters of a model that `ctx.distribute` has returned differ, or
    tensors that an optimizer among `parts` has for them. Buffers and other modules may be a member's own."""
    trained = {
        parameter: name
        for distributed in distributed_models(parts)
        for name, parameter in distributed.module.named_parameters()
        if parameter.requires_grad
    }
    tensors = {name: parameter for parameter, name in trained.items()}
    for optimizer in parts:
        # Of others, such as ZeroRedundancyOptimizer, each member may have a part.
        if isinstance(optimizer, torch.optim.Optimizer) and type(optimizer).__module__.startswith("torch.optim."):
            for parameter, state in optimizer.state.items():
                slots = {key: slot for key, slot in state.items() if isinstance(slot, torch.Tensor)}
                if parameter in trained:
                    tensors |= {f"{trained[parameter]} ({key})": slot for key, slot in slots.items()}
    arrays = [(name, _with_numpy_type(tensor).cpu().numpy()) for name, tensor in sorted(tensors.items())]
    if unequal := difference(ring, arrays):
        raise OutOfStepError(
            f"{unequal}: the members do not train one model. Change weights, and what the optimizer has, on all ranks "
            "alike, and train what ctx.distribute() has returned"
        )


def is_split(parts: Sequence[Any]) -> bool:
    """False: each member has the model whole."""
    return False


def _plain(part: Any) -> Any:
    """The model itself, so that any number of members reads what a gang has saved."""
    return part.module if isinstance(part, DistributedDataParallel) else part


def _state_of(part: Any) -> Any:
    # Between the last batch of a pass and its end, what the loop does after the pass is still to come.
    return part.open_state_dict() if isinstance(part, ResumableLoader) else _plain(part).state_dict()


def _kind(part: Any) -> str:
    return part.kind if isinstance(part, NotedState) else type(_plain(part)).__name__


def _name(part: Any) -> str:
    return f"state_dict() of {_kind(part)}"


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


def _buffers(parts: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The buffers in the states of modules, by the place of the module and their names; none beyond `MEMBER_BYTES`."""
    buffers = {
        f"{index}/{name}": buffer
        for index, part in enumerate(parts)
        if isinstance(part, torch.nn.Module)
        for saved_names in [_plain(part).state_dict().keys()]
        for name, buffer in _plain(part).named_buffers()
        if name in saved_names
    }
    return buffers if sum(buffer.nbytes for buffer in buffers.values()) <= MEMBER_BYTES else {}


def _assign_buffer(buffer: torch.Tensor, content: Array) -> None:
    """Set a buffer to what `_array` has made of it."""
    tensor = torch.from_numpy(np.array(content))
    with torch.no_grad():
        buffer.copy_(tensor if tensor.dtype is buffer.dtype else tensor.view(buffer.dtype))


class _Packing:
    """Turns state dicts into JSON, and collects copies of their arrays."""

    def __init__(self, spare: Mapping[str, Array], retained: Mapping[int, int]) -> None:
        """`retained`: the address and the bytes of tensors that need no copy."""
        self._retained = retained
        self.arrays: dict[str, Array] = {GENERATOR: torch.get_rng_state().numpy().copy()}
        self._spare = spare

    def packed(self, value: Any, name: str, depth: int = 0) -> Any:
        """`value` as JSON: a list with a word for its kind, unless it is a scalar. Raises TypeError with its path."""
        if depth > _NESTED:
            raise TypeError(
                f"{name} is nested more than {_NESTED} deep, and cannot be saved: a value may contain itself"
            )
        if isinstance(value, torch.Tensor):
            return ["tensor", _dtype_name(value), self._add(self._copied(value), value, name)]
        if isinstance(value, np.ndarray | np.generic):
            return ["array" if isinstance(value, np.ndarray) else "scalar", self._add(_copied, value, name)]
        if isinstance(value, Mapping):
            kind = next((word for word in ("counter", "ordered") if isinstance(value, _DICTS[word])), "dict")
            pairs = ((key, item, f"{name}[{key!r:.100}]") for key, item in value.items())
            return [kind, [[_key(key, name), self.packed(item, path, depth + 1)] for key, item, path in pairs]]
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [self.packed(item, f"{name}[{index}]", depth + 1) for index, item in enumerate(value)]]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(
            f"{name} is {described(value)}, and cannot be saved: state dicts are saved "
            "without pickle, as tensors, arrays, numbers, strings, and lists and dicts of them. Have its state_dict() "
            "leave it out, or return its own state_dict() or its name"
        )

    def _copied(self, value: torch.Tensor) -> Callable[[torch.Tensor, Array | None, str], Array]:
        """What makes an array of a tensor."""
        if not self._retained or value.layout is not torch.strided or not value.is_contiguous():
            return _array
        return _memory if self._retained.get(value.data_ptr()) == value.nbytes else _array

    def _add(self, copied: Callable[[Any, Array | None, str], Array], value: Any, name: str) -> str:
        key = f"{_PREFIX}{len(self.arrays)}"
        self.arrays[key] = copied(value, self._spare.get(key), name)
        return key


def _key(key: Any, name: str) -> str | int | float | list[Any] | None:
    """A key as JSON: that of a tuple is a list. Raises TypeError."""
    if key is None or isinstance(key, str | int | float):
        return key
    if isinstance(key, tuple):
        return [_key(part, name) for part in key]
    raise TypeError(
        f"{name} has the key {key!r:.100} of type {type(key).__name__}, and cannot be saved: keys must be strings, "
        "numbers, or tuples of them. Have state_dict() use names as keys"
    )


def _array(tensor: torch.Tensor, spare: Array | None, name: str) -> Array:
    """A copy of a tensor on the host: in `spare`, if that fits."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(
            f"{name} is a sparse or quantized tensor, and only dense ones can be saved: have state_dict() return "
            "to_dense(), or dequantize()"
        )
    if tensor.device.type == "meta":
        raise TypeError(f"{name} is a tensor on the device meta, which has no values to save: materialize it first")
    plain = _with_numpy_type(tensor)
    if spare is not None and plain.dim() == spare.ndim and tuple(plain.shape) == spare.shape:
        target = torch.from_numpy(spare)
        if target.dtype is plain.dtype:
            target.copy_(plain)
            return spare
    copied: Array = plain.resolve_conj().resolve_neg().to("cpu", copy=True).contiguous().numpy()
    return copied


def _memory(tensor: torch.Tensor, spare: Array | None, name: str) -> Array:
    """The memory of a tensor that `updated_tensors` has returned."""
    array: Array = _with_numpy_type(tensor).numpy()
    return array


def _with_numpy_type(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if plain.is_floating_point() and plain.dtype not in _NUMPY_FLOATS:
        return plain.view(_INTEGERS[plain.element_size()])
    return plain


_NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)


def _copied(value: Any, spare: Array | None, name: str) -> Array:
    """A copy of an array, or a number, of NumPy."""
    array = np.array(value, order="C")
    if not numeric(array.dtype):
        raise TypeError(f"{name} is an array of {array.dtype}, and only numbers can be saved: convert it to a list")
    return array


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _unpacked(value: Any, read: Callable[[str], Any]) -> Any:
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "tensor":
        tensor = torch.from_numpy(np.array(read(value[2])))
        dtype = getattr(torch, value[1])
        return tensor if tensor.dtype is dtype else tensor.view(dtype)
    if kind in ("array", "scalar"):
        array = np.array(read(value[1]))
        return array if kind == "array" else array[()]
    if kind in _DICTS:
        return _DICTS[kind]({_unpacked_key(key): _unpacked(item, read) for key, item in value[1]})
    return _LISTS[kind](_unpacked(item, read) for item in value[1])


def _unpacked_key(key: Any) -> Any:
    return tuple(map(_unpacked_key, key)) if isinstance(key, list) else key
