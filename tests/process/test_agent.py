"""An agent and its members: files on its disk, uploads, checkpoints, and errors beside a member."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.base import process_tree
from sparktrain.base.clock import SystemClock
from sparktrain.executor.member_runner import MemberLimits, MemberSession
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.executor.warm_zygote import WarmZygote
from sparktrain.executor.zygote_process import ZygoteLostError
from sparktrain.protocol import messages as m
from sparktrain.protocol.messages import PARCEL_FILES
from sparktrain.state.outcome import FailureKind
from tests.process import agents
from tests.process.agents import attended
from tests.process.harness import MARK, eventually


def leaves(name: str) -> Any:
    """A training function that writes one file."""

    def train(ctx: Any) -> float:
        (Path(ctx.log_dir) / name).write_text(name)
        return 1.0

    return train


async def test_files_of_an_earlier_run_are_not_uploaded_for_the_next_member(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on, rmdir = threading.Event(), threading.Event(), os.rmdir

    def held(*args: Any, **kwargs: Any) -> None:
        removing.set()
        assert go_on.wait(agents.WITHIN_S)
        rmdir(*args, **kwargs)

    async with attended(tmp_path, mark) as hall:
        await hall.prepare("first", leaves("one"))
        await hall.prepare("second", leaves("two"))
        monkeypatch.setattr(os, "rmdir", held)
        try:
            first = hall.start("first")
            assert await hall.stored(first) == ""
            await hall.until(removing.is_set, "the first member's folder is being removed")
            second = hall.start("second")
            assert (await hall.ended_member(second)).outcome.metrics == {"result": 1.0}
            assert await hall.stored(second) == ""
        finally:
            go_on.set()
        assert {member: name for member, name in hall.files if name.startswith("files/")} == {
            first: "files/one",
            second: "files/two",
        }


LEFT = ("a name that is no text", "a deep tree", "special files", "no folder", "no readable log")


def leaves_behind(what: str, ctx: Any) -> float:
    """A training function that writes a regular file, and entries of unusual kinds."""
    files = Path(ctx.log_dir)
    (files / "good").write_text("good")
    if what == "a name that is no text":
        Path(os.fsdecode(os.fsencode(files) + b"/caf\xe9")).write_text("x")
    elif what == "a deep tree":
        at = files
        for _ in range(1000):
            at = at / "d"
            at.mkdir()
        (at / "bottom").write_text("bottom")
    elif what == "special files":
        os.mkfifo(files / "fifo")
        with socket.socket(socket.AF_UNIX) as held:
            os.chdir(files)
            held.bind("socket")
        (files / "loop").symlink_to(files / "loop")
        (files / "passwd").symlink_to("/etc/passwd")
        os.mkfifo(files.parent / "model.keras")
    elif what == "no folder":
        import shutil

        shutil.rmtree(files.parent)
    else:
        (files.parent / "log.txt").unlink()
        os.mkfifo(files.parent / "log.txt")
    return 1.0


async def test_no_file_of_a_function_ends_its_agent(tmp_path: Path, mark: str) -> None:
    async with attended(tmp_path, mark) as hall:
        await hall.prepare("run", leaves_behind)
        problems, good = {}, {}
        for trial, what in enumerate(LEFT):
            member = hall.start("run", trial, params={"what": what})
            assert (await hall.ended_member(member)).outcome.metrics == {"result": 1.0}
            problems[what] = await hall.stored(member)
            good[what] = hall.files.get((member, "files/good"))
        deep = [len(content) for (_, name), content in hall.files.items() if name.endswith("/bottom")]
        names = [name for _, name in hall.files if name.startswith("files/") and "/d/" not in name]
    await eventually(lambda: not list(tmp_path.glob("trial-*")) + list(tmp_path.glob("gone-*")), 5.0, "all is removed")
    assert problems == {
        "a name that is no text": "files/caf\\xe9: its name is not UTF-8",
        "a deep tree": "",
        "special files": problems["special files"],
        "no folder": "",
        "no readable log": "log.txt: log.txt is no file but a named pipe",
    }
    assert sorted(problems["special files"].split("; ")) == [
        "files/fifo: is no file but a named pipe",
        "files/socket: is no file but a socket",
        "model.keras: model.keras is no file but a named pipe",
    ]
    assert good == dict.fromkeys(LEFT, b"good") | {"no folder": None}
    assert deep == [len("bottom")]
    assert names == ["files/good"] * 4


async def test_small_files_are_uploaded_in_one_message(tmp_path: Path, mark: str) -> None:
    def train(ctx: Any) -> float:
        for number in range(1000):
            (Path(ctx.log_dir) / f"{number}").write_text(f"{number}")
        (Path(ctx.log_dir) / "large").write_bytes(b"x" * 3_000_000)
        return 1.0

    async with attended(tmp_path, mark) as hall:
        await hall.prepare("run", train)
        member = hall.start("run")
        assert await hall.stored(member) == ""
        left = {name.removeprefix("files/"): content for (_, name), content in hall.files.items()}
    assert left.pop("large") == b"x" * 3_000_000
    assert left == {f"{number}": f"{number}".encode() for number in range(1000)}
    assert hall.streams == 1 + -(-1000 // PARCEL_FILES), "one for the large file, and none for an empty log"


async def test_a_trial_without_output_and_files_uploads_nothing(tmp_path: Path, mark: str) -> None:
    def train() -> float:
        return 1.0

    async with attended(tmp_path, mark) as hall:
        await hall.prepare("run", train)
        member = hall.start("run")
        assert await hall.stored(member) == ""
        assert (hall.files, hall.streams) == ({}, 0)


def saves(ctx: Any) -> float:
    """A training function that waits for its checkpoint."""
    ctx.checkpoint.save(1, x=1)
    ctx.checkpoint.wait()
    return 1.0


async def test_a_checkpoint_that_fails_in_the_agent_is_reported_at_once(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(CheckpointStorer, "store", broken)
    async with attended(tmp_path, mark) as hall:
        await hall.prepare("run", saves)
        member = hall.start("run")
        failure = await hall.failure(member)
        sent = [each for each in hall.heard if isinstance(each, m.CheckpointFailed)]
    cause = "its agent failed: RuntimeError: a bug"
    assert failure.summary == f"CheckpointError: step 1 was not checkpointed: {cause}"
    assert sent == [m.CheckpointFailed(member, 1, cause)]


def reports_and_saves(ctx: Any) -> float:
    """A training function that reports each step before it saves it."""
    ctx.report(1, loss=0.5)
    return saves(ctx)


async def test_a_report_comes_before_the_checkpoint_after_it(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("at once")

    monkeypatch.setattr(CheckpointStorer, "store", broken)
    async with attended(tmp_path, mark) as hall:
        await hall.prepare("run", reports_and_saves)
        await hall.failure(hall.start("run"))
        sent = [each for each in hall.heard if isinstance(each, m.MemberReported | m.CheckpointFailed)]
    assert [type(each) for each in sent] == [m.MemberReported, m.CheckpointFailed]


async def test_an_error_beside_a_member_loses_the_member_and_not_its_agent(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(ctx: Any) -> None:
        import signal

        signal.pause()

    async def broken(*args: Any) -> None:
        raise RuntimeError("a bug")

    async with attended(tmp_path, mark) as hall:
        await hall.prepare("waits", waits)
        await hall.prepare("good", leaves("one"))
        with monkeypatch.context() as patched:
            patched.setattr(MemberSession, "_flush_reports", broken)
            failure = await hall.failure(hall.start("waits"))
        assert (failure.kind, failure.summary) == (
            FailureKind.LOST,
            "its agent could not run it any more: RuntimeError: a bug",
        )
        assert (await hall.ended_member(hall.start("good"))).outcome.metrics == {"result": 1.0}


async def test_an_agent_with_a_disk_that_takes_no_code_leaves_and_may_return(tmp_path: Path, mark: str) -> None:
    (tmp_path / "code").write_text("in the way")
    async with attended(tmp_path, mark, dismissed=False) as hall:
        with pytest.raises(AssertionError, match="the agent ended: None"):  # may return
            await hall.prepare("run", leaves("one"))
    leave = hall.heard[-1]
    assert isinstance(leave, m.Leave)
    assert leave.reason.startswith("agent on host leaves for a while: the code of run run cannot be kept below")


async def test_a_function_that_kills_its_zygote_loses_only_its_own_trial(tmp_path: Path, mark: str) -> None:
    def kills(ctx: Any) -> None:
        import signal

        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    async with attended(tmp_path, mark, restarts=2) as hall:
        await hall.prepare("kills", kills)
        await hall.prepare("good", leaves("one"))
        for trial in range(4):
            failure = await hall.failure(hall.start("kills", trial))
            assert failure.kind is FailureKind.LOST
            assert re.search(r"was ended by SIGKILL(?s:.*)did the function end its parent process", failure.summary)
        assert (await hall.ended_member(hall.start("good"))).outcome.metrics == {"result": 1.0}


async def test_a_zygote_lost_without_a_member_is_replaced_a_limited_number_of_times(tmp_path: Path, mark: str) -> None:
    others = process_tree.children()
    warm = WarmZygote(tmp_path, sys.path, {MARK: mark}, SystemClock(), restarts=2)
    warm.start()
    keeping = asyncio.create_task(warm.keep())
    for _ in range(3):
        await eventually(lambda: process_tree.children() - others, 5.0, "there is a zygote")
        [zygote] = process_tree.children() - others
        await warm.preload(())
        os.kill(zygote, 9)
        await eventually(lambda gone=zygote: gone not in process_tree.children(), 5.0, "it is buried")
    with pytest.raises(ZygoteLostError, match="the zygote was lost 3 times"):
        await keeping
    await warm.close()


async def test_a_closed_keeper_starts_no_other_zygote(tmp_path: Path, mark: str) -> None:
    others = process_tree.children()
    warm = WarmZygote(tmp_path, sys.path, {MARK: mark}, SystemClock())
    warm.start()
    keeping = asyncio.create_task(warm.keep())
    await warm.preload(())
    await warm.close()
    async with asyncio.timeout(10.0):
        await keeping
    assert process_tree.children() == others


SMALL_BYTES = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A folder on a file system of 1 MiB, and True; where none can be mounted, a folder, and False."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", disk]
    mounted = subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
    try:
        yield disk, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", disk], check=True)


def saves_much(ctx: Any, times: int, limited: bool) -> float:
    """A training function with a state larger than the disk."""
    import resource
    import signal

    import numpy

    if limited:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))
    for step in range(1, times + 1):
        ctx.checkpoint.save(step, x=numpy.zeros(2 * SMALL_BYTES, "uint8"))
        try:
            ctx.checkpoint.wait()
        except OSError as error:
            print(error)
    return 1.0


FULL = r"state cannot be written to .*(No space left on device|File too large).*"


async def test_a_full_disk_is_reported_for_each_checkpoint_and_does_not_end_training(
    small_disk: tuple[Path, bool], mark: str
) -> None:
    disk, mounted = small_disk
    async with attended(disk, mark) as hall:
        await hall.prepare("run", saves_much)
        member = hall.start("run", params={"times": 5, "limited": not mounted})
        assert (await hall.ended_member(member)).outcome.metrics == {"result": 1.0}
        sent = [each for each in hall.heard if isinstance(each, m.CheckpointFailed)]
    assert [(each.member, each.step) for each in sent] == [(member, step) for step in range(1, 6)]
    for each in sent:
        assert re.fullmatch(rf"{FULL} \(host {socket.gethostname()}\)", each.problem), each.problem


async def test_a_host_that_saves_nothing_for_too_long_loses_the_member(
    small_disk: tuple[Path, bool], mark: str
) -> None:
    disk, mounted = small_disk
    async with attended(disk, mark, limits=MemberLimits(unsaved_s=0.0)) as hall:
        await hall.prepare("run", saves_much)
        failure = await hall.failure(hall.start("run", params={"times": 1000, "limited": not mounted}))
    assert failure.kind is FailureKind.LOST, "CHECKPOINT is for one that cannot be read"
    cause = rf"nothing could be saved on host {socket.gethostname()} for 0 s \(step 1: {FULL}\)$"
    assert re.match(cause, failure.summary), failure.summary
