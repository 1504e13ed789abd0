"""The messages between the coordinator and agents that the state machine reads or sends.

A message about training carries its `Member`, and so its generation. `protocol.messages` adds the messages that only
transports, the driver and agents need.
"""

from msgspec import Struct, field

from sparktrain.base.ids import Member, Rank, RunId
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import StoredPart
from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.state.message import Large, Message, Small
from sparktrain.state.outcome import Outcome, Report
from sparktrain.state.topology import MemberAddress


class Standing(Message, frozen=True, tag=True, kw_only=True):
    """How the process of a member stands: all that the coordinator knows of it beside its training.

    The process sends the whole of it each time that something changes, and the newest one counts.
    """

    port: int = 0
    """The port that it holds, once the training function is loaded: it waits for its `Seating`."""
    heals: bool = False
    """It can continue in a new ring after the loss of another member: it is within a call that heals."""
    moves: bool = False
    """It can also change its ring, between two steps, for a process that is prepared."""
    shrinks: bool = False
    """It can also continue in a ring of fewer members, which divide among themselves what is left of the data."""
    waits: bool = False
    """It has run the training function up to its ring, and waits there for the place of a member."""
    bound: bool = True
    """While it waits: the function has read which rank it has, so that the process can take no other one."""
    ring: int = 0
    """Number of the newest ring after the first that it has joined with the state of the others, to train on."""
    leaves: int = 0
    """Number of the ring for which it leaves its own, as all others do: it ends next, or a vacant place is taken."""
    step: int = 0
    """Steps that it had finished when it joined `ring`, or left its own for another one. No step is repeated where the
    next one is that in which the ring before broke."""


class HeldMember(Struct, frozen=True, kw_only=True):
    """A member that an agent has held since its coordinator was lost: it continues, or has ended meanwhile."""

    member: Member
    place: MemberAddress | None = None
    """Where the other members of its gang reach it; None before the gang has formed, and for a member that is alone."""
    ring: int = 0
    """Number of the ring that its gang has formed last."""
    entered: bool = False
    """It has entered the training function."""
    trains: bool = False
    """See `MemberStarted`."""
    standing: Standing = Standing()
    step: int | None = None
    """Steps that it has finished; None before the first one."""
    seconds: float = 0.0
    """Since it has entered the training function."""
    stopping: bool = False
    """The coordinator that was lost has had it stopped."""


# ---- agent -> coordinator


class Ready(Large, frozen=True, tag=True):
    """The zygote has imported what it could; the agent can start a member of `run` at once."""

    run: RunId | None = None
    """The run of the `Prepare` that this answers; None for `Welcome`."""
    failed_imports: dict[str, str] = field(default_factory=dict)
    """Modules that could not be preloaded, with the reason. No failure: the user's own import reports it better."""


class Heartbeat(Small, frozen=True, tag=True):
    """The agent is alive; the coordinator renews its lease and answers with `HeartbeatAck`."""


class AgentLeaves(Small, frozen=True, tag=True):
    """The agent will be gone soon, which something has announced: it gets no new member, and its member moves."""

    notice: str
    """What announced it, in a few words, such as `SIGTERM`."""
    within_s: float | None = None
    """It stays for so long at most; None where that is not known."""


class MemberStands(Small, frozen=True, tag=True):
    """A member of a gang, or a process that is prepared for its place, stands otherwise than before."""

    member: Member
    standing: Standing


class MemberShared(Large, frozen=True, tag=True):
    """A value of a member for all other members of its gang: of its backend, or of its straggler detection."""

    member: Member
    key: str
    value: bytes


class MemberStarted(Small, frozen=True, tag=True):
    """The member's process has entered the training function. It comes again where `trains` changes."""

    member: Member
    pid: int
    trains: bool = False
    """A worker of a gang with parameter servers that trains by itself: the gang needs its end, not only the chief's."""


class MemberStepped(Small, frozen=True, tag=True):
    """A running member has finished training steps."""

    member: Member
    step: int
    """Steps that the member has finished, those before a restart included."""
    steps_per_s: float
    """Since its previous message of this kind; 0 in the first, which comes before the first step."""
    training: bool = True
    """More steps follow: a long silence is a hang."""
    times: StepTimes | None = None
    """Where the newest steps went; None where no ring notes that."""
    called: int | None = None
    """Once the process is gone: the steps after which all its callbacks had been called; None where that is unknown."""


class MemberAwaits(Small, frozen=True, tag=True):
    """A member has waited for rows of a stream for some time, or waits no more. Meanwhile it does not hang."""

    member: Member
    feed: str
    waiting: bool


class MemberDoubts(Small, frozen=True, tag=True):
    """The member cannot reach the hosts of other members of its gang: they acknowledge nothing."""

    member: Member
    ranks: tuple[Rank, ...]


class MemberAsked(Large, frozen=True, tag=True):
    """A question of the chief's training function for the sampler of its run. Answered by `AnswerMember`."""

    member: Member
    number: int
    question: bytes


class MemberReported(Large, frozen=True, tag=True):
    """Reports of a running member, in order. Those of the chief are the trial's; others stay in the member's files."""

    member: Member
    reports: tuple[Report, ...]


class CheckpointStored(Small, frozen=True, tag=True):
    """The chief's agent has stored a checkpoint; it counts once the coordinator has acknowledged it."""

    member: Member
    checkpoint: Checkpoint


class CheckpointFailed(Small, frozen=True, tag=True):
    """The snapshot that the chief saved after `step` did not become a checkpoint."""

    member: Member
    step: int
    problem: str
    part: bool = False
    """It was one of those that all members save, and may be another member's than the chief's."""
    returned: bool = False
    """The member's function has returned: it saves neither the part of `step` nor that of any later step."""


class PartStored(Large, frozen=True, tag=True):
    """The member's agent has stored its part of the checkpoint of `step`, which all members write."""

    member: Member
    step: int
    part: StoredPart


class SnapshotHeld(Small, frozen=True, tag=True):
    """The member's agent holds a whole snapshot of its state after `step` in shared memory."""

    member: Member
    step: int
    checksum: str
    paused: bool = False
    """The member was asked for it, and trains no step after it: see `AskSnapshot`."""
    layout: tuple[int, ...] = (0,)
    parts: tuple[int, ...] = (0,)
    """See `MemorySnapshot`."""


class MemberEnded(Large, frozen=True, tag=True):
    """The member has an outcome. Sent exactly once for each `StartMember`, while the agent's stream lasts.

    The agent may get another member at once: it starts that one when the process of this one is gone.
    """

    member: Member
    outcome: Outcome


MemberMessage = (
    MemberStands
    | MemberShared
    | MemberStarted
    | MemberStepped
    | MemberAwaits
    | MemberDoubts
    | MemberAsked
    | MemberReported
    | CheckpointStored
    | CheckpointFailed
    | PartStored
    | SnapshotHeld
    | MemberEnded
)
"""Messages about one member."""

StateInput = Ready | Heartbeat | AgentLeaves | MemberMessage
"""Messages of agents that the state machine reads."""


# ---- coordinator -> agent


class Seating(Message, frozen=True, tag=True, kw_only=True):
    """Where the members of a gang sit in a ring: in their newest one, or with `moving` in the next one.

    It is whole each time, and the newest one counts.
    """

    member: Member
    ring: int = 0
    """Number of the ring: 0 for the first of a generation, and a higher one for each that follows."""
    places: tuple[MemberAddress, ...] = ()
    """By rank: the members may connect now. None yet, where another member of a gang that heals is lost: leave the ring
    before, keep the state, and wait for them."""
    ranks: tuple[Rank, ...] = ()
    """The ranks of the members with these places, where some of the gang have none in this ring; empty: all."""
    called: int | None = None
    """The steps after which the lost process of this member had called its callbacks; None where that is unknown."""
    joined: bool = False
    """All members stand equal in this ring: they train on. It withdraws an offer of the next one."""
    moving: Rank | None = None
    """A process waits to take the place of this member: all leave their ring after the same step, that member for good,
    and the others form this one with the process."""


class AskHeartbeat(Message, frozen=True, tag=True):
    """Members on other hosts do not reach that of the agent: it sends a heartbeat at once, or is soon lost."""


class RenameMember(Message, frozen=True, tag=True):
    """The process of `member`, which was prepared, is `successor` from now on: it takes the place of that member."""

    member: Member
    successor: Member


class PeerShared(Message, frozen=True, tag=True):
    """A value that another member of `member`'s gang has shared."""

    member: Member
    key: str
    value: bytes


class AckCheckpoint(Message, frozen=True, tag=True):
    """The checkpoint counts: the gang resumes from it, or from a newer one."""

    member: Member
    checkpoint: Checkpoint


class CommitParts(Message, frozen=True, tag=True):
    """To the chief's agent: all parts of `step` are stored. Store one manifest that names them, by rank."""

    member: Member
    step: int
    parts: tuple[StoredPart, ...]


class GiveUpPart(Message, frozen=True, tag=True):
    """The checkpoint of `step` gets no manifest: the member's part does not count, and training continues."""

    member: Member
    step: int
    problem: str


class StopMember(Message, frozen=True, tag=True):
    """End the member's process: SIGTERM, and SIGKILL `grace_s` later. Ignored when the member has ended."""

    member: Member
    grace_s: float


class ForgetSnapshot(Message, frozen=True, tag=True):
    """No gang resumes any more from what the agent holds in memory of the member."""

    member: Member


class Advise(Message, frozen=True, tag=True):
    """`ctx.should_stop()` of the member answers True from now on."""

    member: Member


class AskSnapshot(Message, frozen=True, tag=True):
    """The gang is to continue on more agents, or on others: all its members take a snapshot after the same step, and
    train no more for a while."""

    member: Member
    in_store: bool = False
    """The snapshot becomes a checkpoint: no agent of the gang stays that could hold it. Of a member that is alone."""


class Judged(Message, frozen=True, tag=True):
    """The rules of the run have seen the reports of the member up to `step`; -1 as soon as it has entered.

    No rule judges a report below the step `next`. `stops`: `ctx.should_stop()` answers True from now on.
    """

    member: Member
    step: int
    next: int = 0
    stops: bool = False


class AnswerMember(Message, frozen=True, tag=True):
    """The sampler's answer to question `number` of the member, or why it has none."""

    member: Member
    number: int
    answer: bytes
    problem: str = ""


StateOutput = (
    AskHeartbeat
    | ForgetSnapshot
    | Seating
    | RenameMember
    | PeerShared
    | AckCheckpoint
    | CommitParts
    | GiveUpPart
    | StopMember
    | Advise
    | AskSnapshot
    | Judged
    | AnswerMember
)
"""Messages to agents that the state machine sends."""
