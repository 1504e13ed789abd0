"""What the journal of a run holds: the facts that a driver which takes over must know, in the order of their coming.

A record is written before anything is done that depends on it; `state.recovery` folds records back into a sweep.
"""

from typing import Any

from msgspec import Struct

from sparktrain.ids import Generation, TrialId
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.outcome import Failure, Report, Restart
from sparktrain.state.trial import TrialStatus


class Record(Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True):
    """Base of all records."""

    at: float = 0.0
    """Seconds since 1970, by the clock of the driver that wrote it: for people. 0 where nobody knows."""


class TrialsAdded(Record, frozen=True, tag=True, kw_only=True):
    """The sampler has proposed trials; their ids follow those of the trials before."""

    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    asked: int
    """How many the sampler was asked for."""
    observed: int
    """Ends of trials that it had been told when it was asked: whoever asks again tells it as many first."""


class GangFormed(Record, frozen=True, tag=True, kw_only=True):
    """A trial is run in a new generation. All older generations are fenced from here on: what they write is ignored."""

    trial: TrialId
    generation: Generation
    hosts: tuple[str, ...]
    """Of its members, by rank."""
    base: str = ""
    """Digest of the checkpoint that it resumes from; empty when it begins anew."""


class CheckpointAcknowledged(Record, frozen=True, tag=True, kw_only=True):
    """A checkpoint counts: from here on it may be resumed from, and older ones may be deleted."""

    trial: TrialId
    checkpoint: Checkpoint


class SaveFailed(Record, frozen=True, tag=True, kw_only=True):
    """What was saved after a step could not be made a checkpoint; training goes on.

    For people, and to try the journal: where no checkpoint can be written, the run may have lost its store, and nothing
    else might be written for long.
    """

    trial: TrialId
    step: int
    problem: str


class CheckpointCorrupt(Record, frozen=True, tag=True, kw_only=True):
    """A checkpoint could not be read: it is never resumed from again."""

    trial: TrialId
    manifest: str
    reason: str


class CheckpointsDropped(Record, frozen=True, tag=True, kw_only=True):
    """Checkpoints count no more: they were deleted to make room, or are damaged and nobody shall resume from them."""

    trial: TrialId
    manifests: tuple[str, ...]
    reason: str


class GangRestarted(Record, frozen=True, tag=True, kw_only=True):
    """A gang was lost, and its trial is queued again."""

    trial: TrialId
    restart: Restart


class LossRecorded(Record, frozen=True, tag=True, kw_only=True):
    """Why a gang was lost that was formed again meanwhile: the cluster has told it only now."""

    trial: TrialId
    generation: Generation
    """Of the gang that was lost."""
    restart: Restart
    """In place of what was known before."""


class GangRecovered(Record, frozen=True, tag=True, kw_only=True):
    """The gang that followed a lost one trains."""

    trial: TrialId
    seconds: float
    """Since the loss."""


class TrialReported(Record, frozen=True, tag=True, kw_only=True):
    """The newest metrics of a running trial: for people, at long intervals."""

    trial: TrialId
    report: Report


class TrialConcluded(Record, frozen=True, tag=True, kw_only=True):
    """A trial has its final status. There is one for each trial, but for those that a later driver runs again."""

    trial: TrialId
    status: TrialStatus
    metrics: dict[str, float] = {}
    failure: Failure | None = None
    seconds: float = 0.0
    notices: tuple[str, ...] = ()


class DriverStarted(Record, frozen=True, tag=True, kw_only=True):
    """A driver is on the run from here on: the first one, or one that resumes it.

    Trials without a result are run again, those that were stopped or lost with the driver before too, and what was lost
    so far does not count against their restarts.
    """

    plan: str
    """Digest of what the run is asked to do, see `RunLayout.plan`."""
    space: str = ""
    """Digest of the space: with another one, the sampler is another too."""
    retry_failed: bool = False
    """Trials that have failed are run again as well."""
    ran_s: float = 0.0
    """How long the drivers before were on it, as far as they have told."""


class RunEnded(Record, frozen=True, tag=True, kw_only=True):
    """The run is over."""

    ending: str
    """One of the values of `state.sweep.Ending`."""
    reason: str = ""
    seconds: float = 0.0
    """That its driver was on it."""


AnyRecord = (
    DriverStarted
    | TrialsAdded
    | GangFormed
    | CheckpointAcknowledged
    | SaveFailed
    | CheckpointCorrupt
    | CheckpointsDropped
    | GangRestarted
    | LossRecorded
    | GangRecovered
    | TrialReported
    | TrialConcluded
    | RunEnded
)
