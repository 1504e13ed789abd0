"""State dicts of PyTorch as arrays and JSON, for checkpoints, and back: see `Framework.state`. No pickle.

Where members hold parts of the tensors (`split_tensors`), each saves its own pieces, and reads what it holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from sparktrain.base.formatting import size as shown_size
from sparktrain.base.model_kinds import named_kinds
from sparktrain.errors import OutOfStepError, UserError
from sparktrain.training.checkpoint.retention import Retention
from sparktrain.training.checkpoint.tensor_files import MEMBER, MEMBER_BYTES, Array, TensorFiles
from sparktrain.training.checkpoint.tensor_slices import TensorSlice
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.weight_digests import difference
from sparktrain.training.frameworks.torch.resumable_loader import ResumableLoader
from sparktrain.training.frameworks.torch.split_tensors import (
    as_numpy,
    from_numpy,
    has_distributed,
    is_distributed,
    layout_digest,
    named_parameters,
    sharded_module,
    split_parts,
)
from sparktrain.training.frameworks.torch.state_packing import (
    GENERATOR,
    Packing,
    PartName,
    PartPacking,
    copied_array,
    unpacked,
)
from sparktrain.training.frameworks.torch.step_gate import StepGate, updated_tensors
from sparktrain.training.frameworks.torch.torch_distribution import distributed_models
from sparktrain.training.notices import notice

_STATES = "states"
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
    return [unpacked(state, files) for _, state in files.document[_STATES]]


def captured(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON value for each part's `state_dict()`, and copies of its tensors on the host, with that of the generator.

    Raises TypeError for what is no plain data.
    """
    packing = Packing(spare, {})
    return {_STATES: _packed(packing, parts)}, packing.arrays


def retained(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array], Retention]:
    """As `captured`, but with the memory of the CPU that an optimizer among the parts updates: its step waits."""
    updated = updated_tensors(parts)
    packing = Packing(spare, {tensor.data_ptr(): tensor.nbytes for tensor in updated})
    retention = StepGate(updated)
    try:
        states = _packed(packing, parts)
    except BaseException:
        retention.end()
        raise
    return {_STATES: states}, packing.arrays, retention


def captured_part(
    parts: Sequence[Any], spare: Mapping[str, Array], rank: int
) -> tuple[dict[str, Any], dict[str, Array], list[TensorSlice]]:
    """As `captured`, of the pieces that the member `rank` writes; rank 0 also writes what is not split.

    The tensors have the names that torch's own distributed checkpoints give them, as in `model.0.weight` and
    `optimizer.state.0.weight.exp_avg`.
    """
    packing = PartPacking(spare, rank)
    return {_STATES: _packed(packing, parts)}, packing.arrays, packing.slices


def captured_held(
    parts: Sequence[Any], spare: Mapping[str, Array], part: int
) -> tuple[dict[str, Any], dict[str, Array], list[TensorSlice]]:
    """As `captured_part`, of all that a member holds of part number `part`, and of what is not split."""
    packing = PartPacking(spare, part, held=True)
    return {_STATES: _packed(packing, parts)}, packing.arrays, packing.slices


def held_digest(parts: Sequence[Any]) -> int:
    """A number for which parts of the tensors this member holds: equal on members that hold equal ones."""
    return layout_digest([_plain(part) for part in parts])


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
    _notice_whole(parts, files, size=place[1])
    likes = map(_like, parts) if has_distributed(list(map(_plain, parts))) else [None] * len(parts)
    states = [unpacked(state, files, like) for like, (_, state) in zip(likes, document[_STATES], strict=True)]
    for part, state in zip(parts, states, strict=True):
        if problem := "; ".join([*_differences(_plain(part), state)][:_SHOWN]):
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
    states = {name: copied_array(buffer, None, name) for name, buffer in _buffers(parts).items()}
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
    arrays = [(name, as_numpy(tensor)) for name, tensor in sorted(tensors.items())]
    if unequal := difference(ring, arrays):
        raise OutOfStepError(
            f"{unequal}: the members do not train one model. Change weights, and what the optimizer has, on all ranks "
            "alike, and train what ctx.distribute() has returned"
        )


def is_split(parts: Sequence[Any]) -> bool:
    """Whether members hold parts of a model, as with `fully_shard`, or of tensors that an optimizer has."""
    return split_parts([_plain(part) for part in parts])


def _plain(part: Any) -> Any:
    """The model itself, so that any number of members reads what a gang has saved."""
    return part.module if isinstance(part, DistributedDataParallel) else part


def _state_of(part: Any) -> Any:
    # Between the last batch of a pass and its end, what the loop does after the pass is still to come.
    return part.open_state_dict() if isinstance(part, ResumableLoader) else _plain(part).state_dict()


def _kind(part: Any) -> str:
    if isinstance(part, NotedState):
        return str(part.kind)
    sharded = sharded_module()
    # `fully_shard` gives a module another class: without it the parts of a model could not be read into the model.
    return next(kind.__name__ for kind in type(_plain(part)).__mro__ if not issubclass(kind, sharded))


def _packed(packing: Packing, parts: Sequence[Any]) -> list[Any]:
    """The kind and the state of each part, as JSON values."""
    return [
        [_kind(part), packing.packed(_state_of(part), (name,))] for part, name in zip(parts, _names(parts), strict=True)
    ]


def _names(parts: Sequence[Any]) -> list[PartName]:
    """What each part is called in messages, and in the names of tensors that members hold in parts."""
    modules = [_plain(part) for part in parts if isinstance(part, torch.nn.Module)]
    parameters = {id(tensor): name for module in modules for name, tensor in named_parameters(module)}
    names: list[PartName] = []
    for part in parts:
        label = _label(part)
        count = 1 + sum(name.label.rstrip("0123456789") == label for name in names)
        by_index: dict[Any, str] = {}
        if isinstance(part, torch.optim.Optimizer):
            trained = [id(tensor) for group in part.param_groups for tensor in group["params"]]
            by_index = {index: parameters[tensor] for index, tensor in enumerate(trained) if tensor in parameters}
        names.append(PartName(f"state_dict() of {_kind(part)}", f"{label}{count if count > 1 else ''}", by_index))
    return names


def _label(part: Any) -> str:
    if isinstance(part, torch.nn.Module):
        return "model"
    return "optimizer" if isinstance(part, torch.optim.Optimizer) else _kind(part).lower()


def _like(part: Any) -> Any:
    """What the tensors of a part's state are laid out like, in dicts and lists as those of the state."""
    if isinstance(part, torch.optim.Optimizer):  # it has no tensors before its first step
        trained = [tensor for group in part.param_groups for tensor in group["params"]]
        return {"state": dict(enumerate(trained))}
    return _state_of(part)


def _notice_whole(parts: Sequence[Any], files: TensorFiles, *, size: int) -> None:
    """Print where each member gets all of a model that members held in parts."""
    models = [part for part in parts if isinstance(part, torch.nn.Module)]
    if size > 1 and models and files.is_split and not is_split(parts):
        notice(
            f"the checkpoint of step {files.document['step']} has a {_kind(models[0])} that members held in parts, and "
            f"each member now gets all of it ({shown_size(files.split_bytes)}): call fully_shard(model) before "
            "ctx.checkpoint.restore(model, ...) to have parts again"
        )


def _differences(part: Any, state: Mapping[str, Any]) -> Iterator[str]:
    """How the weights of a model, or the parameters of an optimizer, differ from a state."""
    if isinstance(part, torch.optim.Optimizer):
        counts = [len(group["params"]) for group in part.param_groups]
        saved_counts = [len(group["params"]) for group in state.get("param_groups", part.param_groups)]
        if counts != saved_counts:
            yield f"it has groups of {saved_counts} parameters, and this one has {counts}"
    elif isinstance(part, torch.nn.Module):
        yield from _weight_differences(part, state)


def _weight_differences(model: torch.nn.Module, state: Mapping[str, Any]) -> Iterator[str]:
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
        if name in saved_names and not is_distributed(buffer)
    }
    return buffers if sum(buffer.nbytes for buffer in buffers.values()) <= MEMBER_BYTES else {}


def _assign_buffer(buffer: torch.Tensor, content: Array) -> None:
    """Set a buffer to what `copied_array` has made of it."""
    with torch.no_grad():
        buffer.copy_(from_numpy(content, buffer.dtype))
