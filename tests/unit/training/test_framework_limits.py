"""How much of a GPU JAX and PyTorch may use, with stand-ins for both: no GPU is needed."""

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparktrain.errors import EnvironmentMismatchError, SpecError
from sparktrain.training.frameworks.jax.jax_framework import Jax, jax_key
from sparktrain.training.frameworks.torch.torch_framework import Torch

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables and modules of this process are as before after the test."""
    monkeypatch.setenv(FRACTION, "")
    monkeypatch.delenv(FRACTION)


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(("mib", "total", "fraction"), [(4096, 16384, "0.2500"), (99999, 16384, "1.0000")])
def test_jax_gets_the_fraction_of_its_gpu(mib: int, total: int, fraction: str) -> None:
    Jax().limit_gpu_memory(mib, total)
    assert os.environ[FRACTION] == fraction


def test_a_fraction_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FRACTION, ".9")
    Jax().limit_gpu_memory(4096, 16384)
    Jax().limit_gpu_memory(4096, 0)
    assert os.environ[FRACTION] == ".9"


def test_an_unknown_gpu_is_refused_where_jax_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "jax")
    with pytest.raises(EnvironmentMismatchError, match=r"limits JAX.*nvidia-smi does not report.*set XLA_"):
        Jax().limit_gpu_memory(4096, 0)
    assert FRACTION not in os.environ


def test_torch_gets_the_fraction_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fractions = {}
    cuda = SimpleNamespace(
        device_count=lambda: 2,
        get_device_properties=lambda device: SimpleNamespace(total_memory=(16384 << device) * 2**20),
        set_per_process_memory_fraction=lambda fraction, device: fractions.update({device: fraction}),
    )
    stand_in(monkeypatch, "torch", cuda=cuda)
    Torch().limit_gpu_memory(4096, 0)
    assert fractions == {0: 0.25, 1: 0.125}


def test_a_key_is_made_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "jax", random=SimpleNamespace(key=lambda seed: ("key", seed)))
    assert jax_key(7) == ("key", 7)
    assert jax_key(2**32 + 7) == ("key", 7)


def test_a_missing_jax_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparktrain.base.optional_packages import require

    monkeypatch.setattr("sparktrain.base.optional_packages.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"ctx.jax_key\(\) needs JAX.*pip install 'sparktrain\[jax\]'"):
        require("jax", "ctx.jax_key()")


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection"), True),
        (type("JaxRuntimeError", (RuntimeError,), {})("NCCL operation ncclAllReduce failed: remote error"), True),
        (ValueError("Incompatible shapes for broadcasting: (2,) and (3,)"), False),
        (KeyError("Gloo AllGather failed"), False),
    ],
)
def test_errors_of_collectives_of_jax_are_those_of_a_ring_and_no_others(error: Exception, broken: bool) -> None:
    assert Jax().is_broken_collective(error) is broken
