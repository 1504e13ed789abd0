"""What the machine tells the coordinator to do, in this order."""

from typing import Any

from msgspec import Struct

from sparktrain.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.outcome import Failure, Report
from sparktrain.state.records import AnyRecord
from sparktrain.state.topology import MemberAddress


class Command(Struct, frozen=True, tag=True):
    """Base of all commands."""


class Durable(Command, frozen=True, tag=True):
    """Base of the commands that are done only when all records before them are in the journal.

    Had their effect come first, a driver that takes over could run a finished trial again, give out a generation twice,
    or miss the checkpoint whose predecessor was deleted.
    """


class WriteRecord(Command, frozen=True, tag=True):
    """Write the record to the journal, before anything that depends on it is done."""

    record: AnyRecord


class RecordReports(Command, frozen=True, tag=True):
    """Store what the member reported, before any later record is in the journal."""

    member: Member
    reports: tuple[Report, ...]


class PrepareAgent(Command, frozen=True, tag=True):
    """Send the agent the code of the run."""

    agent: AgentId
    run: RunId


class StartMember(Durable, frozen=True, tag=True):
    """Have the agent run the training function."""

    agent: AgentId
    member: Member
    size: int
    params: dict[str, Any]
    checkpoint: Checkpoint | None = None
    """To resume from."""


class FormGang(Command, frozen=True, tag=True):
    """Tell the member where all members of its gang are."""

    agent: AgentId
    member: Member
    places: tuple[MemberAddress, ...]


class RelayToPeers(Command, frozen=True, tag=True):
    """Give the member what another member of its gang has shared."""

    agent: AgentId
    member: Member
    key: str
    value: bytes


class AckCheckpoint(Durable, frozen=True, tag=True):
    """Tell the agent that its checkpoint counts."""

    agent: AgentId
    member: Member
    checkpoint: Checkpoint


class DeleteCheckpoints(Durable, frozen=True, tag=True):
    """Delete checkpoints that no gang will resume from."""

    trial: TrialId
    checkpoints: tuple[Checkpoint, ...]


class SweepCheckpoints(Durable, frozen=True, tag=True):
    """Delete what generations before `before` have left of the trial and is not in `kept`."""

    trial: TrialId
    kept: tuple[Checkpoint, ...]
    before: Generation


class AdviseMember(Command, frozen=True, tag=True):
    """Have `ctx.should_stop()` of the member answer True."""

    agent: AgentId
    member: Member


class StopMember(Command, frozen=True, tag=True):
    """End the member's process; `MemberEnded` follows."""

    agent: AgentId
    member: Member
    grace_s: float


class DropAgent(Command, frozen=True, tag=True):
    """Close the agent's stream: it is lost, whatever it sends from now on."""

    agent: AgentId
    reason: str


class ExcludeAgent(Command, frozen=True, tag=True):
    """The agent gets no more members of this run. For the log."""

    agent: AgentId
    reason: str


class Suggest(Durable, frozen=True, tag=True):
    """Ask the sampler for up to `count` new trials; answered by `Suggested`."""

    run: RunId
    count: int


class ConcludeTrial(Durable, frozen=True, tag=True):
    """The trial has its final status: tell the sampler and the user. Comes once for each trial."""

    trial: TrialId


class EndRun(Durable, frozen=True, tag=True):
    """The run is over; each of its trials is final."""

    run: RunId
    ending: str
    """One of the values of `state.sweep.Ending`."""
    reason: str
    failure: Failure | None = None


class Refused(Command, frozen=True, tag=True):
    """A message was not acted on: of an older generation, of a lost agent, or out of place. For the log."""

    agent: AgentId
    reason: str
