"""Every message between two of our processes: frozen, validated when decoded, tagged with its type.

    coordinator <-- FromAgent -- agent <-- FromZygote -- zygote
    coordinator --- ToAgent ---> agent --- ToZygote ---> zygote
                                 agent <-- FromMember -- member (forked by the zygote)
                                 agent --- ToMember ---> member

A message about training carries its `Member`, and so its generation; an agent's own messages come on the stream that
its `Join` opened, and an `AgentId` lives only once.
"""

from typing import Any

from msgspec import Struct

from sparktrain.ids import AgentId, Member, Rank, RunId, SparkTask
from sparktrain.spec.gang import Backend
from sparktrain.spec.store import StoreAddress
from sparktrain.state.checkpoints import Checkpoint
from sparktrain.state.formation import Place
from sparktrain.state.outcome import Outcome, Report


class Message(Struct, frozen=True, tag=True):
    """Base of all messages."""


# ---- agent -> coordinator


class Join(Message, frozen=True, tag=True):
    """First message on an agent's stream; `task` is None outside of Spark."""

    agent: AgentId
    slot: int
    """Partition of the agents' Spark job, from 0; a restarted agent has the slot of the one before it."""
    host: str
    pid: int
    versions: dict[str, str]
    """Versions of `python`, `sparktrain` and, where installed, `tensorflow` and `keras`."""
    devices: tuple[str, ...] = ()
    """GPUs that Spark gave to this task, by names that differ between all GPUs of the host."""
    executor: int = 0
    """The process on the host that all agents of one executor come from."""
    address: str = "127.0.0.1"
    """IP address of this host that the other agents reach."""
    task: SparkTask | None = None


class Ready(Message, frozen=True, tag=True):
    """The zygote has imported what it could; the agent can start a member of `run` at once."""

    run: RunId | None = None
    """The run of the `Prepare` that this answers; None for `Welcome`."""
    failed_imports: dict[str, str] = {}
    """Modules that could not be preloaded, with the reason; no failure, for the user's import reports it better."""


class Beat(Message, frozen=True, tag=True):
    """Sign of life; the coordinator answers with `BeatAck`."""


class MemberReserved(Message, frozen=True, tag=True):
    """The member of a gang has loaded the training function, holds a port, and waits for `FormGang`."""

    member: Member
    port: int


class MemberShared(Message, frozen=True, tag=True):
    """A value that the backend of a forming member has for all other members of its gang."""

    member: Member
    key: str
    value: bytes


class MemberStarted(Message, frozen=True, tag=True):
    """The member's process has entered the training function."""

    member: Member
    pid: int


class MemberStepped(Message, frozen=True, tag=True):
    """A running member has finished training steps."""

    member: Member
    step: int
    """Steps that it has finished, those before a restart included."""
    steps_per_s: float
    """Since its last such message; 0 in the first."""
    training: bool = True
    """More steps are to come: a long silence is a hang."""


class CheckpointWritten(Message, frozen=True, tag=True):
    """The chief's agent has published a checkpoint; it counts once the coordinator has acknowledged it."""

    member: Member
    checkpoint: Checkpoint


class CheckpointFailed(Message, frozen=True, tag=True):
    """What the chief has saved after `step` could not be made a checkpoint."""

    member: Member
    step: int
    problem: str


class MemberReported(Message, frozen=True, tag=True):
    """Reports of a running member, in their order."""

    member: Member
    reports: tuple[Report, ...]


class MemberEnded(Message, frozen=True, tag=True):
    """The member has an outcome. Sent exactly once for each `StartMember`, while the agent's stream lasts.
    The agent may be given another member at once: it starts it when the process of this one is gone.
    """

    member: Member
    outcome: Outcome


class MemberStored(Message, frozen=True, tag=True):
    """Log, metrics and files of an ended member have been uploaded, as far as that was possible."""

    member: Member
    problem: str = ""
    """What could not be uploaded, and why."""


class Leave(Message, frozen=True, tag=True):
    """Last message of an agent that ends by its own will."""

    reason: str


FromAgent = (
    Join
    | Ready
    | Beat
    | MemberReserved
    | MemberShared
    | MemberStarted
    | MemberStepped
    | MemberReported
    | CheckpointWritten
    | CheckpointFailed
    | MemberEnded
    | MemberStored
    | Leave
)


class UploadHeader(Message, frozen=True, tag=True):
    """First message of an upload stream; the file's bytes follow in chunks, then the stream is half-closed."""

    agent: AgentId
    member: Member
    name: str
    """Path of the file relative to the member's directory, with `/`; checked by the coordinator."""


class UploadDone(Message, frozen=True, tag=True):
    """The coordinator's answer at the end of an upload stream."""

    size_bytes: int


# ---- coordinator -> agent


class Welcome(Message, frozen=True, tag=True):
    """Answer to `Join`: the agent belongs to the pool."""

    beat_s: float
    """Interval of `Beat`."""
    lease_s: float
    """The agent ends its member and its stream when no `BeatAck` came for so long."""
    preload: tuple[str, ...]
    """Modules that the zygote imports before its first fork."""


class Refuse(Message, frozen=True, tag=True):
    """Answer to `Join`, or the end of an agent that broke a rule: the agent leaves and does not come back."""

    reason: str


class BeatAck(Message, frozen=True, tag=True):
    """Answer to `Beat`."""


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
    """A run begins: keep its code, and have the zygote import `preload` too. Answered by `Ready`."""

    run: RunId
    code: Code
    preload: tuple[str, ...]


class StartMember(Message, frozen=True, tag=True):
    """Run the training function once, in a process of its own. The agent must be idle and prepared for the run."""

    member: Member
    size: int
    """Members in the gang."""
    params: dict[str, Any]
    seed: int
    metric: str | None
    """Metric that the result must hold; None where any result will do."""
    log_limit_bytes: int
    backend: Backend = Backend.NONE
    store: StoreAddress = StoreAddress("")
    checkpoint: Checkpoint | None = None
    """To resume from."""


class FormGang(Message, frozen=True, tag=True):
    """Every member of the gang holds its port: they may connect now; `places` are by rank."""

    member: Member
    places: tuple[Place, ...]


class PeerShared(Message, frozen=True, tag=True):
    """What another member of `member`'s gang has shared."""

    member: Member
    key: str
    value: bytes


class AckCheckpoint(Message, frozen=True, tag=True):
    """The checkpoint counts: the gang resumes from it, or from a newer one."""

    member: Member
    checkpoint: Checkpoint


class StopMember(Message, frozen=True, tag=True):
    """End the member's process: SIGTERM, and SIGKILL `grace_s` later. Ignored when the member has ended."""

    member: Member
    grace_s: float


class Advise(Message, frozen=True, tag=True):
    """`ctx.should_stop()` of the member answers True from now on."""

    member: Member


class Dismiss(Message, frozen=True, tag=True):
    """The pool closes: end the member at once, leave, and let the Spark task finish."""

    reason: str


ToAgent = (
    Welcome
    | Refuse
    | BeatAck
    | Prepare
    | StartMember
    | FormGang
    | PeerShared
    | AckCheckpoint
    | StopMember
    | Advise
    | Dismiss
)


# ---- agent <-> zygote, over a socket pair


class Begin(Message, frozen=True, tag=True):
    """First message: what the zygote takes over from its agent."""

    sys_path: tuple[str, ...]
    pythonpath: str | None
    """The agent's `PYTHONPATH`; the zygote's own was only for finding sparktrain."""


class Preload(Message, frozen=True, tag=True):
    """Import these modules now. Answered by `Preloaded`."""

    modules: tuple[str, ...]


class Fork(Message, frozen=True, tag=True):
    """Fork one child that waits for its `Assignment`. Answered by `Forked`."""


class Kill(Message, frozen=True, tag=True):
    """End child `pid` and its process group: SIGTERM, and SIGKILL `grace_s` later. `Exited` follows."""

    pid: int
    grace_s: float


ToZygote = Begin | Preload | Fork | Kill


class Preloaded(Message, frozen=True, tag=True):
    """All modules have been tried; `failed` has the reasons of those that raised."""

    failed: dict[str, str]


class Forked(Message, frozen=True, tag=True):
    """A child waits; its end of a socket pair travels beside this message (SCM_RIGHTS)."""

    pid: int


class Exited(Message, frozen=True, tag=True):
    """Child `pid` and every process that it left behind are gone."""

    pid: int
    status: int
    """As of `os.waitstatus_to_exitcode`: the exit code, or minus the signal's number."""
    peak_rss_bytes: int
    orphans: int
    """Processes that the child had started and left behind, ended now."""


FromZygote = Preloaded | Forked | Exited


# ---- agent <-> member, over the socket pair made for its fork


class Assignment(Message, frozen=True, tag=True):
    """What a waiting child shall run. All paths are local to the executor's host."""

    member: Member
    size: int
    params: dict[str, Any]
    seed: int
    metric: str | None
    code_path: str
    """File with `Code.function`."""
    by_reference: bool
    sys_path: tuple[str, ...]
    """Entries to put in front of `sys.path`."""
    work_dir: str
    """Empty directory that becomes the working directory."""
    log_dir: str
    """Directory of `ctx.log_dir`; its files are brought to the run directory."""
    log_path: str
    """File that takes stdout and stderr."""
    gpus: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    """IP address of this host that the other members reach."""
    backend: Backend = Backend.NONE
    restore_dir: str = ""
    """Directory with the verified files of the checkpoint to resume from; empty without one."""


class Reserved(Message, frozen=True, tag=True):
    """The function is loaded, and the process holds `port`: it waits for `Form`. Of members of a gang alone."""

    port: int


class Form(Message, frozen=True, tag=True):
    """Answer to `Reserved`, once all members have sent theirs; `places` are by rank."""

    places: tuple[Place, ...]


class Share(Message, frozen=True, tag=True):
    """In both directions, between `Form` and `Entered`: a value for, or from, the other members of the gang."""

    key: str
    value: bytes


class Entered(Message, frozen=True, tag=True):
    """The function is loaded and is called now."""

    pid: int


class Reported(Message, frozen=True, tag=True):
    """One call of `ctx.report`."""

    report: Report


class Stepped(Message, frozen=True, tag=True):
    """Training begins, goes on, or ends; sent every half second at most."""

    step: int
    """Finished so far, those before a restart included."""
    training: bool = True
    """More steps are to come: a long silence is a hang."""


class Snapshot(Message, frozen=True, tag=True):
    """The chief's state is in files, which belong to the agent now. Answered by `Kept`; one at a time."""

    step: int
    folder: str
    """Local directory; each file in it becomes a shard of the checkpoint."""
    keep: int
    """How many checkpoints of the trial shall be kept, the best one not counted."""
    score: float | None = None
    """Larger is better; None where checkpoints are not compared."""


class Kept(Message, frozen=True, tag=True):
    """The snapshot of `step` is a checkpoint that the coordinator has acknowledged, or was given up for `problem`."""

    step: int
    problem: str = ""


class Ended(Message, frozen=True, tag=True):
    """The function returned or raised; the process exits next."""

    outcome: Outcome


class Heed(Message, frozen=True, tag=True):
    """`ctx.should_stop()` answers True from now on."""


ToMember = Assignment | Form | Share | Kept | Heed
FromMember = Reserved | Share | Entered | Reported | Stepped | Snapshot | Ended

CHIEF = Rank(0)
