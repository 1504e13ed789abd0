"""The file of a process' delegation tokens: complete, private, and used by clients that are created later."""

import os
import stat
from pathlib import Path

import pytest

from sparktrain.store.hadoop.token_file import VARIABLE, TokenFile, changes
from tests.unit.store.hadoop.memory import Hdfs, MemoryStore


@pytest.fixture(autouse=True)
def none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_only_this_user_can_read_it_despite_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        tokens = TokenFile(tmp_path)
        tokens.keep(b"first")
        tokens.keep(b"second")
    finally:
        os.umask(mask)
    [path] = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (os.environ[VARIABLE], path.read_bytes()) == (str(path), b"second")
    tokens.close()


def test_a_planted_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "hdfs-tokens.new").symlink_to(tmp_path / "elsewhere")
    tokens = TokenFile(tmp_path / "tokens")
    tokens.keep(b"secret")
    assert not (tmp_path / "elsewhere").exists()
    tokens.close()


def test_close_deletes_the_file_and_restores_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/of/yarn")
    tokens = TokenFile(tmp_path)
    tokens.close()
    assert os.environ[VARIABLE] == "/of/yarn"
    tokens.keep(b"1")
    tokens.keep(b"2")
    tokens.close()
    tokens.close()
    assert os.environ[VARIABLE] == "/of/yarn"
    assert list(tmp_path.iterdir()) == []


def test_closing_an_older_file_leaves_the_newer_one_in_use(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, last = TokenFile(tmp_path / "a"), TokenFile(tmp_path / "b")
    first.keep(b"1")
    last.keep(b"2")
    first.close()
    assert os.environ[VARIABLE].startswith(str(tmp_path / "b"))
    last.close()


def test_a_store_creates_a_new_client_for_new_tokens(tmp_path: Path) -> None:
    store, tokens = MemoryStore(Hdfs()), TokenFile(tmp_path)
    assert store.put_if_absent("a", b"1")
    store.read("a")
    assert store.connected == 1
    before = changes()
    tokens.keep(b"1")
    assert changes() > before
    assert store.read("a") == b"1"
    assert store.connected == 2
    tokens.close()


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    before = changes()
    with pytest.raises(OSError, match="No such file"):
        TokenFile(tmp_path / "gone").keep(b"1")
    assert (changes(), VARIABLE in os.environ) == (before, False)


def test_runs_on_two_clusters_have_the_tokens_of_both(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    one, other, renewed = (b"HDTS\x00\x01\x01" + name + b"\x01i\x01p\x01k\x01s\x00" for name in (b"a", b"b", b"a"))
    tokens.keep(one, "a")
    tokens.keep(other, "b")
    tokens.keep(renewed.replace(b"\x01p", b"\x01q"), "a")
    content = Path(os.environ[VARIABLE]).read_bytes()
    assert content.startswith(b"HDTS\x00\x02")
    assert b"\x01b\x01i\x01p" in content
    assert b"\x01a\x01i\x01q" in content, "the renewed one stands for the one before"
    tokens.close()
