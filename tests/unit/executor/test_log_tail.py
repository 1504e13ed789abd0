"""Following a log and showing its end, with a clock that appends to the file when it is slept on."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.executor import log_tail
from sparktrain.executor.left_files import open_regular
from sparktrain.executor.log_tail import POLL_S, LogFollower, lines_before, tail_lines

SMALL = {"tail_bytes": 8, "slack_bytes": 16}
PUNCH_HOLE = log_tail._punch_hole


class Script:
    """A clock on which each sleep runs the next of `steps`."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    def wall(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._steps.pop(0)()


class Growing:
    """A log, and a follower of it that sees each of `pieces` come while it waits."""

    def __init__(self, path: Path, pieces: list[bytes], limit_bytes: int = 2**20) -> None:
        self.path = path
        steps: list[Callable[[], object]] = [lambda piece=piece: self._append(piece) for piece in pieces]
        self.clock = Script(*steps, lambda: self.follower.finish())
        self.follower = LogFollower(path, limit_bytes, self.clock, **SMALL)

    def _append(self, piece: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(piece)

    def follow(self) -> list[bytes]:
        async def collect() -> list[bytes]:
            return [chunk async for chunk in self.follower]

        return asyncio.run(collect())


def test_comes_piece_by_piece(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "log", [b"one\n", b"", b"\xff\x00two"])

    assert growing.follow() == [b"one\n", b"\xff\x00two"]
    assert set(growing.clock.slept) == {POLL_S}


def test_a_log_that_never_comes_is_empty(tmp_path: Path) -> None:
    assert Growing(tmp_path / "log", []).follow() == []
    assert tail_lines(tmp_path / "log") == ()


def test_one_that_is_as_long_as_its_limit_is_whole(tmp_path: Path) -> None:
    assert b"".join(Growing(tmp_path / "log", [b"12345"], limit_bytes=5).follow()) == b"12345"


@pytest.fixture
def without_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system refuse a hole, as NFS before version 4.2 does."""
    monkeypatch.setattr(log_tail, "_punch_hole", lambda *_: False)


@given(pieces=st.lists(st.binary(max_size=30), max_size=6))
def check_head_marker_and_tail(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    path.touch()
    whole = b"".join(pieces)
    growing = Growing(path, pieces, limit_bytes=10)

    followed = b"".join(growing.follow())
    if len(whole) <= 10:
        assert followed == whole
    else:
        marker = b"[sparktrain] log capped at 10 bytes: the rest is dropped, set log_limit to keep more\n"
        newline = b"" if whole[9:10] == b"\n" else b"\n"
        assert followed == whole[:10] + newline + marker + whole[10:][-8:]
    assert log_tail._punch_hole is PUNCH_HOLE or path.stat().st_size <= 10 + 16 + 30


def test_head_marker_and_tail_are_exact(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_head_marker_and_tail(tmp_path_factory)


@pytest.mark.usefixtures("without_holes")
def test_head_marker_and_tail_are_exact_without_holes(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_head_marker_and_tail(tmp_path_factory)


def trimmed(path: Path) -> bytes:
    """What a follower yields of a log of 100 KB after it has trimmed the file, with a limit of 10 bytes."""
    path.write_bytes(b"x" * 10 + b"y" * 100_000 + b"the tail")
    follower = LogFollower(path, 10, Script(), **SMALL)
    follower.trim()
    follower.finish()

    async def collect() -> bytes:
        return b"".join([chunk async for chunk in follower])

    return asyncio.run(collect())


def test_trims_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert trimmed(path).endswith(b"to keep more\nthe tail")
    assert path.stat().st_blocks * 512 <= 2 * 4096, "the blocks of its middle are free"


@pytest.mark.usefixtures("without_holes")
def test_trims_by_truncation_where_a_file_cannot_have_holes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert trimmed(path).endswith(b"to keep more\nthe tail")
    assert path.stat().st_size == 10


def test_what_is_appended_while_the_log_is_trimmed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"

    def append_and_open(file: Path, flags: int = os.O_RDONLY) -> BinaryIO:
        if flags & os.O_RDWR:
            with path.open("ab") as log:
                log.write(b"; an error")
        return open_regular(file, flags)

    monkeypatch.setattr(log_tail, "open_regular", append_and_open)
    assert trimmed(path).endswith(b"an error")


def test_the_last_lines_are_safe_to_print(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"dropped\nepoch 1\r 10%\r 100%\r\n\x1b[1mbold\x07\n\n\xff\xfe \xe2\x82\xac\tend\n" + b"z" * 3000)

    lines = tail_lines(path, 5)

    assert lines[:4] == (" 100%", "\\x1b[1mbold\\x07", "", "\\xff\\xfe €\tend")
    assert len(lines[4]) == 2000
    assert lines[4].endswith("z...")


def test_the_last_lines_of_a_log_are_as_many_as_there_are(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo")

    assert tail_lines(path) == ("one", "two")
    assert tail_lines(path, 1) == ("two",)


def test_the_last_lines_of_a_crash_have_its_place_and_not_how_the_member_was_started(tmp_path: Path) -> None:
    path = tmp_path / "log"
    start = (
        'File "/x/sparktrain/training/__main__.py", line 22 in main\n'
        + '  File "<frozen runpy>", line 88 in _run_code\n' * 30
    )
    path.write_text(
        f'step 7\nFatal Python error: Aborted\n\n  File "train.py", line 5 in train\n  {start}\nExtension modules: a\n'
    )

    assert tail_lines(path)[:4] == ("step 7", "Fatal Python error: Aborted", "", '  File "train.py", line 5 in train')


@pytest.mark.parametrize(
    ("content", "before"), [("one\ntwo\nend\n", ("two",)), ("one\ntwo\nthree\n", ("three",)), ("end\n", ())]
)
def test_what_was_printed_before_the_ending(content: str, before: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "log").write_text(content)
    assert lines_before("end\n", tmp_path / "log", 1) == before


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_a_function_puts_in_place_of_its_log_is_not_opened(tmp_path: Path, kind: str) -> None:
    log, other = tmp_path / "log.txt", tmp_path / "other"
    other.write_bytes(b"another file\n")
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "link":
        log.symlink_to(other)
    else:
        log.mkdir()
    follower = LogFollower(log, 2, Script())
    follower.finish()

    async def first() -> bytes:
        return await anext(aiter(follower))

    with pytest.raises(OSError, match=r"log\.txt"):
        asyncio.run(first())
    assert tail_lines(log) == ()
    assert other.read_bytes() == b"another file\n"
