"""A run as its directory shows it: what each trial does, and which driver owns the run. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from sparktrain.base import formatting
from sparktrain.base.ids import TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.trial_labels import TrialLabels
from sparktrain.runs.case_result import CaseResult
from sparktrain.runs.next_commands import NextCommands, next_commands
from sparktrain.runs.plan import Plan
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus, status_of
from sparktrain.runs.trial_result import TrialResult, result_of
from sparktrain.state import records as fact
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.ending import Ending
from sparktrain.state.gangs.step_times import GangTimes
from sparktrain.state.outcome import Report
from sparktrain.state.recovery import folded
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus
from sparktrain.store.base import Store


class RunState(StrEnum):
    """Whether a driver owns a run. The value is the word in JSON."""

    RUNNING = "running"  # its driver answers
    GONE = "gone"  # its driver does not answer, and has not recorded its end
    ENDED = "ended"  # its driver has recorded its end


@dataclass(frozen=True, kw_only=True)
class RunDriver:
    """The newest driver of a run, as this host sees it."""

    identity: DriverIdentity | None = None
    """None where no driver has started the run, or resumed the copy of one."""
    copied: bool = False
    """Whether the directory is a copy that no driver has resumed."""
    alive: bool = False
    """Whether it answers."""
    same_host: bool = False
    """Whether it runs, or ran, on this host."""
    board: str | None = None
    """The URL of the TensorBoard that it serves."""


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """When drivers ran, in seconds since 1970 by their clocks."""

    started: float | None
    """When the first driver started."""
    driver_started: float | None
    """When the newest driver started."""
    last_record: float | None
    """When the newest record was written."""
    ran_s: float = 0.0
    """How long drivers have run: one that is gone, up to its newest record; without the one that runs."""
    wall_s: float = 0.0
    """From the start of the first driver to the newest record."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The files of a run, as they were read."""

    plan: Plan
    """Of the newest driver."""
    overview: Mapping[str, object]
    """What `run.json` has."""
    store: Store
    layout: RunLayout
    records: Sequence[fact.AnyRecord]
    notes: tuple[str, ...] = ()
    """What the user should know about the journal."""
    driver: RunDriver = RunDriver()
    labels: Mapping[int, TrialLabels] = field(default_factory=dict)
    """The notes and tags of its trials."""

    @cached_property
    def spec(self) -> SweepSpec:
        """The specification of the run."""
        return self.plan.sweep_spec()


@dataclass(frozen=True)
class TrialView:
    """One trial, at any time of its life."""

    result: TrialResult
    """The trial as in `results.json`, with a status that may not be final yet."""
    since: float | None
    """When its newest gang started."""
    report: Report | None
    """The newest report of the newest gang in the journal, which gets one every ten seconds."""
    reported: float | None
    checkpoint: Checkpoint | None
    """The newest checkpoint that counts."""
    manifest: str | None
    """Where the manifest of that checkpoint is."""
    saved: float | None
    """When that checkpoint was acknowledged."""
    checkpoints: tuple[Checkpoint, ...]
    """All checkpoints that count, the oldest first."""
    last_step: int | None = None
    """The step of its last report, where it has ended and the driver has recorded that."""
    step_times: GangTimes | None = None
    """Where the steps of its newest gang go, as the journal has it every 30 seconds; None in a trial of one member."""

    @property
    def step(self) -> int | None:
        """The step of the newest report that is known: of a trial that has ended, the last one."""
        if self.last_step is not None:
            return self.last_step
        return None if self.report is None else self.report.step


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run at one moment."""

    kind: str
    function: str
    directory: str
    spec: SweepSpec
    state: RunState
    end: fact.RunEnded | None
    """How its newest driver ended it; None unless it did."""
    total: int | None
    times: RunTimes
    driver: RunDriver
    trials: tuple[TrialView, ...]
    commands: NextCommands = NextCommands()  # noqa: RUF009 - it is frozen
    """What continues the run."""
    notes: tuple[str, ...] = ()
    """What the user should know about the journal."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.spec.name

    @cached_property
    def counts(self) -> Mapping[TrialStatus, int]:
        """Trials by status."""
        return Counter(trial.result.status for trial in self.trials)

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """The trials, in the order of their ids."""
        return tuple(trial.result for trial in self.trials)

    @property
    def best(self) -> TrialResult | None:
        """The best trial so far; with repeats or folds, the best one of the best case."""
        return next(iter(self.as_outcome().ranked), None)

    @property
    def leader(self) -> TrialResult | CaseResult | None:
        """The best trial so far; with repeats or folds, the best case."""
        return self.best if self.spec.replication.size == 1 else next(iter(self.as_outcome().ranked_cases), None)

    @property
    def done(self) -> int:
        """Trials with a final status."""
        return sum(count for status, count in self.counts.items() if status.final)

    @property
    def remaining(self) -> int | None:
        """Trials that a driver must still run; None when the total is unknown."""
        observed = sum(count for status, count in self.counts.items() if status.observed)
        return None if self.total is None else max(0, self.total - observed)

    @property
    def complete(self) -> bool:
        """There is nothing to resume; a resume would retry lost trials."""
        is_finished = self._has_ended(Ending.COMPLETE)
        return is_finished and all(trial.result.status.observed for trial in self.trials)

    @property
    def status(self) -> SweepStatus | None:
        """How it ended, as in `results.json`; None unless it did."""
        if self.state is not RunState.ENDED:
            return None
        return status_of(self.results, stopped=self._was_interrupted, failing=self._has_ended(Ending.FAILING))

    def seconds(self, now: float) -> float:
        """How long drivers have run, at `now` by this host's clock."""
        times = self.times
        if self.state is not RunState.RUNNING or times.driver_started is None:
            return times.ran_s
        return times.ran_s + max(0.0, now - times.driver_started)

    def wall_seconds(self, now: float) -> float:
        """From the start of the first driver to the end, to the last sign of a driver that is gone, or to `now`."""
        times = self.times
        if self.state is not RunState.RUNNING or times.last_record is None:
            return times.wall_s
        return times.wall_s + max(0.0, now - times.last_record)

    def as_outcome(self) -> SweepOutcome:
        """The run as in `results.json`, once it has ended."""
        return self._outcome

    @cached_property
    def _outcome(self) -> SweepOutcome:
        spec = self.spec
        return SweepOutcome(
            name=spec.name,
            status=self.status or SweepStatus.STOPPED,
            metric=spec.metric,
            mode=spec.mode,
            seconds=self.times.ran_s,
            wall_seconds=self.times.wall_s,
            directory=self.directory,
            trials=self.results,
            reason=(self.end.reason if self.end is not None else "") or None,
            repeats=spec.replication.repeats,
            folds=spec.replication.folds,
            other_metrics=spec.other_metrics,
            constraints=spec.constraints,
        )

    @property
    def _was_interrupted(self) -> bool:
        return self._has_ended(Ending.STOPPED) or self._has_ended(Ending.TERMINATED)

    def _has_ended(self, ending: Ending) -> bool:
        return self.state is RunState.ENDED and self.end is not None and self.end.ending == ending


def view_of(data: RunData) -> RunView:
    """The run as its records show it."""
    sweep = folded(data.records)
    times = _Times(data.records)
    trials = tuple(_trial(trial, data, times) for trial in sweep.trials.values())
    # `run.json` is written once: of a run that was extended it has the number of the first driver.
    total = data.overview.get("trials") if times.total is None else times.total
    started = data.overview.get("started")
    state = RunState.ENDED if times.end is not None else RunState.RUNNING if data.driver.alive else RunState.GONE
    return RunView(
        kind=data.plan.kind,
        function=data.plan.function,
        directory=data.store.where(data.layout.path),
        spec=data.spec,
        state=state,
        end=times.end,
        total=total if isinstance(total, int) else None,
        times=RunTimes(
            started=started if isinstance(started, float | int) else None,
            driver_started=times.driver_started,
            last_record=max((record.at for record in data.records), default=0.0) or None,
            ran_s=sweep.ran_s + (sweep.times.unended_s if state is RunState.GONE else 0.0),
            wall_s=sweep.times.wall_s,
        ),
        driver=data.driver,
        trials=trials,
        commands=next_commands(data.plan, local=times.local),
        notes=(*data.notes, *_drain_notes(data.records), *(_standby_notes(sweep) if state is RunState.RUNNING else ())),
    )


def _standby_notes(sweep: Sweep) -> Iterator[str]:
    """The processes that wait for the loss of a member of a gang that trains."""
    running = (trial for trial in sweep.trials.values() if trial.status is TrialStatus.RUNNING)
    yield from (trial.attempt.standby for trial in running if trial.attempt.standby)


def _drain_notes(records: Sequence[fact.AnyRecord]) -> Iterator[str]:
    """What the newest driver drains, or has drained."""
    drains: dict[str, fact.DrainDecided] = {}
    completed: set[str] = set()
    for record in records:
        match record:
            case fact.DriverStarted():
                drains = {request: decided for request, decided in drains.items() if decided.agent is None}
            case fact.DrainDecided(problem="", cancels=True):
                drains = {request: decided for request, decided in drains.items() if not _cancelled(decided, record)}
            case fact.DrainDecided(problem=""):
                drains[record.request] = record
            case fact.DrainCompleted(request=request):
                completed.add(request)
            case fact.RunEnded():
                completed.update(drains)
    announced = [request for request in drains if drains[request].notice and request in completed]
    if announced:
        newest = drains[announced[-1]]
        agents = formatting.count(len(announced), "agent")
        yield f"{agents} had notice, and no member is left there: {_announced(newest)}"
    notes: dict[str, str] = {}
    for request, decided in drains.items():
        if decided.notice and request not in completed:
            within = "" if decided.within_s is None else f", and leaves within {decided.within_s:g} s"
            notes[_announced(decided)] = f"is being drained{within}: its members move, or finish"
        elif not decided.notice:
            subject = decided.host if decided.agent is None else f"agent {decided.agent} on {decided.host}"
            done = "is drained: no member runs there, and none starts"
            notes[subject] = done if request in completed else "is being drained: its members move, or finish"
    yield from (f"{subject} {note}" for subject, note in notes.items())


def _cancelled(decided: fact.DrainDecided, by: fact.DrainDecided) -> bool:
    return not decided.notice and decided.host == by.host and by.agent in (None, decided.agent)


def _announced(decided: fact.DrainDecided) -> str:
    return f"agent {decided.agent} on {decided.host} ({formatting.plain(decided.notice)})"


class _Times:
    """When things happened, by the newest record of each."""

    def __init__(self, records: Sequence[fact.AnyRecord]) -> None:
        self.driver_started: float | None = None
        self.local = False
        self.total: int | None = None
        self.end: fact.RunEnded | None = None
        self.formed: dict[TrialId, float] = {}
        self.reported: dict[TrialId, float] = {}
        self.saved: dict[str, float] = {}
        self.last_steps: dict[TrialId, int | None] = {}
        for record in records:
            self._see(record)

    def _see(self, record: fact.AnyRecord) -> None:
        match record:
            case fact.DriverStarted(at=at, trials=total, local=local):
                self.driver_started = at
                self.total = total
                self.end = None
                self.local = local
            case fact.RunEnded():
                self.end = record
            case fact.GangFormed(trial=trial, at=at):
                self.formed[trial] = at
                self.reported.pop(trial, None)
                self.last_steps.pop(trial, None)
            case fact.TrialReported(trial=trial, at=at):
                self.reported[trial] = at
            case fact.TrialConcluded(trial=trial, step=step):
                self.last_steps[trial] = step
            case fact.CheckpointAcknowledged(checkpoint=checkpoint, at=at):
                self.saved[checkpoint.manifest] = at


def _trial(trial: Trial, run: RunData, times: _Times) -> TrialView:
    newest = trial.checkpoints.newest
    result = result_of(trial, run)
    if (labels := run.labels.get(trial.id)) is not None:
        result = replace(result, notes=labels.notes, tags=labels.tags)
    return TrialView(
        result=result,
        since=times.formed.get(trial.id),
        report=trial.attempt.last_report,
        reported=times.reported.get(trial.id),
        checkpoint=newest,
        manifest=run.store.where(newest.manifest) if newest is not None else None,
        saved=times.saved.get(newest.manifest) if newest is not None else None,
        checkpoints=tuple(trial.checkpoints.retained),
        last_step=times.last_steps.get(trial.id),
        step_times=trial.attempt.step_times,
    )
