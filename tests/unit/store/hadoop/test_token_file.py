"""The file of a process' delegation tokens: whole, nobody else's, and known to clients that are made from then on."""

import os
import stat
from pathlib import Path

import pytest

from sparktrain.store.hadoop.token_file import VARIABLE, TokenFile, changes
from tests.unit.store.hadoop.memory import Hdfs, MemoryStore


@pytest.fixture(autouse=True)
def none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_only_this_user_can_read_it_whatever_the_mask(tmp_path: Path) -> None:
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


def test_a_link_that_somebody_has_laid_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "hdfs-tokens.new").symlink_to(tmp_path / "elsewhere")
    tokens = TokenFile(tmp_path / "tokens")
    tokens.keep(b"secret")
    assert not (tmp_path / "elsewhere").exists()
    tokens.close()


def test_at_its_end_the_file_is_gone_and_the_process_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_of_two_files_the_last_one_counts_and_the_first_ones_end_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, last = TokenFile(tmp_path / "a"), TokenFile(tmp_path / "b")
    first.keep(b"1")
    last.keep(b"2")
    first.close()
    assert os.environ[VARIABLE].startswith(str(tmp_path / "b"))
    last.close()


def test_a_store_takes_a_new_client_for_other_tokens(tmp_path: Path) -> None:
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
