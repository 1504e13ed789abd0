"""The variables of torchrun for a member without others, with a stand-in for torch."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest

from sparktrain.config.backends import Backend
from sparktrain.state.topology import ALONE, Formation
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.frameworks.torch import lone_group
from sparktrain.training.gang_join import JoinedGang, alone

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `torch.distributed` with groups that show the environment in which they start."""
    for name in lone_group._ENVIRONMENT:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    module = ModuleType("torch.distributed")
    vars(module)["init_process_group"] = lambda *names, **options: [os.environ.get(name) for name in NAMES]
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    return module


def test_a_call_finds_the_variables_and_others_do_not(module: Any) -> None:
    lone_group.connect(alone(), Backend.HOROVOD)
    assert "RANK" not in os.environ
    assert module.init_process_group("gloo") == ["0", "1", "0", "127.0.0.1", "0"]


def test_the_backend_torch_has_them_from_the_start_and_keeps_those_of_the_user(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "4711")
    lone_group.connect(alone(), Backend.TORCH)
    assert [os.environ[name] for name in NAMES] == ["0", "1", "0", "127.0.0.1", "4711"]


def test_a_gang_has_those_of_its_own_rendezvous(module: Any) -> None:
    start = module.init_process_group
    lone_group.connect(JoinedGang(Formation(0, ALONE.places * 2), LocalRing, lambda: None), Backend.TORCH)
    assert module.init_process_group is start
    assert "RANK" not in os.environ


def test_a_build_of_torch_without_groups_stays_as_it_is(module: Any) -> None:
    del module.init_process_group
    lone_group.connect(alone(), Backend.HOROVOD)
    assert not hasattr(module, "init_process_group")
