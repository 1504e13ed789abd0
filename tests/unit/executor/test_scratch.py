"""Where an agent keeps its files."""

import os
import tempfile
from pathlib import Path

import pytest

from sparktrain.executor.spark_task import settle_temporary_folder
from sparktrain.executor.zygote_process import scratch_root


def test_in_a_container_of_yarn_it_is_the_containers_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    (tmp_path / "tmp").mkdir()
    assert scratch_root() is None

    monkeypatch.setenv("CONTAINER_ID", "container_1_0001_01_000002")
    assert scratch_root() == str(tmp_path / "tmp")

    (tmp_path / "tmp").rmdir()
    assert scratch_root() is None, "the system's folder is better than none"


def test_a_task_uses_the_folder_of_spark_where_the_system_has_none_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [os.environ.get("TMPDIR", "/proc/none")])
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/proc/none,{tmp_path}")
    settle_temporary_folder()
    assert tempfile.gettempdir() == os.environ.pop("TMPDIR") == str(tmp_path)


def test_a_task_keeps_the_temporary_folder_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    settle_temporary_folder()
    assert "TMPDIR" not in os.environ
