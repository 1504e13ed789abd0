"""Reads folders that `torch.distributed.checkpoint` has written, and executes nothing that is in them.

Such a folder has its places of tensors in one pickle, `.metadata`. An unpickler that knows only torch's own classes for
them reads it; what is no tensor is read by `torch.load(weights_only=True)`.
"""

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as kinds
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from sparktrain.errors import CheckpointError, UserError

_METADATA = ".metadata"
_CLASSES = {
    *((kinds.__name__, name) for name in (*kinds.__all__, "_MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    *(("pathlib", name) for name in ("Path", "PosixPath", "PurePosixPath")),
}
"""The module and the name of all that may be in `.metadata`, beside types of tensors."""
_CALL = "sparktrain.torch.load_checkpoint()"
_SHOWN = 3


def load(folder: Path, parts: Mapping[str, Any]) -> None:
    """Give the parts the states that `folder` has by their names. See `sparktrain.torch.load_checkpoint`."""
    models = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    state = {name: _state_of(part, models) for name, part in parts.items()}
    planner = _Planner(folder)
    with warnings.catch_warnings():
        # Each member reads by itself: they would need a plan, and a group, for nothing.
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            dcp.load(state, storage_reader=_reader(folder), planner=planner, no_dist=True)
        except dcp.CheckpointException as error:
            raise _explained(folder, error) from error
    for name, part in parts.items():
        _assign(part, state[name], models)


def _reader(folder: Path) -> dcp.StorageReader:
    if (folder / _METADATA).is_file():
        # Read here: torch turns an error of its reader into one of another kind.
        return _Reader(folder, _metadata(folder / _METADATA))
    if any(folder.glob("*.safetensors")):
        return dcp.HuggingFaceStorageReader(str(folder))
    raise CheckpointError(
        f"{folder} has neither {_METADATA} nor files of safetensors: pass the folder that "
        "torch.distributed.checkpoint.save() has written, on a disk of this host"
    )


def _metadata(path: Path) -> Any:
    """The `Metadata` in a file. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file).load()
    except (OSError, EOFError, pickle.UnpicklingError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, kinds.Metadata) or not isinstance(content.storage_data, dict):
        raise CheckpointError(f"{path} has a {type(content).__name__}, and no metadata of a checkpoint of torch")
    # A folder may come from anywhere: a path out of it would read a file that it must not.
    for entry in content.storage_data.values():
        if Path(entry.relative_path).name != str(entry.relative_path):
            raise CheckpointError(f"{path} names {entry.relative_path!r}, and a file must be beside it")
    content.storage_meta = content.storage_meta or kinds.StorageMeta()
    return content


class _Reader(dcp.FileSystemReader):  # type: ignore[misc] # torch is not installed where types are checked
    """Torch's, for metadata that has been read."""

    def __init__(self, folder: Path, content: Any) -> None:
        super().__init__(folder)
        self._content = content

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        """The metadata, with the number of this load."""
        self._content.storage_meta.load_id = self.load_id
        return self._content


class _Unpickler(pickle.Unpickler):
    """Knows no classes but those of `_CLASSES`, and types of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        """The class of that name. Raises UnpicklingError for one of another kind."""
        if (module, name) in _CLASSES or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"it has {module}.{name}, which is no class of a checkpoint's metadata, and is not loaded: read a folder "
            "that torch.distributed.checkpoint.save() has written"
        )


class _Planner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
    """Torch's, without pickle for what is no tensor. Numbers that the folder lacks stay as they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(allow_partial_load=True)
        self._folder = folder

    def create_local_plan(self) -> Any:
        """What to read. Raises UserError where tensors are missing."""
        stored = self.metadata.state_dict_metadata
        tensors = {name for name, value in self.state_dict.items() if isinstance(value, torch.Tensor)}
        if missing := sorted(tensors - stored.keys()):
            raise UserError(
                f"{self._folder} lacks {len(missing)} tensors, such as {', '.join(missing[:_SHOWN])}; it has "
                f"{', '.join(sorted(stored)[:_SHOWN])}, ...: pass each object by its name in the saved state, as in "
                f"{_CALL[:-1]}folder, model=model)"
            )
        return super().create_local_plan()

    def load_bytes(self, read_item: Any, value: Any) -> None:
        """Put a value that is no tensor into the state. Raises CheckpointError for what is no plain data."""
        name = read_item.dest_index.fqn
        try:
            # Torch's own planner unpickles any class here.
            content = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(f"{name} in {self._folder} is no plain data, and is not loaded: {error}") from error
        set_element(self.original_state_dict, self.mappings[name], content)


def _state_of(part: Any, models: list[torch.nn.Module]) -> Any:
    if isinstance(part, torch.nn.Module):
        return get_model_state_dict(part)
    if isinstance(part, torch.optim.Optimizer):
        return get_optimizer_state_dict(_trained_by(part, models), part)
    return part.state_dict()


def _assign(part: Any, state: Any, models: list[torch.nn.Module]) -> None:
    if isinstance(part, torch.nn.Module):
        set_model_state_dict(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        set_optimizer_state_dict(_trained_by(part, models), part, state)
    else:
        part.load_state_dict(state)


def _trained_by(optimizer: torch.optim.Optimizer, models: list[torch.nn.Module]) -> torch.nn.Module:
    """The model that an optimizer trains. Raises UserError."""
    trained = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    for model in models:
        if trained <= {id(tensor) for tensor in model.parameters()}:
            return model
    raise UserError(
        f"{_CALL} got a {type(optimizer).__name__} without the model that it trains: pass that too, and make the "
        "optimizer of its parameters after fully_shard(model)"
    )


def _explained(folder: Path, error: Any) -> Exception:
    """The first cause, of this process."""
    cause, _ = next(iter(error.failures.values()))
    if isinstance(cause, UserError | CheckpointError):
        return cause
    return UserError(f"the checkpoint in {folder} does not fit: {cause}")
