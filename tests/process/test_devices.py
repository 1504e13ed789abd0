"""The GPUs of an agent have the UUIDs that nvidia-smi prints, and addresses where it does not answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.executor.devices import devices

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
    nvidia_smi('[ "$1" = --query-gpu=index,uuid ] && printf "0, GPU-aa\\n1, GPU-bb\\n"')
    assert devices(("1", "0")) == ("GPU-bb", "GPU-aa")
    assert devices(("7",)) == ("7",), "Spark knows it by another name"
    assert devices(()) == ()


@pytest.mark.parametrize("script", ["exit 9", "echo no devices were found", "kill -9 $$"])
def test_gpus_have_addresses_alone_where_nvidia_smi_does_not_answer(nvidia_smi: Say, script: str) -> None:
    nvidia_smi(script)
    assert devices(("0", "1")) == ("0", "1")


def test_gpus_have_addresses_alone_where_nvidia_smi_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices(("0",)) == ("0",)
