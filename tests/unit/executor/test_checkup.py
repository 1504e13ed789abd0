"""The facts in a slot's report that its process knows itself."""

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparktrain.executor.checkup import java_version, observed, shared_memory_bytes
from sparktrain.executor.devices import Device
from sparktrain.executor.spark_task import Placement
from sparktrain.protocol.checkup_report import from_json, to_json


class Parent:
    """A process above this one."""

    def __init__(self, name: str, exe: Path) -> None:
        self._name, self._exe = name, exe

    def name(self) -> str:
        return self._name

    def exe(self) -> str:
        return str(self._exe)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the Java above this process."""
    parents = [Parent("python", Path("/usr/bin/python")), Parent("java", tmp_path / "bin" / "java")]
    monkeypatch.setattr(psutil.Process, "parents", lambda self: parents)
    return tmp_path


def test_the_java_version_is_that_of_the_executor(home: Path) -> None:
    assert java_version() == ""
    (home / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nOS_NAME="Linux"\n')
    assert java_version() == "17.0.15"
    (home / "release").write_text("IMPLEMENTOR=x\n")
    assert java_version() == ""


def test_the_java_version_is_empty_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "parents", lambda self: [])
    assert java_version() == ""

    def denied(self: Any) -> list[psutil.Process]:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil.Process, "parents", denied)
    assert java_version() == ""


def test_a_host_without_shared_memory_has_none_of_it(tmp_path: Path) -> None:
    assert shared_memory_bytes(str(tmp_path / "absent")) == 0


def test_the_row_has_the_whole_report_of_a_slot() -> None:
    place = Placement(3, "h", os.getpid(), 7, 1, ("0", "1"), (Device("x"), Device("y")), {}, "10.0.0.9")
    report = observed(place)
    assert (report.slot, report.host, report.address, report.executor) == (3, "h", "10.0.0.9", 7)
    assert (report.gpus, report.devices) == (("0", "1"), ("x", "y"))
    assert report.software.python == ".".join(map(str, sys.version_info[:3]))
    assert report.software.executable == sys.executable
    assert report.software.versions["sparktrain"]
    assert 0 < report.free_bytes <= report.memory_bytes
    assert report.shared_memory_bytes == psutil.disk_usage("/dev/shm").total
    assert from_json(to_json(report)) == report
