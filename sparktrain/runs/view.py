"""A run as its directory tells of it, to whoever looks: what each trial does, and who is on the run. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.ids import RunId, TrialId
from sparktrain.rundir.journal.writer import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus, best_of, status_of
from sparktrain.runs.trial_result import Home, TrialResult, result_of
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.events import RunLimits
from sparktrain.state.outcome import Report
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    DriverStarted,
    GangFormed,
    RunEnded,
    TrialReported,
)
from sparktrain.state.recovery import fold
from sparktrain.state.sweep import Ending, Sweep
from sparktrain.state.trial import Trial, TrialStatus
from sparktrain.store.base import Store


class RunState(StrEnum):
    """Whether somebody is on a run. The value is the word in JSON."""

    RUNNING = "running"  # its driver answers
    GONE = "gone"  # its driver does not answer, and has not said that it was done
    ENDED = "ended"  # its driver has said that it was done


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What was read of a run."""

    kind: str
    """`sweep` or `run`: the call that began it."""
    function: str
    spec: SweepSpec
    total: int | None
    """Trials that there will be, where that is known."""
    begun: float | None
    """When the first driver began, in seconds since 1970, by its own clock; so are all times here."""
    store: Store
    layout: RunLayout
    records: Sequence[AnyRecord]
    notes: tuple[str, ...] = ()
    """What is to be said of the journal."""
    driver: DriverIdentity | None = None
    """That was last on the run."""
    alive: bool = False
    """It answers."""
    near: bool = False
    """It is, or was, on the host of who looks."""


@dataclass(frozen=True)
class TrialView:
    """One trial, at any time of its life."""

    result: TrialResult
    """As `results.json` has it, but for the status, which may not be final yet."""
    since: float | None
    """When its newest gang was formed."""
    report: Report | None
    """The newest of the newest gang, as far as the journal has it: each ten seconds."""
    reported: float | None
    checkpoint: Checkpoint | None
    """The newest that counts."""
    manifest: str | None
    """Where its manifest is."""
    saved: float | None
    """When it was acknowledged."""
    kept: tuple[Checkpoint, ...]
    """All that count, the oldest first."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run at one moment. Times are in seconds since 1970, by the clocks of the drivers."""

    name: str
    kind: str
    function: str
    directory: str
    state: RunState
    ending: str | None
    """Why its driver was done, one of the values of `Ending`; None unless it was."""
    reason: str
    metric: str | None
    mode: str
    gang: int
    """Members in the gang of each trial."""
    total: int | None
    begun: float | None
    driver: DriverIdentity | None
    near: bool
    """The driver is, or was, on the host of who looks."""
    began: float | None
    """When the newest driver began."""
    ran_s: float
    """How long drivers were on the run, as far as the newest has told."""
    heard: float | None
    """When the newest record was written."""
    trials: tuple[TrialView, ...]
    notes: tuple[str, ...] = ()
    counts: dict[TrialStatus, int] = field(default_factory=dict)

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """The trials, in the order of their ids."""
        return tuple(trial.result for trial in self.trials)

    @property
    def best(self) -> TrialResult | None:
        """The best trial so far."""
        return best_of(self.results, self.metric, self.mode)

    @property
    def done(self) -> int:
        """Trials whose status is final."""
        return sum(count for status, count in self.counts.items() if status.final)

    @property
    def left(self) -> int | None:
        """Trials that a driver has yet to run to their end; None when nobody knows."""
        observed = sum(count for status, count in self.counts.items() if status.observed)
        return None if self.total is None else max(0, self.total - observed)

    @property
    def complete(self) -> bool:
        """There is nothing to resume: trials that were lost for good would be run again."""
        done = self.state is RunState.ENDED and self.ending == Ending.COMPLETE
        return done and all(trial.result.status.observed for trial in self.trials)

    @property
    def status(self) -> SweepStatus | None:
        """How it ended, as `results.json` says it; None unless it did."""
        if self.state is not RunState.ENDED:
            return None
        return status_of(self.results, stopped=self.ending == Ending.STOPPED, failing=self.ending == Ending.FAILING)

    def seconds(self, now: float) -> float:
        """How long drivers have been on the run, at `now` by this host's clock."""
        if self.state is RunState.ENDED or self.began is None:
            return self.ran_s
        until = now if self.state is RunState.RUNNING else max(self.began, self.heard or self.began)
        return self.ran_s + max(0.0, until - self.began)

    def as_outcome(self) -> SweepOutcome:
        """The run as `results.json` has it, once it has ended."""
        return SweepOutcome(
            name=self.name,
            status=self.status or SweepStatus.STOPPED,
            metric=self.metric,
            mode=self.mode,
            seconds=self.ran_s,
            directory=self.directory,
            trials=self.results,
            reason=self.reason or None,
        )


def view_of(known: RunData) -> RunView:
    """The run as its records tell of it."""
    sweep = Sweep(RunId(known.spec.name), RunLimits(), 0.0)
    fold(sweep, known.records)
    times = _Times(known.records)
    trials = tuple(_trial(trial, known, times) for trial in sweep.trials.values())
    end = times.end
    state = RunState.ENDED if end is not None else RunState.RUNNING if known.alive else RunState.GONE
    return RunView(
        name=known.spec.name,
        kind=known.kind,
        function=known.function,
        directory=known.store.where(known.layout.path),
        state=state,
        ending=end.ending if end is not None else None,
        reason=end.reason if end is not None else "",
        metric=known.spec.metric,
        mode=known.spec.mode,
        gang=known.spec.gang.size,
        total=known.total,
        begun=known.begun,
        driver=known.driver,
        near=known.near,
        began=times.began,
        ran_s=sweep.ran_s,
        heard=max((record.at for record in known.records), default=0.0) or None,
        trials=trials,
        notes=known.notes,
        counts=Counter(trial.result.status for trial in trials),
    )


class _Times:
    """When things came to pass, by the newest record of each."""

    def __init__(self, records: Sequence[AnyRecord]) -> None:
        self.began: float | None = None
        self.end: RunEnded | None = None
        self.formed: dict[TrialId, float] = {}
        self.reported: dict[TrialId, float] = {}
        self.saved: dict[str, float] = {}
        for record in records:
            self._see(record)

    def _see(self, record: AnyRecord) -> None:
        match record:
            case DriverStarted(at=at):
                self.began, self.end = at, None
            case RunEnded():
                self.end = record
            case GangFormed(trial=trial, at=at):
                self.formed[trial] = at
                self.reported.pop(trial, None)
            case TrialReported(trial=trial, at=at):
                self.reported[trial] = at
            case CheckpointAcknowledged(checkpoint=checkpoint, at=at):
                self.saved[checkpoint.manifest] = at


def _trial(trial: Trial, home: Home, times: _Times) -> TrialView:
    newest = trial.checkpoints.newest
    return TrialView(
        result=result_of(trial, home),
        since=times.formed.get(trial.id),
        report=trial.last_report,
        reported=times.reported.get(trial.id),
        checkpoint=newest,
        manifest=home.store.where(newest.manifest) if newest is not None else None,
        saved=times.saved.get(newest.manifest) if newest is not None else None,
        kept=tuple(trial.checkpoints.kept),
    )
