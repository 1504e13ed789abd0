"""Event files of a member, uploaded while it appends to them."""

import asyncio
import os
from pathlib import Path

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.executor import live_events
from sparktrain.executor.live_events import LiveEvents
from sparktrain.executor.upload_queue import Chunks, Storing, Uploader
from sparktrain.protocol import messages as m

MEMBER = Member(RunId("run"), TrialId(0), Generation(1))
LOOK_S = 0.01


class Received(Uploader):
    """In place of a workbench: what has arrived of each file, while uploads last."""

    def __init__(self) -> None:
        self.growing: dict[str, bytes] = {}
        self.whole: list[str] = []
        self.news = asyncio.Event()

    async def upload(self, header: m.UploadHeader, chunks: Chunks) -> m.UploadDone:
        if not header.grows:
            self.whole += [part.name for part in header.parts] or [header.name]
        async for chunk in chunks():
            if header.grows:
                self.growing[header.name] = self.growing.get(header.name, b"") + chunk
                self.news.set()
        return m.UploadDone(0)

    async def until(self, name: str, content: bytes) -> None:
        """Wait until this has arrived of a file that grows."""
        async with asyncio.timeout(20):
            while self.growing.get(name) != content:
                self.news.clear()
                await self.news.wait()


class Live:
    """A member that runs, and the uploads of its events."""

    def __init__(self, home: Path) -> None:
        (home / "files" / "train").mkdir(parents=True)
        self.files = home / "files"
        self.over = asyncio.Event()
        self.received = Received()
        self.storing = Storing(AgentId("agent"), MEMBER, home, self.received)
        self.follow = LiveEvents(self.storing, home, self.over, LOOK_S).follow()

    async def end(self, following: "asyncio.Task[None]") -> None:
        """End the member, and upload the rest of its files."""
        self.over.set()
        await following
        await self.storing.bring_all()


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


async def test_what_is_appended_arrives_while_the_member_runs(tmp_path: Path) -> None:
    live, name = Live(tmp_path), "files/train/events.out.tfevents.1.host"
    following = asyncio.create_task(live.follow)
    append(tmp_path / name, b"one")
    await live.received.until(name, b"one")
    append(tmp_path / name, b"two")
    await live.received.until(name, b"onetwo")
    append(tmp_path / name, b"three")
    append(live.files / "image.png", b"no event")
    await live.end(following)
    assert live.received.growing == {name: b"onetwothree"}
    assert live.received.whole == ["files/image.png"], "events are not uploaded twice"
    assert live.storing.problem == ""


async def test_events_of_a_short_member_come_with_its_other_files(tmp_path: Path) -> None:
    live = Live(tmp_path)
    append(live.files / "events.out.tfevents.1.host", b"one")
    live.over.set()
    await live.end(asyncio.create_task(live.follow))
    assert (live.received.growing, live.received.whole) == ({}, ["files/events.out.tfevents.1.host"])


async def test_a_file_in_place_of_another_is_a_problem(tmp_path: Path) -> None:
    live, name = Live(tmp_path), "files/events.out.tfevents.1.host"
    following = asyncio.create_task(live.follow)
    append(tmp_path / name, b"one")
    await live.received.until(name, b"one")
    append(live.files / "new", b"another")
    os.replace(live.files / "new", tmp_path / name)
    await live.end(following)
    assert live.storing.problem == (f"{name}: another file has replaced it while it was uploaded, and is not stored")


async def test_a_file_that_the_function_removes_is_none(tmp_path: Path) -> None:
    live, name = Live(tmp_path), "files/events.out.tfevents.1.host"
    following = asyncio.create_task(live.follow)
    append(tmp_path / name, b"one")
    await live.received.until(name, b"one")
    (tmp_path / name).unlink()
    await live.end(following)
    assert (live.received.growing, live.storing.problem) == ({name: b"one"}, "")


async def test_many_files_are_not_all_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "AT_ONCE", 1)
    live = Live(tmp_path)
    names = [f"files/events.out.tfevents.{number}.host" for number in range(3)]
    for name in names:
        append(tmp_path / name, b"one")
    following = asyncio.create_task(live.follow)
    await live.received.until(names[0], b"one")
    await live.end(following)
    assert (list(live.received.growing), live.received.whole) == (names[:1], names[1:])
