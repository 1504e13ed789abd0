"""Lets a program for torchrun run in a member without others, as torchrun with one process does. Imports no torch."""

import functools
import os
from types import ModuleType
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.config.backends import Backend
from sparktrain.training.gang_join import JoinedGang

_MODULE = "torch.distributed"
_ENVIRONMENT = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    # Any free port: no other process connects to it.
    "MASTER_PORT": "0",
}


def connect(gang: JoinedGang, backend: Backend) -> None:
    """Have `init_process_group` make a group of one in a gang of one member: see `Framework.joins`.

    Only with the backend `torch` are the variables of torchrun set from the start: libraries such as accelerate train
    in another way where they see them.
    """
    if gang.formation.size > 1:
        return
    if backend is Backend.TORCH:
        _set_environment()
    patch_when_imported(_MODULE, _patch)


def _set_environment() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _patch(module: ModuleType) -> None:
    start: Any = getattr(module, "init_process_group", None)  # a build of torch may lack torch.distributed
    if start is None:
        return

    @functools.wraps(start)
    def init_process_group(*arguments: Any, **options: Any) -> Any:
        _set_environment()
        return start(*arguments, **options)

    module.init_process_group = init_process_group  # type: ignore[attr-defined]
