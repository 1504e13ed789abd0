"""The scratch folders of killed agents are removed, those of running agents stay."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktrain.executor.agent import attend
from sparktrain.executor.warm_zygote import started
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.gate import Gate, listen
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.store import held_folders
from sparktrain.store.held_folders import OWNER, held, hold, tidy
from tests.process.agents import PLACE
from tests.process.harness import MARK, eventually
from tests.support.processes import wait_until

HOLDER = """
import sys
from sparktrain.store.held_folders import held
with held("agent-held", sys.argv[1]) as folder:
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


def left_by_a_killed_process(root: Path) -> Path:
    """A folder that a process has left that was killed."""
    with holder(root) as (killed, left):
        killed.kill()
        killed.wait()
    return left


def test_what_only_looks_like_such_a_folder_stays(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    shutil.copytree(left, tmp_path / "sparktrain-agent-held-a_copy_1")
    unsigned, foreign, longer = (tmp_path / f"sparktrain-gate-{name}" for name in ("unsigned", "foreign1", "abcdefghi"))
    for folder in (unsigned, foreign, longer):
        folder.mkdir()
        (folder / "file").touch()
    (foreign / OWNER).write_text("{")
    shutil.copy(left / OWNER, longer / OWNER)
    (tmp_path / "sparktrain-gate-thelink1").symlink_to(elsewhere)
    linked = tmp_path / "sparktrain-gate-linkedto"
    linked.mkdir()
    (linked / OWNER).symlink_to(left / OWNER)
    everything = sorted(tmp_path.rglob("*"))
    tidy(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == [path for path in everything if left not in (path, *path.parents)]


def test_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_a_killed_process(tmp_path)
    with monkeypatch.context() as patched:
        me = os.geteuid()
        patched.setattr(os, "geteuid", lambda: me + 1)
        tidy(str(tmp_path))
    assert left.exists()
    tidy(str(tmp_path))
    assert not left.exists()


def test_a_removal_that_was_interrupted_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_a_killed_process(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda folder: [left.name])  # it seems never to be empty
        tidy(str(tmp_path))
    assert os.listdir(left) == [OWNER]
    tidy(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_fork_of_the_process_does_not_remove_its_folder(tmp_path: Path) -> None:
    folder = hold("gate", str(tmp_path))
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()
    folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []


KILLED_DRIVER = """
import sys
from sparktrain.protocol.gate import Gate, listen
gate = Gate(listen("127.0.0.1", 0), 1.0)
print(gate.target, flush=True)
sys.stdin.read()
"""


def test_a_driver_removes_what_a_killed_driver_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", KILLED_DRIVER]
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as driver:
        assert driver.stdout is not None
        left = Path(os.fsdecode(driver.stdout.readline().rstrip(b"\n"))).parent
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        first = Gate(listen("127.0.0.1", 0), 1.0)
        assert left.exists(), "its process lives"
        driver.kill()
    second = Gate(listen("127.0.0.1", 0), 1.0)
    wait_until(lambda: not left.exists(), 10.0, "the folder of the killed driver is gone")
    assert Path(first.target).parent.exists(), "its process is this one"
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_removed_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, made = held_folders.fcntl.flock, []

    def late(lock: int, flags: int) -> None:
        if not made:
            made.append(os.readlink(f"/proc/self/fd/{lock}"))
            os.rmdir(made[0])
        flock(lock, flags)

    monkeypatch.setattr(held_folders.fcntl, "flock", late)
    with held("gate", str(tmp_path)) as folder:
        assert str(folder) != made[0]
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


async def test_a_starting_agent_removes_the_folders_of_killed_ones(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_by_a_killed_process(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(MARK, mark)
    ticket = AgentTicket("pool", ("127.0.0.1",), 1, issue("pool").agent, connect_s=0.1)
    reason, reached = await asyncio.to_thread(lambda: attend(PLACE, ticket, *started(None)))
    assert not reached, reason
    await eventually(lambda: not list(tmp_path.iterdir()), 10.0, "nothing is left")
