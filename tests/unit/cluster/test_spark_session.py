"""How JVMs of this machine are started."""

import shlex
from pathlib import Path

from sparktrain.cluster.spark_session import CLASSES, FAST_JVM, jvm_here


def test_stored_classes_are_used_where_there_are_some(tmp_path: Path) -> None:
    environment = tmp_path / "my environment"
    environment.mkdir()
    assert jvm_here(environment) == FAST_JVM
    (environment / CLASSES).touch()
    assert shlex.split(jvm_here(environment)) == [*FAST_JVM.split(), f"-XX:SharedArchiveFile={environment / CLASSES}"]
