"""Both sides of a transport under test: samples of all messages, and a coordinator that hands its links to the test."""

import asyncio
import gc
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.gang_options import MemberKeywords
from sparktrain.config.gang_spec import Role
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol import certificates, codec
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.protocol.grpc import GrpcDialer, GrpcListener
from sparktrain.protocol.grpc_without_fork_handlers import aio, grpc
from sparktrain.protocol.messages import (
    AckCheckpoint,
    Advise,
    AgentLeaves,
    AnswerMember,
    AskHeartbeat,
    AskSnapshot,
    Certificates,
    CheckpointFailed,
    CheckpointStored,
    Code,
    CommitParts,
    Depart,
    Dismiss,
    FeedEnded,
    ForgetSnapshot,
    GiveUpPart,
    Heartbeat,
    HeartbeatAck,
    Join,
    Judged,
    Leave,
    MemberAdopted,
    MemberAsked,
    MemberAwaits,
    MemberDoubts,
    MemberEnded,
    MemberFeed,
    MemberReported,
    MemberShared,
    MemberStands,
    MemberStarted,
    MemberStepped,
    MemberStored,
    Message,
    NoticeUnreadable,
    PartStored,
    PeerShared,
    Prepare,
    Ready,
    Refuse,
    RenameMember,
    Seating,
    SnapshotHeld,
    Standing,
    StartMember,
    StopMember,
    Tokens,
    UploadDone,
    UploadHeader,
    Welcome,
)
from sparktrain.protocol.pipe_messages import FeedOver, FeedPhase
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import CHUNK_BYTES, Dialer, Limits, Link, Listener, OnLink, OnUpload
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import Shard, StoredPart
from sparktrain.state.gangs.memory_parts import PartSend, PartTransfers
from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.state.memory_snapshots import MemoryBase
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.state.topology import MemberAddress
from tests.support.member_calls import member_call

_ATTEND = f"/sparktrain.v{codec.VERSION}.Coordinator/Attend"
_UPLOAD = f"/sparktrain.v{codec.VERSION}.Coordinator/Upload"

MEMBER = Member(RunId("mnist"), TrialId(7), Generation(2), Rank(1))
JOIN = Join(
    agent=AgentId("a-1"),
    slot=3,
    host="host-1",
    pid=4711,
    versions={"python": "3.11", "keras": "3.15"},
    devices=("0", "1"),
)
WELCOME = Welcome(heartbeat_s=2.0, lease_s=30.0, preload=("tensorflow", "keras"))
HEADER = UploadHeader(agent=AgentId("a-1"), member=MEMBER, name="logs/events.out")
CHECKPOINT = Checkpoint(Generation(2), 40, "mnist/trials/0007/checkpoints/gen-0002/manifest-00000040", "00ff", 3, 0.5)
PART = StoredPart("a" * 32, (Shard("part-0001-00000.safetensors", 80, "0" * 64),))
FAILURE = Failure(FailureKind.EXCEPTION, "ValueError: über", "Traceback ...\n", ("line 1", "\x1b[31mline 2\x00"))
START = StartMember(
    member=MEMBER,
    call=member_call(
        params={"lr": 0.1, "layers": [1, 2], "name": "ü", "on": True, "none": None},
        seed=2**63,
        metric="loss",
        options=MemberKeywords(log_limit=10, healing=True),
        size=4,
        backend=Backend.HOROVOD,
        servers=ServerKeys(
            ServerSettings(ServerMode.SYNC, 3, 1),
            CertificateBundle(b"a", b"\x00", b"k"),
            CertificateBundle(b"a", b"c", b"\xff"),
        ),
    ),
    store=StoreAddress("hdfs://lab/runs", {"dfs.nameservices": "lab"}),
    checkpoint=CHECKPOINT,
    memory=MemoryBase(Generation(3), 30, "0" * 64, PartTransfers((PartSend(1, 0),), (0, 1), True)),
)

FROM_AGENT: tuple[Message, ...] = (
    JOIN,
    Ready(run=MEMBER.run, failed_imports={"horovod": "No module named 'horovod'"}),
    Heartbeat(),
    MemberStands(member=MEMBER, standing=Standing(port=4000, heals=True, moves=True, ring=2, step=41)),
    MemberShared(member=MEMBER, key="global/1", value=b"\x00\xff"),
    MemberStarted(member=MEMBER, pid=99),
    MemberStepped(member=MEMBER, step=5, steps_per_s=2.5, training=False, times=StepTimes(0.1, 0.02, 0.003, 20)),
    MemberAsked(member=MEMBER, number=2, question=b'{"kind": "start"}'),
    MemberAwaits(member=MEMBER, feed="train", waiting=True),
    MemberDoubts(member=MEMBER, ranks=(Rank(1), Rank(2))),
    CheckpointStored(member=MEMBER, checkpoint=CHECKPOINT),
    CheckpointFailed(member=MEMBER, step=20, problem="the store is full", part=True, returned=True),
    PartStored(member=MEMBER, step=20, part=PART),
    SnapshotHeld(member=MEMBER, step=20, checksum="0" * 64, paused=True),
    MemberReported(member=MEMBER, reports=(Report(1, {"loss": 0.5}), Report(2, {"loss": float("inf")}))),
    MemberEnded(member=MEMBER, outcome=Outcome(1.5, {"accuracy": 0.25})),
    MemberEnded(member=MEMBER, outcome=Outcome(1.5, failure=FAILURE)),
    MemberFeed(member=MEMBER, news=FeedPhase("train", 1, "flowing")),
    MemberStored(member=MEMBER),
    AgentLeaves(notice="SIGTERM", within_s=30.0),
    NoticeUnreadable(address="/run/leaving", looks=10, problem="/run/leaving: Permission denied"),
    Leave(reason="the pool is closed"),
)
"""Every message of an agent, in an order that is allowed."""

TO_AGENT: tuple[Message, ...] = (
    WELCOME,
    HeartbeatAck(settled=3),
    Depart(notice="Spark decommissions executor 3"),
    Prepare(run=MEMBER.run, code=Code("00ff", b"\x80\x04K\x01.", archive=b"PK"), preload=("sklearn",)),
    START,
    Seating(member=MEMBER, ring=3, places=(MemberAddress("host-1", "10.0.0.1", 4000, Role.CHIEF),), moving=Rank(1)),
    PeerShared(member=MEMBER, key="global/0", value=b"\x00"),
    AckCheckpoint(member=MEMBER, checkpoint=CHECKPOINT),
    CommitParts(member=MEMBER, step=20, parts=(PART, PART)),
    GiveUpPart(member=MEMBER, step=20, problem="the store is full"),
    StopMember(member=MEMBER, grace_s=5.0),
    ForgetSnapshot(member=MEMBER),
    Advise(member=MEMBER),
    AskHeartbeat(),
    AskSnapshot(member=MEMBER),
    RenameMember(member=MEMBER, successor=MEMBER),
    Judged(member=MEMBER, step=8, next=26, stops=True),
    AnswerMember(member=MEMBER, number=2, answer=b"0.5", problem="ValueError: it is wrong"),
    MemberAdopted(member=MEMBER),
    FeedEnded(member=MEMBER, over=FeedOver("train", 1, "its job failed")),
    Dismiss(reason="the pool is closed"),
    Tokens(b"HDTS\x00\x01"),
    Certificates(CertificateBundle(b"-----BEGIN", b"-----BEGIN", b"-----BEGIN")),
    Refuse(reason="it broke a rule"),
)
"""Every message of the coordinator, in an order that is allowed."""


class TransportHarness(ABC):
    """How the suite makes the two sides of a transport."""

    @abstractmethod
    def listener(self, limits: Limits) -> Listener:
        """A new listener, not started."""

    @abstractmethod
    def dialer(self, address: tuple[str, int], limits: Limits) -> Dialer:
        """A new agent's side for the listener that was made last, bound to `address`."""

    @abstractmethod
    async def vanish(self, dialer: Dialer) -> None:
        """End the dialer's connection without a word, as when its process is killed."""


class GrpcHarness(TransportHarness):
    """Both sides on the loopback interface, with certificates of one run."""

    def __init__(self, handshake_s: float = 5, dead_after_s: float = 30) -> None:
        self.certificates: certificates.RunCertificates = issue("contract")
        self.handshake_s = handshake_s
        self.dead_after_s = dead_after_s

    def listener(self, limits: Limits) -> Listener:
        """See base class."""
        server = self.certificates.server
        return GrpcListener("127.0.0.1", (0,), server, limits, self.dead_after_s, self.handshake_s)

    def dialer(self, address: tuple[str, int], limits: Limits) -> Dialer:
        """See base class."""
        return GrpcDialer(self.ticket(address), limits, self.dead_after_s)

    def ticket(self, address: tuple[str, int], *hosts: str) -> AgentTicket:
        """An agent's ticket for `address`, or for its port at each of `hosts`."""
        host, port = address
        return AgentTicket("contract", hosts or (host,), port, self.certificates.agent)

    async def vanish(self, dialer: Dialer) -> None:
        """See base class."""
        assert isinstance(dialer, GrpcDialer)
        assert dialer._link
        for call in (*dialer._calls, dialer._link._stream):
            call.cancel()
        await dialer._channel.close()


class Rogue:
    """A peer that holds a certificate, and sends what it likes. To be used as a context."""

    def __init__(self, port: int, bundle: CertificateBundle) -> None:
        credentials = grpc.ssl_channel_credentials(bundle.authority, bundle.key, bundle.certificate)
        options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.max_receive_message_length", -1)]
        self.channel: Any = aio.secure_channel(f"127.0.0.1:{port}", credentials, options)

    async def __aenter__(self) -> "Rogue":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def attend(self, *frames: bytes) -> Any:
        """Open a link and send `frames`, as far as the coordinator takes them."""
        return await self._send(self.channel.stream_stream(_ATTEND)(), frames)

    async def upload(self, *frames: bytes) -> Any:
        """Send an upload and no end of the file."""
        return await self._send(self.channel.stream_stream(_UPLOAD)(), frames)

    async def _send(self, call: Any, frames: tuple[bytes, ...]) -> Any:
        try:
            for frame in frames:
                await call.write(frame)
        except (aio.AioRpcError, aio.BaseError, ValueError, RuntimeError):
            pass
        return call


class Stage:
    """A coordinator that hands its links to the test, and closes its agents at the end."""

    def __init__(self, harness: TransportHarness, limits: Limits | None = None) -> None:
        self.harness = harness
        self.limits = limits or Limits()
        self.listener = harness.listener(self.limits)
        self.address = ("", 0)
        self.accepted = asyncio.Queue[Link]()
        self.files: dict[str, str] = {}
        self.on_link: OnLink = self.lend
        self.stories: list[dict[str, Any]] = []
        """What was reported to the loop's exception handler; none is expected."""
        self.on_upload: OnUpload = self.store
        self.dialers: list[Dialer] = []
        self._over = asyncio.Event()

    async def lend(self, link: Link) -> None:
        """Give the link to the test until the end."""
        self.accepted.put_nowait(link)
        await self._over.wait()

    async def store(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """Keep a file's digest."""
        digest, size = hashlib.sha256(), 0
        async for chunk in chunks:
            assert 0 < len(chunk) <= CHUNK_BYTES
            digest.update(chunk)
            size += len(chunk)
        self.files[header.name] = digest.hexdigest()
        return UploadDone(size)

    async def lead(self, link: Link) -> None:
        """Call what `on_link` is now."""
        await self.on_link(link)

    async def take(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """Call what `on_upload` is now."""
        return await self.on_upload(header, chunks)

    def hear_story(self, _: asyncio.AbstractEventLoop, story: dict[str, Any]) -> None:
        """Keep what the loop's exception handler gets."""
        # gRPC reports calls that were cancelled in a loop that is closed by now to the loop that comes after it.
        if "PollerCompletionQueue" not in story["message"]:
            self.stories.append(story)

    def dialer(self) -> Dialer:
        """A new agent's side."""
        dialer = self.harness.dialer(self.address, self.limits)
        self.dialers.append(dialer)
        return dialer

    async def pair(self) -> tuple[Link, Link]:
        """Both sides of a new link after the greeting: the agent's, the coordinator's."""
        agent = await self.dialer().attend(10)
        here = await self.accepted.get()
        agent.post(JOIN)
        assert await here.receive() == JOIN
        here.post(WELCOME)
        assert await agent.receive() == WELCOME
        return agent, here

    async def end(self) -> None:
        """Close all."""
        self._over.set()
        await asyncio.gather(*(dialer.close() for dialer in self.dialers))
        await self.listener.close(2)


@asynccontextmanager
async def stage(harness: TransportHarness, limits: Limits | None = None) -> AsyncIterator[Stage]:
    """A started coordinator. Raises AssertionError when a task of the scene failed and nothing awaited it."""
    # The collection at the end then looks at what the scene made, and not at all that is imported. Nothing is unfrozen:
    # that would hand all parsed sources back to the collector, which costs the process 10 s until it ends.
    gc.freeze()
    scene = Stage(harness, limits)
    asyncio.get_running_loop().set_exception_handler(scene.hear_story)
    scene.address = await scene.listener.start(scene.lead, scene.take)
    try:
        yield scene
    finally:
        await scene.end()
    gc.collect()  # errors that nothing awaited are reported when they are collected
    assert scene.stories == [], scene.stories


async def beat(agent: Link, coordinator: Link) -> None:
    """One message there and one back."""
    agent.post(Heartbeat())
    assert await coordinator.receive() == Heartbeat()
    coordinator.post(HeartbeatAck())
    assert await agent.receive() == HeartbeatAck()


async def receive_all(link: Link, count: int) -> list[Message]:
    """The next `count` messages."""
    return [await link.receive() for _ in range(count)]


async def chunks_of(*chunks: bytes) -> AsyncIterator[bytes]:
    """`chunks` one by one."""
    for chunk in chunks:
        yield chunk


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def reports(size: int) -> MemberReported:
    """A message of about `size` bytes."""
    return MemberReported(MEMBER, (Report(1, {"x" * size: 1.0}),))


async def many(count: int) -> AsyncIterator[bytes]:
    """`count` chunks of the largest size."""
    for _ in range(count):
        yield bytes(CHUNK_BYTES)


async def endless() -> AsyncIterator[bytes]:
    """One chunk, and no end."""
    yield b"first"
    await asyncio.get_running_loop().create_future()


async def broken(began: asyncio.Event) -> AsyncIterator[bytes]:
    """One chunk, and an error once it has come: gRPC does not report a call that ended before it was accepted."""
    yield b"first"
    await began.wait()
    raise ZeroDivisionError("on purpose")


@pytest.mark.asyncio
@pytest.mark.timeout(60)
class ContractBase:
    """What every part of the suite has."""

    @pytest.fixture
    def harness(self) -> TransportHarness:
        """The transport under test."""
        raise NotImplementedError
