"""How JVMs of this machine are started, and what an error names where they do not."""

import shlex
import socket
from pathlib import Path

import pytest

from sparktrain.cluster import jvm
from sparktrain.cluster.spark_session import CLASSES, FAST_JVM, jvm_here, local_session
from sparktrain.errors import SessionError


def test_a_machine_that_cannot_resolve_its_names_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(jvm, "start", start)
    monkeypatch.setattr(socket, "gethostname", lambda: "edge-1")
    expected = r"on local\[2\]: this machine does not know .* \(Name or service .*\); localhost .* edge-1.*/etc/hosts$"
    with pytest.raises(SessionError, match=expected), local_session("local[2]", {}, "app"):
        pass


def test_stored_classes_are_used_where_there_are_some(tmp_path: Path) -> None:
    environment = tmp_path / "my environment"
    environment.mkdir()
    assert jvm_here(environment) == FAST_JVM
    (environment / CLASSES).touch()
    assert shlex.split(jvm_here(environment)) == [*FAST_JVM.split(), f"-XX:SharedArchiveFile={environment / CLASSES}"]
