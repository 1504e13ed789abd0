"""The GPUs of an agent have the UUIDs and memory that nvidia-smi prints, and addresses where it does not answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.executor.devices import Device, devices

Say = Callable[[str], None]


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def say(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    return say


def test_gpus_are_named_by_their_uuids(nvidia_smi: Say) -> None:
    query = '[ "$1" = --query-gpu=index,uuid,memory.total ] && [ "$2" = --format=csv,noheader,nounits ]'
    nvidia_smi(query + ' && printf "0, GPU-aa, 81559\\n1, GPU-bb, 40960\\n2, GPU-cc, [N/A]\\n"')
    assert devices(("1", "0")) == (Device("GPU-bb", 40960), Device("GPU-aa", 81559))
    assert devices(("GPU-b", "GPU-cc")) == (Device("GPU-bb", 40960), Device("GPU-cc")), "as in CUDA_VISIBLE_DEVICES"
    assert devices(("7", "MIG-x")) == (Device("7"), Device("MIG-x")), "known by another name"
    assert devices(()) == ()


@pytest.mark.parametrize("script", ["exit 9", "echo no devices were found", "kill -9 $$"])
def test_gpus_have_addresses_alone_where_nvidia_smi_does_not_answer(nvidia_smi: Say, script: str) -> None:
    nvidia_smi(script)
    assert devices(("0", "1")) == (Device("0"), Device("1"))


def test_gpus_have_addresses_alone_where_nvidia_smi_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices(("0",)) == (Device("0"),)
