"""Every message between an agent and the processes that it starts, over private socket pairs.

agent <-- FromZygote -- zygote                          over the socket pair that the zygote was started with
agent --- ToZygote ---> zygote
agent <-- FromMember -- member, forked by the zygote    over the socket pair made for its fork
agent --- ToMember ---> member
"""

from typing import ClassVar, Literal

from msgspec import Struct

from sparktrain.base.ids import Member
from sparktrain.protocol.feed_messages import FeedAddress
from sparktrain.protocol.member_call import MemberCall
from sparktrain.state.agent_messages import (
    Advise,
    AnswerMember,
    AskSnapshot,
    Judged,
    PeerShared,
    Seating,
    Standing,
)
from sparktrain.state.gangs.memory_parts import WHOLE, Layout, PartTransfers
from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.state.message import LARGE_BYTES, Message
from sparktrain.state.outcome import Outcome, Report

# ---- agent <-> zygote


class SetPaths(Message, frozen=True, tag=True):
    """First message: where the zygote finds modules."""

    sys_path: tuple[str, ...]
    pythonpath: str | None
    """The agent's `PYTHONPATH`; the zygote's own only served to find sparktrain."""


class Preload(Message, frozen=True, tag=True):
    """Import these modules now. Answered by `Preloaded`."""

    modules: tuple[str, ...]


class Fork(Message, frozen=True, tag=True):
    """Fork one child that waits for its `Assignment`. Answered by `Forked`."""


class Kill(Message, frozen=True, tag=True):
    """End child `pid` and its process group: SIGTERM, and SIGKILL `grace_s` later. `Exited` follows."""

    pid: int
    grace_s: float


ToZygote = SetPaths | Preload | Fork | Kill


class Preloaded(Message, frozen=True, tag=True):
    """All modules have been tried; `failed` has the reasons of those that raised."""

    failed: dict[str, str]


class Forked(Message, frozen=True, tag=True):
    """A child waits; the agent's end of its socket pair is sent beside this message (SCM_RIGHTS)."""

    pid: int


class Exited(Message, frozen=True, tag=True):
    """Child `pid` and every process that it left behind are gone."""

    pid: int
    status: int
    """As of `os.waitstatus_to_exitcode`: the exit code, or minus the signal's number."""
    peak_rss_bytes: int
    orphans: int
    """Number of processes that the child left behind; they are ended now."""
    memory_kills: int | None = None
    """How many processes of the host the kernel has ended for lack of memory since the child started; None: unknown."""


FromZygote = Preloaded | Forked | Exited


# ---- agent <-> member


class LocalCode(Struct, frozen=True):
    """The user's code in files of the host, for a member's process."""

    path: str
    """File with `Code.function`."""
    by_reference: bool
    sys_path: tuple[str, ...]
    """Entries to put in front of `sys.path`."""


class Assignment(Message, frozen=True, tag=True, kw_only=True):
    """What a waiting child runs. All paths are local to the executor's host."""

    member: Member
    call: MemberCall
    code: LocalCode
    work_dir: str
    """Empty directory that becomes the working directory."""
    log_dir: str
    """Directory of `ctx.log_dir`; its files are uploaded to the run directory."""
    log_path: str
    """File that takes stdout and stderr."""
    gpus: tuple[str, ...] = ()
    gpu_totals: tuple[int, ...] = ()
    """MiB of each of these GPUs; 0 where that is unknown."""
    address: str = "127.0.0.1"
    """IP address of this host, which the other members reach."""
    restore_dir: str = ""
    """Directory with the verified files of the state to resume from; empty without one, or where rank 0 sends it."""
    memory_dir: str = ""
    """Directory in shared memory for the member's snapshots, its own; empty where there is none."""
    memory_transfers: PartTransfers | None = None
    """What members send of their snapshots in memory: of a whole state when the ring connects, of parts at the first
    restore. In a ring that heals a member that trains sends its state."""

    @property
    def ring(self) -> int:
        """Number of the ring that the member joins first: above 0, the others have trained in those before."""
        return self.call.gang.ring


class SharedValue(Message, frozen=True, tag=True):
    """From its first `Seating` on: a value for the other members of the gang, which get it as `PeerShared`."""

    most_bytes: ClassVar[int] = LARGE_BYTES

    key: str
    value: bytes


class FeedPhase(Message, frozen=True, tag=True):
    """Where this member is with an epoch of a stream. `asked` is answered by `FeedOver` in the end."""

    feed: str
    epoch: int
    phase: Literal["asked", "flowing", "enough"]
    """It wants the rows, has the first ones, or needs no more."""
    address: FeedAddress | None = None
    """Where it listens, with `asked`."""


class FeedOver(Message, frozen=True, tag=True):
    """The job that fed an epoch of a stream has ended, or failed for `problem`."""

    feed: str
    epoch: int
    problem: str = ""


class SamplerAsked(Message, frozen=True, tag=True):
    """A question of the training function for the sampler of its run. Answered by `AnswerMember`."""

    most_bytes: ClassVar[int] = LARGE_BYTES

    number: int
    """Counts the questions of this process from 1."""
    question: bytes


class Entered(Message, frozen=True, tag=True):
    """The function is loaded, and its call starts now. It comes again where `trains` changes."""

    pid: int
    trains: bool = False
    """A worker of a gang with parameter servers that calls the function, and has not joined a server in it."""
    frameworks: tuple[str, ...] = ()
    """The packages of frameworks that the process has imported until now."""


class Reported(Message, frozen=True, tag=True):
    """One call of `ctx.report`."""

    most_bytes: ClassVar[int] = LARGE_BYTES

    report: Report
    judged: bool = False
    """Rules of the run judge it, and the member may wait for that: it is passed on at once."""


class RowsAwaited(Message, frozen=True, tag=True):
    """The member has waited for rows of a stream for some time, or waits no more."""

    feed: str
    waiting: bool


class Stepped(Message, frozen=True, tag=True):
    """Training starts, continues or ends; sent every half second at most."""

    step: int
    """Steps finished so far, those before a restart included."""
    training: bool = True
    """More steps follow: a long silence is a hang."""
    times: StepTimes | None = None
    """Where the newest steps went; None where no ring notes that."""


class Doubts(Message, frozen=True, tag=True):
    """The hosts of other members acknowledge nothing that this one sends: the ring is broken."""

    ranks: list[int]


class Snapshot(Message, frozen=True, tag=True):
    """The chief's state, or this member's part, is written to files, which the agent owns now.

    `SnapshotAnswered` answers; one at a time.
    """

    step: int
    folder: str
    """Local directory; each file in it becomes a shard of the checkpoint."""
    keep: int
    """How many checkpoints of the trial are retained, not counting the best one."""
    score: float | None = None
    """Larger is better; None where checkpoints are not compared."""
    part: bool = False
    """It is a part of a checkpoint that all members of the gang write."""


class MemoryWritten(Message, frozen=True, tag=True):
    """A snapshot of this member's state after `step` is written to shared memory, whole. It replaces the one before.

    The member overwrites no file of it before it has sent the next message of this kind.
    """

    step: int
    folder: str
    """Directory of its files, in `Assignment.memory_dir`."""
    checksum: str
    """Of the directory, see `sparktrain.rundir.folder_checksum`."""
    paused: bool = False
    """It was asked for, and the member trains no step after it."""
    layout: Layout = WHOLE
    parts: tuple[int, ...] = WHOLE
    """See `sparktrain.state.memory_snapshots.MemorySnapshot`."""


class Unsaved(Message, frozen=True, tag=True):
    """The state after `step` could not be written to files of this host: there is no snapshot of it."""

    step: int
    problem: str
    disk: bool = True
    """The local disk failed: a retry on another host may succeed."""
    part: bool = False
    """As of `Snapshot`."""
    returned: bool = False
    """The training function has returned: there is no part of `step`, nor of any later step."""


class SnapshotAnswered(Message, frozen=True, tag=True):
    """The snapshot of `step` is a checkpoint that the coordinator has acknowledged, or was given up for `problem`."""

    step: int
    problem: str = ""


class FunctionEnded(Message, frozen=True, tag=True):
    """The function returned or raised; the process exits next."""

    most_bytes: ClassVar[int] = LARGE_BYTES

    outcome: Outcome
    catches_stops: bool = False
    """It has a handler of SIGTERM: a request to stop may have had it return early."""


ToMember = (
    Assignment | Seating | PeerShared | SnapshotAnswered | Advise | AskSnapshot | Judged | FeedOver | AnswerMember
)
"""Most come from the coordinator, and the agent passes them on."""
FromMember = (
    Standing
    | SharedValue
    | FeedPhase
    | RowsAwaited
    | SamplerAsked
    | Entered
    | Reported
    | Stepped
    | Doubts
    | Snapshot
    | MemoryWritten
    | Unsaved
    | FunctionEnded
)
