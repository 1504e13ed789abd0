"""Every message between the coordinator and agents: frozen, validated when decoded, tagged with its type.

    coordinator <-- FromAgent -- agent
    coordinator --- ToAgent ---> agent

A message about training carries its `Member`, and so its generation; an agent's own messages come on the stream that
its `Join` opened, and an `AgentId` lives only once.
"""

from msgspec import Struct

from sparktrain.base.ids import AgentId, Member, RunId, SparkTask
from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.member_call import MemberCall
from sparktrain.protocol.pipe_messages import FeedOver, FeedPhase
from sparktrain.state.agent_messages import (
    AckCheckpoint,
    Advise,
    AgentLeaves,
    AnswerMember,
    AskHeartbeat,
    AskSnapshot,
    CheckpointFailed,
    CheckpointStored,
    CommitParts,
    ForgetSnapshot,
    GiveUpPart,
    Heartbeat,
    HeldMember,
    Judged,
    MemberAsked,
    MemberAwaits,
    MemberDoubts,
    MemberEnded,
    MemberMessage,
    MemberReported,
    MemberShared,
    MemberStands,
    MemberStarted,
    MemberStepped,
    PartStored,
    PeerShared,
    Ready,
    RenameMember,
    Seating,
    SnapshotHeld,
    Standing,
    StateInput,
    StateOutput,
    StopMember,
)
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.memory_snapshots import MemoryBase
from sparktrain.state.message import Large, Message, Small

__all__ = [
    "PARCEL_BYTES",
    "PARCEL_FILES",
    "AckCheckpoint",
    "Advise",
    "AgentAbsence",
    "AgentLeaves",
    "AnswerMember",
    "AskHeartbeat",
    "AskSnapshot",
    "Certificates",
    "CheckpointFailed",
    "CheckpointStored",
    "Code",
    "CommitParts",
    "Depart",
    "Dismiss",
    "FeedEnded",
    "ForgetSnapshot",
    "FromAgent",
    "GiveUpPart",
    "Heartbeat",
    "HeartbeatAck",
    "HeldMember",
    "Join",
    "Judged",
    "Leave",
    "MemberAdopted",
    "MemberAsked",
    "MemberAwaits",
    "MemberDoubts",
    "MemberEnded",
    "MemberFeed",
    "MemberMessage",
    "MemberReported",
    "MemberShared",
    "MemberStands",
    "MemberStarted",
    "MemberStepped",
    "MemberStored",
    "Message",
    "NoticeUnreadable",
    "Part",
    "PartStored",
    "PeerShared",
    "Prepare",
    "Ready",
    "Refuse",
    "RenameMember",
    "Seating",
    "SnapshotHeld",
    "Standing",
    "StartMember",
    "StopMember",
    "ToAgent",
    "Tokens",
    "UploadDone",
    "UploadHeader",
    "Welcome",
]


# ---- agent -> coordinator


class AgentAbsence(Struct, frozen=True):
    """The time between two lives of an agent; without a reason for a fresh one."""

    reason: str = ""
    """Why and for how long it was gone."""
    held: HeldMember | None = None
    """The member that it has held since its coordinator was lost. It continues once a `MemberAdopted` comes."""


class Join(Small, frozen=True, tag=True, kw_only=True):
    """First message on an agent's stream; `task` is None outside of Spark."""

    agent: AgentId
    slot: int
    """Partition of the agents' Spark job, from 0; a restarted agent has the slot of the one before it."""
    host: str
    """In a pod the node, where its template names it; else the pod, and the driver looks for its node."""
    pid: int
    versions: dict[str, str]
    """Versions of `python`, `sparktrain` and, where installed, of frameworks; `KERAS_BACKEND` where that is set."""
    devices: tuple[str, ...] = ()
    """GPUs that Spark gave to this task, by names that differ between all GPUs of the host."""
    executor: int = 0
    """The process on the host that all agents of one executor come from."""
    address: str = "127.0.0.1"
    """IP address of this host, or of the pod, which the other agents reach."""
    task: SparkTask | None = None
    away: AgentAbsence = AgentAbsence()
    """Of an agent that rejoins."""
    device_mib: tuple[int, ...] = ()
    """MiB of memory of each of `devices`; 0 where that is unknown."""
    batch: int = 0
    """See `AgentTicket.batch`."""


class MemberStored(Large, frozen=True, tag=True):
    """Log, metrics and files of an ended member are uploaded, as far as possible."""

    member: Member
    problem: str = ""
    """What could not be uploaded, and why."""


class MemberFeed(Small, frozen=True, tag=True):
    """Where a member is with an epoch of a stream."""

    member: Member
    news: FeedPhase


class NoticeUnreadable(Small, frozen=True, tag=True):
    """A file or URL of `Prepare.notices` cannot be read. Sent for the first failed look, the 10th, the 100th..."""

    address: str
    looks: int
    """Looks that have failed until now."""
    problem: str


class Leave(Small, frozen=True, tag=True):
    """Last message of an agent that leaves by itself."""

    reason: str


FromAgent = Join | MemberStored | MemberFeed | NoticeUnreadable | Leave | StateInput


PARCEL_FILES = 128
PARCEL_BYTES = 2**20
"""Limits of the number of small files in one upload, and of their total size."""


class Part(Struct, frozen=True):
    """One of the files in an upload of several."""

    name: str
    size_bytes: int


class UploadHeader(Message, frozen=True, tag=True):
    """First message of an upload stream; the file's bytes follow in chunks, then the stream is half-closed."""

    agent: AgentId
    member: Member
    name: str
    """Path of the file relative to the member's directory, with `/`; checked by the coordinator."""
    parts: tuple[Part, ...] = ()
    """Small files that follow each other in the stream, in place of the one with `name`; each has a `name` as above."""
    grows: bool = False
    """The member still appends to the file: its readers see it grow."""


class UploadDone(Message, frozen=True, tag=True):
    """The coordinator's answer at the end of an upload stream."""

    size_bytes: int
    refused: tuple[str, ...] = ()
    """Files that were not stored, and why; the others were."""


# ---- coordinator -> agent


class Welcome(Message, frozen=True, tag=True):
    """Answer to `Join`: the agent belongs to the pool."""

    heartbeat_s: float
    """Interval of `Heartbeat`."""
    lease_s: float
    """The agent ends its member and its stream so long after it sent the last answered `Heartbeat`."""
    preload: tuple[str, ...]
    """Modules that the zygote imports before its first fork."""


class Refuse(Message, frozen=True, tag=True):
    """Answer to `Join`, or the end of an agent that broke a rule: the agent leaves and does not rejoin."""

    reason: str


class HeartbeatAck(Message, frozen=True, tag=True):
    """Answer to `Heartbeat`."""

    settled: int = 0
    """So many of the messages about members on this stream are settled: no loss of this coordinator undoes what
    followed from them, and the agent need not send them to the next one."""


class Code(Message, frozen=True, tag=True):
    """The user's code. Agents write it to local files unread; only a member's process unpickles or imports it."""

    digest: str
    """SHA-256 of `function` and `archive`, hexadecimal; the agent verifies it."""
    function: bytes
    """The function as pickled by cloudpickle, or `package.module:function` in UTF-8 when `by_reference`."""
    by_reference: bool = False
    archive: bytes = b""
    """Zip of modules to put on the member's `sys.path`; may be empty."""


class Prepare(Message, frozen=True, tag=True):
    """A run starts: keep its code, and have the zygote import `preload` too. Answered by `Ready`."""

    run: RunId
    code: Code
    preload: tuple[str, ...]
    notices: tuple[str, ...] = ()
    """Files and URLs at which the agent looks for the notice that its host will be lost, of all runs that are on. It
    looks at no others any more."""


class StartMember(Message, frozen=True, tag=True, kw_only=True):
    """Run the training function once, in a process of its own. The agent must be idle and prepared for the run."""

    member: Member
    call: MemberCall
    store: StoreAddress = StoreAddress("")
    checkpoint: Checkpoint | None = None
    """To resume from."""
    memory: MemoryBase | None = None
    """The snapshot in memory to resume from, in place of the checkpoint."""


class MemberAdopted(Message, frozen=True, tag=True):
    """The member that the agent has held continues: send what no coordinator has settled, and what comes next."""

    member: Member


class FeedEnded(Message, frozen=True, tag=True):
    """The job that fed an epoch of a stream has ended: the member gets no more rows of it."""

    member: Member
    over: FeedOver


class Dismiss(Message, frozen=True, tag=True):
    """The pool closes: end the member at once, leave, and let the Spark task finish."""

    reason: str


class Depart(Message, frozen=True, tag=True):
    """The cluster is about to take the agent away: end as soon as it has no member, so that Spark starts another one.

    Answered by `AgentLeaves`.
    """

    notice: str


class Tokens(Message, frozen=True, tag=True):
    """Delegation tokens with which the agent uses the store, in place of earlier ones.

    A secret: sent over the agents' encrypted streams only, never shown or logged.
    """

    content: bytes
    """Content of a token file as Hadoop writes it."""

    def __repr__(self) -> str:
        return f"Tokens({len(self.content)} bytes)"


class Certificates(Message, frozen=True, tag=True):
    """Certificates for the agent's next connections, in place of earlier ones. A secret, as `Tokens`."""

    bundle: CertificateBundle


ToAgent = (
    Welcome
    | Refuse
    | HeartbeatAck
    | Prepare
    | StartMember
    | MemberAdopted
    | Dismiss
    | Depart
    | Tokens
    | Certificates
    | FeedEnded
    | StateOutput
)
