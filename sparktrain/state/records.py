"""The journal of a run: the facts that a driver which takes over must know, in their order.

A record is written before any command that depends on it is performed; `state.recovery` folds records into a sweep.
"""

from typing import Any

from msgspec import Struct

from sparktrain.base.ids import Generation, TrialId
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.gangs.step_times import GangTimes
from sparktrain.state.outcome import Failure, Outcome, Report, Restart
from sparktrain.state.trial import TrialStatus


class Record(Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True):
    """Base of all records."""

    at: float = 0.0
    """Seconds since 1970, by the clock of the driver that wrote it, for display. 0 where unknown."""


class TrialsAdded(Record, frozen=True, tag=True, kw_only=True):
    """The sampler has proposed cases; the ids of their trials follow those of the trials before."""

    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    asked: int
    """How many cases the sampler was asked for."""
    observed: int
    """Results that the sampler had when it was asked: when it is restored, as many come first."""
    memo: dict[str, Any] = {}
    """What the sampler needs beside the cases to continue under another driver."""
    each: int = 1
    """Trials of each case, the same number in all records of a run."""


class TrialAnswered(Record, frozen=True, tag=True, kw_only=True):
    """The sampler has answered a running trial: it has more parameters, in all its generations."""

    trial: TrialId
    params: dict[str, Any] = {}
    memo: dict[str, Any] = {}
    """What the sampler needs beside them to continue under another driver."""


class GangFormed(Record, frozen=True, tag=True, kw_only=True):
    """A trial has a gang of a new generation. All older generations are fenced: what they write is ignored."""

    trial: TrialId
    generation: Generation
    hosts: tuple[str, ...]
    """Hosts of its members, by rank."""
    base: str = ""
    """Digest of the checkpoint that it resumes from, or that a snapshot in memory follows; empty without one."""
    memory_step: int | None = None
    """Step of the snapshot in memory that it resumes from; None when it reads the store, or starts from step 0."""


class CheckpointAcknowledged(Record, frozen=True, tag=True, kw_only=True):
    """A checkpoint counts: a gang may resume from it, and older ones may be deleted."""

    trial: TrialId
    checkpoint: Checkpoint


class SaveFailed(Record, frozen=True, tag=True, kw_only=True):
    """The snapshot after a step did not become a checkpoint; training continues.

    For display, and to test the journal: where no checkpoint can be written, the run may have lost its store, and no
    other record might follow for long.
    """

    trial: TrialId
    step: int
    problem: str


class CheckpointCorrupt(Record, frozen=True, tag=True, kw_only=True):
    """A checkpoint could not be read: no gang resumes from it."""

    trial: TrialId
    manifest: str
    reason: str


class CheckpointsDropped(Record, frozen=True, tag=True, kw_only=True):
    """Checkpoints no longer count: they were deleted to make room, or are corrupt and no gang may resume from them."""

    trial: TrialId
    manifests: tuple[str, ...]
    reason: str


class GangRestarted(Record, frozen=True, tag=True, kw_only=True):
    """A gang was lost, and its trial is queued again."""

    trial: TrialId
    restart: Restart
    forgiven: bool = False
    """It was lost with an earlier driver, and this one has waited for it."""


class GangAdopted(Record, frozen=True, tag=True, kw_only=True):
    """The gang of a trial continues under this driver, in its generation: agents have held its members meanwhile."""

    trial: TrialId
    generation: Generation


class LossRecorded(Record, frozen=True, tag=True, kw_only=True):
    """Why a gang was lost that has restarted meanwhile: the cluster reported it late."""

    trial: TrialId
    generation: Generation
    """Generation of the lost gang."""
    restart: Restart
    """Replaces what was known before."""
    place: int | None = None
    """Of a member that restarted alone: the number of its restart among the trial's, from 0."""


class MemberRestarted(Record, frozen=True, tag=True, kw_only=True):
    """A member was lost, and restarted alone: it trains again, in the same generation as before.

    Written once it does. A member that is lost and does not return is the cause of a `GangRestarted`.
    """

    trial: TrialId
    generation: Generation
    restart: Restart
    incarnation: int = 0
    """Of its process; 0 in journals of older versions, for the next number."""


class GangRecovered(Record, frozen=True, tag=True, kw_only=True):
    """The gang that followed a lost one trains."""

    trial: TrialId
    seconds: float
    """Since the loss."""


class TrialReported(Record, frozen=True, tag=True, kw_only=True):
    """The newest metrics of a running trial, at long intervals, for display."""

    trial: TrialId
    report: Report


class StepsTimed(Record, frozen=True, tag=True, kw_only=True):
    """Where the steps of a running gang go, at long intervals, and once another member is slow; for display."""

    trial: TrialId
    times: GangTimes


class StandbysNoted(Record, frozen=True, tag=True, kw_only=True):
    """The processes that wait for the loss of a member of a running gang, each time that changes; for display."""

    trial: TrialId
    text: str
    """One line."""


class RungReached(Record, frozen=True, tag=True, kw_only=True):
    """A rule of pruning has judged a trial, once for each of its rungs, whatever generation reported the step.

    It comes before what follows from it, and a driver that takes over decides by the records alone: a trial that was
    to stop and has no end is concluded, and one that continued meets the rung no more.
    """

    trial: TrialId
    rule: str
    """The rule with its options, as text."""
    rung: int
    """The point at which it looks, in finished steps."""
    step: int
    """The step that the trial reported."""
    value: float | None
    """None where it is not finite."""
    reason: str = ""
    """Why the trial stops, in one line; empty where it continues."""
    pauses: bool = False
    """It is paused, and may be promoted later."""

    @property
    def continues(self) -> bool:
        """The trial continues, as far as this rule is concerned."""
        return not self.reason


class TrialPaused(Record, frozen=True, tag=True, kw_only=True):
    """The gang of a trial that a rule pauses is gone; its slots are free, its checkpoint stays."""

    trial: TrialId
    restart: Restart


class TrialPromoted(Record, frozen=True, tag=True, kw_only=True):
    """A trial that waits at a rung, or is about to, is among the best there: it continues from its checkpoint."""

    trial: TrialId
    rule: str
    rung: int


class CaseClosed(Record, frozen=True, tag=True, kw_only=True):
    """A case needs no more of its trials: those that wait never start, and those that run are to stop.

    It comes before the ends of these trials. A driver that takes over concludes them.
    """

    case: int
    reason: str


class Exploited(Record, frozen=True, tag=True, kw_only=True):
    """A trial takes over another one (population based training): it continues from that one's checkpoint.

    Comes before its gang ends. Its own checkpoints no longer count.
    """

    trial: TrialId
    donor: TrialId
    checkpoint: Checkpoint
    """A checkpoint of the donor, which is acknowledged."""
    params: dict[str, Any]
    """The parameters of the trial from there on."""
    step: int
    """The step of the report that it was compared by."""
    reason: str
    replaced: bool = False
    """In a compacted journal: newer checkpoints have replaced this one since, or it was dropped."""


class HorizonLearned(Record, frozen=True, tag=True, kw_only=True):
    """The first trial that succeeded shows how many steps a trial has, which fixes the rungs of a rule."""

    rule: str
    most: int


class TrialConcluded(Record, frozen=True, tag=True, kw_only=True):
    """A trial has its final status. There is one record for each trial, except where a later driver retries it."""

    trial: TrialId
    status: TrialStatus
    metrics: dict[str, float] = {}
    failure: Failure | None = None
    seconds: float = 0.0
    notices: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    exported: str = ""
    step: int | None = None
    """The last step that the chief of its newest gang reported; None without a report, and where an older sparktrain
    wrote the record. `TrialReported` has a step each ten seconds alone."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the trial."""
        return Outcome(self.seconds, self.metrics, self.failure, self.notices, extra=self.extra, exported=self.exported)


class DriverStarted(Record, frozen=True, tag=True, kw_only=True):
    """A driver owns the run from here: the first one, or one that resumes it.

    It retries trials without a result, also those that were stopped or lost under an earlier driver; earlier losses do
    not count against their restarts, unless it `adopts` their gangs.
    """

    plan: str
    """Digest of the run's plan, see `RunLayout.plan`."""
    space: str = ""
    """Digest of the space: with another space, the sampler is another too."""
    retry_failed: bool = False
    """The driver retries failed trials as well."""
    extends: bool = False
    """Its call has given the run more trials, or a wider space."""
    ran_s: float = 0.0
    """Duration of the run under earlier drivers; under one that was lost, up to its newest record."""
    predecessor_seen: float = 0.0
    """When the driver before made its newest record, in seconds since 1970; 0 where that has recorded its end."""
    versions: dict[str, str] = {}
    """The versions of Python and of packages on the driver, for people. Empty where an older sparktrain wrote it."""
    trials: int | None = None
    """Number of trials of the run in all; None where it is not known."""
    local: bool = False
    """Its agents are processes of the driver's machine, without Spark."""
    adopts: bool = False
    """Its agents are those of the driver before, and hold their members: gangs that train continue, where all of them
    come. Each gang that runs has a `GangAdopted` or a `GangRestarted` later."""


class DrainDecided(Record, frozen=True, tag=True, kw_only=True):
    """A user has asked to drain a host or an agent, and the driver has accepted that, or refused it; or an agent has
    notice that it leaves.

    A host gets no member for the rest of the run, and an agent none under this driver.
    """

    request: str
    """Id of the request."""
    host: str = ""
    """The host; of an agent, the one that it is on."""
    agent: int | None = None
    """Number of the agent's slot; None where all agents of the host are drained."""
    problem: str = ""
    """Why the request was refused."""
    notice: str = ""
    """What announced that the agent leaves; empty where a user has asked."""
    within_s: float | None = None
    """For how long it stays after the notice at most; None where that is not known."""
    cancels: bool = False
    """What users have asked before for this host or agent no longer counts."""


class DrainCompleted(Record, frozen=True, tag=True, kw_only=True):
    """No agent that a request to drain concerns has a member any more."""

    request: str


class RunEnded(Record, frozen=True, tag=True, kw_only=True):
    """The run is over."""

    ending: str
    """One of the values of `state.ending.Ending`."""
    reason: str = ""
    seconds: float = 0.0
    """Duration under the driver that ended it."""


AnyRecord = (
    DriverStarted
    | TrialsAdded
    | TrialAnswered
    | GangFormed
    | CheckpointAcknowledged
    | SaveFailed
    | CheckpointCorrupt
    | CheckpointsDropped
    | GangRestarted
    | GangAdopted
    | LossRecorded
    | MemberRestarted
    | GangRecovered
    | TrialReported
    | StepsTimed
    | StandbysNoted
    | RungReached
    | TrialPaused
    | TrialPromoted
    | CaseClosed
    | HorizonLearned
    | Exploited
    | TrialConcluded
    | DrainDecided
    | DrainCompleted
    | RunEnded
)
