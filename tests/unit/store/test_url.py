"""`dir=` as the user writes it."""

import sys
from pathlib import Path

import pytest

from sparktrain.errors import SpecError
from sparktrain.store.url import open_store


@pytest.mark.parametrize(
    "dir",
    ["/shared/runs", Path("/shared/runs"), "/shared/runs/", "/shared/x/../runs", "file:///shared/runs",
     "file:/shared/runs", "FILE:///shared/runs", "file://localhost/shared/runs"],
)  # fmt: skip
def test_local_directories(dir: str | Path) -> None:
    assert open_store(dir).where() == "/shared/runs"


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("runs")
    monkeypatch.chdir("/")
    assert store.where("a/b") == f"{tmp_path}/runs/a/b"


def test_home_and_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert open_store("~/runs").where() == "/home/ann/runs"
    assert open_store("file:///my%20runs").where() == "/my runs"
    assert open_store("/my%20runs").where() == "/my%20runs"


@pytest.mark.parametrize("dir", ["ftp://host/exp", "dbfs:/exp", "HTTP://b/x"])
def test_other_schemes_are_refused(dir: str) -> None:
    with pytest.raises(SpecError, match=r"which sparktrain does not have: .* starts with one of .*file:, .*hdfs:"):
        open_store(dir)


def test_mount_tables_are_refused() -> None:
    with pytest.raises(SpecError, match="write hdfs://nameservice/path"):
        open_store("viewfs:///exp")


@pytest.mark.parametrize(("dir", "package"), [("hdfs://host:1/exp", "hdfs_native"), ("webhdfs://host:1/exp", "hdfs")])
def test_a_missing_client_is_reported_at_once(dir: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SpecError, match=r"pip install 'sparktrain\[hdfs\]'"):
        open_store(dir)


@pytest.mark.parametrize("dir", ["", "a\0b", "a\nb", "file://otherhost/exp"])
def test_invalid_directories_are_refused(dir: str) -> None:
    with pytest.raises(SpecError):
        open_store(dir)


def test_opening_a_store_writes_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
