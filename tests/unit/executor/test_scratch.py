"""Where an agent keeps its files."""

from pathlib import Path

import pytest

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
