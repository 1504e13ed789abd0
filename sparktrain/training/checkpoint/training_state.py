"""The state of a training: captured in host memory, written to files, and restored from them.

The saver of checkpoints, memory checkpoints, and the state that a process gets from another one are all made of it.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sparktrain.base.model_kinds import named_kinds
from sparktrain.errors import CheckpointError
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.extras import EXTRA, pack, split_arrays_in, split_name
from sparktrain.training.checkpoint.member_slices import MemberSlices
from sparktrain.training.checkpoint.process_generators import OWN, assign_generators, assign_packed, generators
from sparktrain.training.checkpoint.restored import SPLIT, Restored, restored_of
from sparktrain.training.checkpoint.retention import Retention
from sparktrain.training.checkpoint.tensor_files import MEMBER, Array, TensorFiles
from sparktrain.training.checkpoint.tensor_slices import TensorSlice
from sparktrain.training.frameworks.imported import keeper, split_arrays

VERSION = 1
ALIKE = "alike"
"""The key, in the document of a state, of whether all members draw the same random numbers."""
SAVE_CALL = "ctx.checkpoint.save"
"""In messages."""
_RESTORE = "ctx.checkpoint.restore"
_DRAWING = "drawing_members"
"""The key, in the document of a state, of the number of members that have generators of their own in it."""


@dataclass(frozen=True)
class StatePart:
    """What one member has of a state that is split over the members."""

    rank: int
    slices: tuple[TensorSlice, ...]
    """Which pieces of split tensors are among its tensors."""


@dataclass(frozen=True)
class State:
    """All that a restart needs: continued training changes nothing in it."""

    step: int
    tensors: dict[str, Array]
    document: dict[str, Any]
    """Everything that is not a tensor, as JSON values; empty in the part of another member than the chief."""
    part: StatePart | None = None
    """None for a state that one member has whole."""
    retention: Retention = field(default_factory=Retention)


def capture(
    model: Any,
    step: int,
    *,
    epoch: int | None = None,
    batch: int | None = None,
    extra: Mapping[str, Any] | None = None,
    spare: Mapping[str, Array] | None = None,
    parts: Sequence[Any] = (),
    members: Sequence[Mapping[str, Array]] = (),
    rank: int | None = None,
    retained: bool = False,
) -> State:
    """Copy the state of `model`, which may be None, of `parts`, and of the process, to host memory.

    The state has all that its framework saves of them (see `Framework.state`), the states of Python's and NumPy's
    global generators, the position in the data, and `extra`. `spare` are tensors of a state that is no longer needed:
    the copy reuses their memory where it fits. `members` are the arrays that each member has of its own, by rank.
    With a `rank`, of a model or arrays that members hold in parts, the state has the slices that this member alone
    writes; those of rank 0 come with everything that is not split. With `retained` the arrays may be memory of the
    training, which continued training leaves as it is until the state's `retention` ends. Blocks for the copy. Raises
    UserError for a model that is not built, TypeError for what cannot be saved.
    """
    tensors: dict[str, Array] = {}
    entries: dict[str, Any] = {}
    part: StatePart | None = None
    retention = Retention()
    saved_parts = parts_of(model, parts)
    own_states = framework_states(members)
    if rank is not None:
        slices: Sequence[TensorSlice] = ()
        if saved_parts:
            entries, tensors, slices = state_module(saved_parts, SAVE_CALL).captured_part(
                saved_parts, spare or {}, rank
            )
        member_slices = MemberSlices(rank, spare or {})
        split_paths = _add_split(extra or {}, member_slices)
        entries = {**entries, SPLIT: split_paths}
        tensors |= member_slices.arrays
        part = StatePart(rank, (*slices, *member_slices.slices))
        if rank:
            return State(step, tensors, {}, part)
    elif saved_parts:
        module = state_module(saved_parts, SAVE_CALL)
        if retained:
            entries, tensors, retention = module.retained(saved_parts, spare or {})
        else:
            entries, tensors = module.captured(saved_parts, spare or {})
        tensors = module.with_members(tensors, own_states)
    packed, arrays = pack(extra or {}, splits=rank is not None)
    tensors |= {f"{EXTRA}{number}": array for number, (_, array) in enumerate(arrays)}
    drawn = {f"{MEMBER}{rank}/{OWN}": member[OWN] for rank, member in enumerate(members) if OWN in member}
    document = {
        "version": VERSION,
        "step": step,
        "epoch": epoch,
        "batch": batch,
        **entries,
        "generators": generators(),
        "extra": packed,
        "arrays": [path for path, _ in arrays],
        "members": len(own_states),
        _DRAWING: len(drawn),
    }
    return State(step, tensors | drawn, document, part, retention)


def framework_states(members: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """What the framework has for each of the `members`, by rank; empty where it has nothing for any."""
    states = [{name: array for name, array in member.items() if name != OWN} for member in members]
    return states if any(states) else []


def _add_split(extra: Mapping[str, Any], member_slices: MemberSlices) -> list[list[str | int]]:
    """Add the slices of arrays in `extra` that members hold in parts; returns the paths of these arrays."""
    paths = []
    for path, array in split_arrays_in(extra):
        arrays = split_arrays(array)
        member_slices.add(split_name(path), array.shape, arrays.dtype_name(array), arrays.own_slices(array))
        paths.append(path)
    return paths


def peek(folder: Path) -> Restored:
    """As `CheckpointSaver.peek`, for the checkpoint in `folder`."""
    with TensorFiles(folder) as files:
        return restored_of(files, _document(files))


def restore(
    model: Any, folder: Path, rank: int, *, size: int = 1, alike: bool = False, parts: Sequence[Any] = ()
) -> Restored:
    """Give `model` (None: only `extra` is wanted) and the process the state in `folder`, in place.

    The chief continues exactly as it would have. Every other rank gets the same state, with two exceptions: of Keras's
    generators it keeps its own seeds and takes only the chief's counters; Python's and NumPy's generators stay as they
    are, unless they were `alike`, equal to the chief's. So ranks that drew different numbers still do. In a gang of the
    same `size` each rank gets its own statistics, metrics and generators, where the state has them. Blocks on the local
    disk. Raises UserError, with nothing changed, when the checkpoint is of another model, and CheckpointError when the
    files cannot be read.
    """
    saved_parts = parts_of(model, parts)
    with TensorFiles(folder) as files:
        document = _document(files)
        alike = alike or bool(document.get(ALIKE))
        if saved_parts:
            state_module(saved_parts, _RESTORE).assign(saved_parts, files, document, (rank, size), alike=alike)
        # Last, because building an optimizer or a generator draws from them.
        if size > 1 and document.get(_DRAWING) == size:
            assign_packed(files.read(f"{MEMBER}{rank}/{OWN}"))
        elif alike or rank == tensor_files.source_rank(document):
            assign_generators(document["generators"])
        return restored_of(files, document)


def parts_of(model: Any, others: Sequence[Any]) -> tuple[Any, ...]:
    """The objects with a state among the arguments of a call: None stands for no model."""
    return tuple(others) if model is None else (model, *others)


def state_module(parts: Sequence[Any], call: str) -> Any:
    """The module of their framework with the state of `parts`: see `Framework.state`. Raises TypeError."""
    framework = keeper(parts)
    if framework is None or framework.state is None:
        raise TypeError(
            f"{call} got {named_kinds(parts)}: pass one Keras model, which holds its optimizer, or objects that all "
            "have state_dict() and load_state_dict(), as those of PyTorch, and other values by name: params=params"
        )
    return importlib.import_module(framework.state)


def is_split(parts: Sequence[Any]) -> bool:
    """Whether members of the gang hold parts of the arrays of `parts`, so that each of them saves its own.

    Raises TypeError for parts without a state.
    """
    return bool(parts) and bool(state_module(parts, SAVE_CALL).is_split(parts))


def _document(files: TensorFiles) -> dict[str, Any]:
    document: Any = files.document
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        raise CheckpointError(f"state in {files.folder} has version {version}, and this sparktrain reads {VERSION}")
    return cast(dict[str, Any], document)


def write_state(folder: Path, state: State) -> None:
    if state.part is None:
        tensor_files.save(folder, state.tensors, state.document)
    else:
        tensor_files.save_part(folder, state.part.rank, state.tensors, state.part.slices, state.document or None)
