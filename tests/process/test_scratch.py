"""The scratch folders of killed agents are removed, those of running agents stay."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.executor import scratch
from sparktrain.executor.agent import attend
from sparktrain.executor.scratch import PREFIX, held, tidy
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.ticket import AgentTicket
from tests.process.agents import PLACE
from tests.process.harness import MARK, eventually

HOLDER = """
import sys
from sparktrain.executor.scratch import held
with held(sys.argv[1]) as folder:
    (folder / "code").mkdir()
    (folder / "code" / "function").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(root: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A process that holds a folder below `root`."""
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process, Path(os.fsdecode(process.stdout.readline().rstrip(b"\n")))
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_running_one_stays(tmp_path: Path) -> None:
    with holder(tmp_path) as (_, living), holder(tmp_path) as (killed, left):
        tidy(str(tmp_path))
        assert sorted(tmp_path.iterdir()) == sorted([living, left])
        killed.kill()
        killed.wait()
        assert left.exists()
        tidy(str(tmp_path))
        assert list(tmp_path.iterdir()) == [living]
        assert (living / "code" / "function").exists()


def test_a_folder_is_removed_when_its_process_ends(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, folder):
        assert folder.is_dir()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_removes_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def make(**options: Any) -> str:
        made.append(mkdtemp(**options))
        if len(made) == 1:
            tidy(str(tmp_path))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with held(str(tmp_path)) as folder:
        assert [str(folder)] == made[1:]
        assert list(tmp_path.iterdir()) == [folder]


def test_folders_of_other_users_and_behind_links_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, unlocked, unheld = tmp_path / "elsewhere", tmp_path / "sparktrain-agent-abc", tmp_path / f"{PREFIX}abc"
    for folder in (elsewhere, unlocked, unheld):
        folder.mkdir()
        (folder / "file").touch()
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(elsewhere)
    everything = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patched:
        me = os.geteuid()
        patched.setattr(os, "geteuid", lambda: me + 1)
        tidy(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == everything, "all belong to another user"
    tidy(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == [path for path in everything if unheld not in (path, path.parent)]


def test_a_folder_that_is_removed_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, made = scratch.fcntl.flock, []

    def late(lock: int, flags: int) -> None:
        if not made:
            made.append(os.readlink(f"/proc/self/fd/{lock}"))
            os.rmdir(made[0])
        flock(lock, flags)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    with held(str(tmp_path)) as folder:
        assert str(folder) != made[0]
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


async def test_a_starting_agent_removes_the_folders_of_killed_ones(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{PREFIX}killed" / "code").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(MARK, mark)
    ticket = AgentTicket("pool", ("127.0.0.1",), 1, issue("pool").agent, connect_s=0.1)
    reason, reached = await asyncio.to_thread(attend, PLACE, ticket)
    assert not reached, reason
    await eventually(lambda: not list(tmp_path.iterdir()), 10.0, "nothing is left")
