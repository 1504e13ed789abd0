"""Prints, once, where a script of a gang saves by `torch.save` what members hold in parts: the file lacks the others'.

Imports no torch.
"""

import functools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.config.backends import Backend
from sparktrain.training.gang_join import JoinedGang
from sparktrain.training.notices import notice

_ADVICE = (
    "torch.save() got a model that members hold in parts (DTensor), and writes the part of this member alone. Use one "
    "of two lines in its place, on every member, without `if rank == 0`: ctx.checkpoint.save(step, model, optimizer), "
    "or, for a model that fits one process, weights = torch.distributed.checkpoint.state_dict.get_model_state_dict("
    "model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)), which rank 0 then saves"
)


def connect(gang: JoinedGang, backend: Backend) -> None:
    """Look at what `torch.save` gets, in a gang with other members: see `Framework.joins`."""
    if gang.formation.size > 1:
        patch_when_imported("torch", _patch)


def _patch(module: ModuleType) -> None:
    save: Any = module.save

    advice = [_ADVICE]

    @functools.wraps(save)
    def noting_save(value: Any, *arguments: Any, **options: Any) -> Any:
        if advice and _is_split(value):
            notice(advice.pop())
        return save(value, *arguments, **options)

    module.save = noting_save  # type: ignore[attr-defined]


def _is_split(value: Any) -> bool:
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None:
        return False
    if isinstance(value, distributed.DTensor):
        return any(placement.is_shard() for placement in value.placements) and value.device_mesh.size() > 1
    if callable(parameters := getattr(value, "parameters", None)):
        return any(map(_is_split, parameters()))
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(_is_split, values))
