"""What agents upload of their members, in the run directory."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.uploads import Uploads
from sparktrain.errors import ProtocolError
from sparktrain.protocol import messages as m
from sparktrain.protocol.transport import LinkClosedError
from sparktrain.rundir.event_files import segment
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store
from sparktrain.store.url import open_store

AGENT = AgentId("agent")
MEMBER = Member(RunId("run"), TrialId(0), Generation(1))
FOLDER = "run/trials/0000/generation-1/rank-0"


async def sent(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def parcel(**sizes: int) -> m.UploadHeader:
    return m.UploadHeader(AGENT, MEMBER, "", tuple(m.Part(f"files/{name}", size) for name, size in sizes.items()))


@pytest.fixture
def store() -> Store:
    return open_store(StoreAddress(f"memory://{uuid4().hex}"))


@pytest.fixture
def uploads(store: Store) -> Uploads:
    uploads = Uploads(store, RunLayout("run"), lambda agent: True, SystemClock())
    uploads.expect(AGENT, MEMBER)
    return uploads


async def test_files_that_come_together_are_files_of_their_own(uploads: Uploads, store: Store) -> None:
    done = await uploads.receive(parcel(a=3, b=0, c=4), sent(b"on", b"efo", b"ur"))
    assert done == m.UploadDone(7)
    assert {path: store.read(path) for path in store.list("run")} == {
        f"{FOLDER}/files/a": b"one",
        f"{FOLDER}/files/b": b"",
        f"{FOLDER}/files/c": b"four",
    }


async def test_a_member_that_is_adopted_uploads_its_files_again(uploads: Uploads, store: Store) -> None:
    other = AgentId("other")
    before = {f"{FOLDER}/log.txt": b"the first", f"{FOLDER}/files/a": b"old", segment(f"{FOLDER}/files/e", 0): b"0"}
    for path, content in before.items():
        store.put_if_absent(path, content)
    uploads.adopt(other, MEMBER)
    headers = [
        (m.UploadHeader(other, MEMBER, "log.txt"), b"the first line"),
        (m.UploadHeader(other, MEMBER, "", (m.Part("files/a", 3),)), b"new"),
        (m.UploadHeader(other, MEMBER, "files/e", grows=True), b"all"),
    ]
    for header, content in headers:
        done = await uploads.receive(header, sent(content))
        assert done == m.UploadDone(len(content))
    assert {path: store.read(path) for path in store.list("run")} == {
        f"{FOLDER}/log.txt": b"the first line",
        f"{FOLDER}/files/a": b"new",
        f"{FOLDER}/files/e": b"all",
    }
    with pytest.raises(ProtocolError):
        await uploads.receive(m.UploadHeader(AGENT, MEMBER, "log.txt"), sent(b"late"))


async def test_a_file_that_cannot_be_written_keeps_no_other_one_back(uploads: Uploads, store: Store) -> None:
    store.put_if_absent(f"{FOLDER}/files/there", b"before")
    parts = [m.Part(name, 1) for name in ("files/back\\slash", "../away", "files/there", "files/good")]
    done = await uploads.receive(m.UploadHeader(AGENT, MEMBER, "", tuple(parts)), sent(b"abcd"))
    assert [problem.partition(":")[0] for problem in done.refused] == ["files/back\\slash", "../away", "files/there"]
    assert store.list("run") == [f"{FOLDER}/files/good", f"{FOLDER}/files/there"]
    assert store.read(f"{FOLDER}/files/good") == b"d"
    assert store.read(f"{FOLDER}/files/there") == b"before"


@pytest.mark.parametrize(
    ("header", "content"),
    [
        (parcel(a=3), b"ab"),
        (parcel(a=3), b"abcd"),
        (parcel(a=-1, b=2), b"a"),
        (parcel(a=m.PARCEL_BYTES + 1), bytes(m.PARCEL_BYTES + 1)),
        (parcel(**{f"f{number}": 0 for number in range(m.PARCEL_FILES + 1)}), b""),
        (m.UploadHeader(AgentId("other"), MEMBER, "", (m.Part("files/a", 1),)), b"a"),
    ],
)
async def test_what_is_not_as_it_was_announced_is_refused_whole(
    uploads: Uploads, store: Store, header: m.UploadHeader, content: bytes
) -> None:
    with pytest.raises(ProtocolError):
        await uploads.receive(header, sent(content))
    assert store.list() == []


async def test_a_file_that_grows_is_seen_before_its_end(uploads: Uploads, store: Store) -> None:
    name, seen = "files/events.out.tfevents.1.host", []

    async def growing() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"
        seen.extend(store.list("run"))

    done = await uploads.receive(m.UploadHeader(AGENT, MEMBER, name, grows=True), growing())
    assert done == m.UploadDone(6)
    assert seen == [f"{FOLDER}/growing/events.out.tfevents.1.host/000000000000"]
    assert {path: store.read(path) for path in store.list("run")} == {f"{FOLDER}/{name}": b"onetwo"}


async def test_a_file_that_is_cut_off_keeps_what_has_come(uploads: Uploads, store: Store) -> None:
    name = "files/events.out.tfevents.1.host"

    async def cut() -> AsyncIterator[bytes]:
        yield b"one"
        raise LinkClosedError("the agent is lost")

    with pytest.raises(LinkClosedError):
        await uploads.receive(m.UploadHeader(AGENT, MEMBER, name, grows=True), cut())
    assert store.read(f"{FOLDER}/{name}") == b"one"
