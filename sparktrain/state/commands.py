"""What the state machine has the coordinator do, in this order."""

from typing import Any

from msgspec import Struct

from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.state.agent_messages import StateOutput
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.memory_snapshots import MemoryBase
from sparktrain.state.outcome import Failure, Report
from sparktrain.state.records import AnyRecord


class Command(Struct, frozen=True, tag=True):
    """Base of all commands."""

    @property
    def waits_for_records(self) -> bool:
        """The command is performed only when all records before it are in the journal."""
        return False


class Durable(Command, frozen=True, tag=True):
    """Base of the commands that are performed only when all records before them are in the journal.

    Had their effect come first, a driver that takes over could repeat a finished trial, give out a generation twice,
    or miss the checkpoint that replaced a deleted one.
    """

    @property
    def waits_for_records(self) -> bool:
        """See base class."""
        return True


class WriteRecord(Command, frozen=True, tag=True):
    """Write the record to the journal, before any command that depends on it is performed."""

    record: AnyRecord


class RecordReports(Command, frozen=True, tag=True):
    """Store what the member reported, before any later record is in the journal."""

    member: Member
    reports: tuple[Report, ...]


class PrepareAgent(Command, frozen=True, tag=True):
    """Send the agent the code of the run."""

    agent: AgentId
    run: RunId


class PlaceMember(Durable, frozen=True, tag=True):
    """Have the agent start the member; the driver adds the run's options."""

    agent: AgentId
    member: Member
    size: int
    params: dict[str, Any]
    checkpoint: Checkpoint | None = None
    """Checkpoint to resume from."""
    port: int = 0
    """The port that the member must take, for the others know it by that; 0 for any."""
    ring: int = 0
    """Number of the ring that the member joins; above 0, the others give it their state, in place of the checkpoint."""
    prepared: bool = False
    """The process runs the function up to its ring, and waits there for the member's place: see `Seating`."""
    memory: MemoryBase | None = None
    """The snapshot in memory to resume from, in place of the checkpoint."""
    may_grow: bool = False
    """The gang is smaller than it could be: see `AskSnapshot`."""


class AdoptMember(Durable, frozen=True, tag=True):
    """The member that the agent has held continues: the agent sends what no coordinator has settled."""

    agent: AgentId
    member: Member
    params: dict[str, Any]


class Send(Command, frozen=True, tag=True):
    """Send the message to the agent as it is."""

    agent: AgentId
    message: StateOutput
    durable: bool = False
    """Send it only when all records before it are in the journal, see `Durable`."""

    @property
    def waits_for_records(self) -> bool:
        """See base class."""
        return self.durable


class DeleteCheckpoints(Durable, frozen=True, tag=True):
    """Delete checkpoints that no gang will resume from."""

    trial: TrialId
    checkpoints: tuple[Checkpoint, ...]


class SweepCheckpoints(Durable, frozen=True, tag=True):
    """Delete the trial's files of generations before `before` that are not in `retained`."""

    trial: TrialId
    retained: tuple[Checkpoint, ...]
    before: Generation


class DropAgent(Command, frozen=True, tag=True):
    """Close the agent's stream: the agent is lost, and its later messages do not count."""

    agent: AgentId
    reason: str


class ExcludeAgent(Command, frozen=True, tag=True):
    """The agent gets no more members of this run. For the log."""

    agent: AgentId
    reason: str


class Suggest(Durable, frozen=True, tag=True):
    """Ask the sampler for up to `count` new cases; answered by `Suggested`."""

    run: RunId
    count: int


class AskSampler(Command, frozen=True, tag=True):
    """Pass a question of a member to the sampler; answered by `QuestionAnswered`."""

    agent: AgentId
    member: Member
    number: int
    question: bytes


class ConcludeTrial(Durable, frozen=True, tag=True):
    """The trial has its final status: report it to the user, and its case to the sampler. Comes once for each trial."""

    trial: TrialId
    partial: bool = False
    """Other trials complete its case: the sampler learns nothing yet."""


class EndRun(Durable, frozen=True, tag=True):
    """The run is over; each of its trials is final."""

    run: RunId
    ending: str
    """One of the values of `state.ending.Ending`."""
    reason: str
    failure: Failure | None = None


class Refused(Command, frozen=True, tag=True):
    """A message was not acted on: of an older generation, of a lost agent, or out of place. For the log."""

    agent: AgentId
    reason: str
