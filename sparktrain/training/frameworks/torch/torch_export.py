"""Keeps a finished model of PyTorch: the weights of a module as safetensors, a program as its library writes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel

from sparktrain.errors import SpecError
from sparktrain.rundir.layout import ExportedModel

_CALL = "ctx.export()"


def save_torch(model: Any, place: Path) -> ExportedModel:
    """Write a module, or a program of `torch.export` or TorchScript, into the folder `place`. Blocks on the disk.

    Of a module it writes the `state_dict`, without pickle; of one of `DistributedDataParallel`, what that wraps.
    Raises SpecError for anything else, and for a state that has more than tensors; OSError.
    """
    version = str(torch.__version__)
    if isinstance(model, torch.export.ExportedProgram):
        torch.export.save(model, place / "model.pt2")
        return ExportedModel(kind="torch-program", file="model.pt2", of=type(model).__name__, version=version)
    if isinstance(model, torch.jit.ScriptModule):
        model.save(str(place / "model.pt"))
        name = getattr(model, "original_name", "")
        return ExportedModel(kind="torchscript", file="model.pt", of=name, version=version)
    module = model.module if isinstance(model, DistributedDataParallel) else model
    if not isinstance(module, torch.nn.Module):
        raise SpecError(
            f"{_CALL} is given an object of PyTorch ({type(model).__name__}), which is no model: pass a "
            "torch.nn.Module, or a program of torch.export.export(); ctx.checkpoint.save keeps optimizers"
        )
    save_file(_tensors(module), place / "model.safetensors", {"format": "pt"})
    return ExportedModel(kind="torch", file="model.safetensors", of=type(module).__name__, version=version)


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the tensors of the state: safetensors writes none that share memory, as tied weights do."""
    state: Mapping[str, Any] = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            raise SpecError(
                f"{_CALL}: state_dict() of {type(module).__name__} has {name!r} of type {type(value).__name__}, and "
                "weights are dense tensors: have get_extra_state() return a tensor, or write the model to a file and "
                "pass its path"
            )
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}
