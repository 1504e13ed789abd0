"""The progress of a run for display, from the state machine."""

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

from sparktrain.base.formatting import count
from sparktrain.base.ids import CHIEF, Rank, TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.display.progress import MemberLine, MemberState, Progress, RunningTrial
from sparktrain.display.time_left import TrialTimes, time_left
from sparktrain.driver.run_request import RunRequest
from sparktrain.runs.sweep_outcome import best_of
from sparktrain.state.cases.case_end import CaseEnd, end_of
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.handovers import standby_line
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Restart
from sparktrain.state.prospects import has_member_of, useful
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import NOT_FORMED, Trial, TrialStatus

_TIMED = (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.PRUNED)


class Tally:
    """Counts of the final trials. Under one driver a final status never changes."""

    def __init__(self, spec: SweepSpec, trials: Iterable[Trial] = ()) -> None:
        """`trials` are those of the run at its start, in any status."""
        self.counts: Counter[TrialStatus] = Counter()
        self.restarts = 0
        self.best: Trial | CaseEnd | None = None
        """Of those that succeeded; None without a metric. With repeats or folds the best case."""
        self._open: dict[int, list[Trial]] = {}
        """Final trials of cases that have others."""
        self._spec = spec
        self._counted_trials: set[TrialId] = set()
        self.times = TrialTimes()
        """Of those that ended by themselves, or by a rule; also under earlier drivers."""
        for trial in trials:
            self.add(trial)

    @property
    def done(self) -> int:
        """Number of final trials."""
        return len(self._counted_trials)

    def add(self, trial: Trial) -> None:
        """Count the trial, if it is final and was not counted before."""
        if not trial.status.final or trial.id in self._counted_trials:
            return
        self._counted_trials.add(trial.id)
        self.counts[trial.status] += 1
        self.restarts += trial.restart_history.losses
        if trial.status in _TIMED and trial.generation != NOT_FORMED:
            self.times.add(trial.outcome.seconds)
        ended = trial if self._spec.replication.size == 1 else self._case_of(trial)
        if ended is not None and ended.status is TrialStatus.SUCCEEDED:
            best = [ended] if self.best is None else [self.best, ended]
            self.best = best_of(best, self._spec.metric, self._spec.mode, self._spec.constraints)

    def _case_of(self, trial: Trial) -> CaseEnd | None:
        """The case that the trial completes."""
        shape = self._spec.replication
        trials = self._open.setdefault(shape.case(trial.id), [])
        trials.append(trial)
        if len(trials) < shape.size:
            return None
        return end_of(shape.case(trial.id), self._open.pop(shape.case(trial.id)), self._spec.metric or "")


BEHIND_S = 5.0
"""A store that takes so long for some records is shown."""

SHARE = 0.02
"""Part of the time that the progress of all runs may take: with thousands of running trials it is made less often."""
LONGEST_PAUSE_S = 2.0
_NAMED = 3
"""How many other runs a note names."""


class ProgressPace:
    """When to make the progress of a run the next time."""

    def __init__(self) -> None:
        self._due_at = 0.0

    def is_due(self, at: float) -> bool:
        """Enough time has passed since the last one."""
        return at >= self._due_at

    def record(self, at: float, took_s: float, runs: int = 1) -> None:
        """Progress was made at `at`, which took `took_s` seconds; `runs` show their progress in turn."""
        # Twenty runs that each took their 2 % left the coordinator little more than half of its time.
        self._due_at = at + min(took_s * runs / SHARE, LONGEST_PAUSE_S)


def progress_of(
    machine: Machine,
    work: RunRequest,
    at: float,
    behind_s: float = 0.0,
    outlook: str = "",
    tally: Tally | None = None,
    slow: str = "",
    sweep: Sweep | None = None,
) -> Progress:
    """How a run of the machine stands at `at`, by default the newest; the journal is `behind_s` seconds at its newest
    records. `outlook` is the cluster's report about agents that have not joined, `slow` names a sampler that takes
    long. With a `tally` of the ended trials, it looks at the others only."""
    sweep = sweep or machine.last
    assert sweep is not None
    alive = machine.agents_of(sweep.run)
    trials = sweep.trials
    ended = _counted(work, trials.values()) if tally is None else tally
    active = [trials[trial_id] for trial_id in sorted(sweep.gangs) if trials[trial_id].status is TrialStatus.RUNNING]
    running = tuple(_running(trial, at, sweep.gangs[trial.id], work.spec.gang.standby) for trial in active)
    best = ended.best
    queued = len(sweep.queue)
    elapsed = [trial.seconds for trial in running]
    slots = min(alive, work.agents) // work.spec.gang.size
    to_come = None if work.total is None else work.total - ended.done - len(running)
    again = [*active, *takewhile(lambda trial: trial.generation != NOT_FORMED, sweep.queue)]
    return Progress(
        name=work.spec.name,
        total=work.total,
        done=ended.done,
        running=len(running),
        queued=queued,
        failed=ended.counts[TrialStatus.FAILED],
        lost=ended.counts[TrialStatus.LOST],
        stopped=ended.counts[TrialStatus.STOPPED],
        pruned=ended.counts[TrialStatus.PRUNED],
        seconds=sweep.ran_until(at),
        paused=len(sweep.paused),
        eta_s=None if to_come is None else time_left(ended.times, elapsed, to_come, slots),
        metric=work.spec.metric,
        best=(best.id, best.metrics[str(work.spec.metric)]) if best is not None else None,
        replicas=work.spec.replication.size,
        agents_alive=alive,
        agents_wanted=work.agents,
        restarts=ended.restarts + sum(trial.restart_history.losses for trial in again),
        running_trials=running,
        gang=work.spec.gang.size,
        in_step=work.spec.gang.in_step,
        causes=_causes(trials[TrialId(0)]) if work.total == 1 and trials else (),
        note=_store_note(work, behind_s) or slow or _note(machine, sweep, work, at, outlook) or _unsaved(active),
    )


def _counted(work: RunRequest, trials: Iterable[Trial]) -> Tally:
    tally = Tally(work.spec)
    for trial in trials:
        tally.add(trial)
    return tally


def _causes(trial: Trial) -> tuple[Restart, ...]:
    """The restarts after which a gang trains."""
    return trial.restarts if trial.restart_history.failed_at is None else trial.restarts[:-1]


def _members(trial: Trial, gang: Gang) -> tuple[MemberLine, ...]:
    """The members that a running trial's gang has now; none where a trial has one member."""
    if gang.size == 1:
        return ()
    return tuple(_member(trial, gang, rank) for rank in gang.ranks)


def _member(trial: Trial, gang: Gang, rank: Rank) -> MemberLine:
    place = gang.places[rank]
    pace = gang.progress.paces.get(rank)
    report = trial.attempt.last_report if rank == CHIEF else None
    step = pace.step if pace is not None else None
    return MemberLine(
        rank=rank,
        host=place.host,
        role=place.role,
        state=_state(gang, rank),
        step=report.step if step is None and report is not None else step,
        steps_per_s=pace.per_s or None if pace is not None else None,
        metrics=report.metrics if report is not None else {},
        times=pace.times if pace is not None else None,
    )


def _state(gang: Gang, rank: Rank) -> MemberState:
    states = {SeatState.LEFT: MemberState.ENDED, SeatState.TRAINING: MemberState.TRAINING}
    return states.get(gang.state_of(rank), MemberState.STARTING)


def _running(trial: Trial, at: float, gang: Gang, standby: int) -> RunningTrial:
    report = trial.attempt.last_report
    return RunningTrial(
        id=trial.id,
        params=trial.params,
        seconds=0.0 if trial.attempt.started_at is None else at - trial.attempt.started_at,
        step=report.step if report is not None else None,
        metrics=report.metrics if report is not None else {},
        host=trial.host,
        members=_members(trial, gang),
        slow=gang.progress.slow,
        standby=standby_line(gang, standby),
    )


def _store_note(work: RunRequest, behind_s: float) -> str:
    """Nothing new can start, and no result counts, before the store has taken the records that are due."""
    if behind_s < BEHIND_S:
        return ""
    timeout_s = work.store.address.timeout_s
    return f"waiting {behind_s:.0f} s for the store ({work.store.where()}); gives up after {timeout_s:.0f} s"


def _unsaved(trials: list[Trial]) -> str:
    """The first running trial that cannot be checkpointed: it continues, and a restart would cost more and more."""
    notes = (f"trial {trial.id}: {trial.checkpoints.unsaved}" for trial in trials if trial.checkpoints.unsaved)
    return next(notes, "")


def _note(machine: Machine, sweep: Sweep, work: RunRequest, at: float, outlook: str) -> str:
    if sweep.stop is not None and not sweep.ended:
        return f"stopping: {sweep.stop.reason}"
    missing = outlook if len(machine.agents) < work.agents else ""
    if sweep.ended:
        return missing
    notes = (
        _unexplained(sweep),
        _waiting(machine, sweep, work, at),
        _unwell(machine, sweep),
        _drained(machine, sweep),
        _crowded_out(machine, sweep),
    )
    if any(notes):
        return "; ".join(filter(None, (*notes, missing)))
    return missing if machine.is_ready(sweep.run) else "agents are loading the frameworks"


def _crowded_out(machine: Machine, sweep: Sweep) -> str:
    """Note on the other runs of the pool, while they have all its agents."""
    rivals = [run for run in machine.runs if run != sweep.run]
    if not rivals or machine.agents_of(sweep.run) or not len(machine.agents):
        return ""
    return f"waiting for slots: {', '.join(rivals[:_NAMED])} {'has' if len(rivals) == 1 else 'have'} them"


def _unexplained(sweep: Sweep) -> str:
    """Note on a trial that is about to be given up."""
    ended = (f"trial {gang.trial}" for gang in sweep.gangs.values() if gang.status is GangStatus.ENDED)
    return next((f"waiting for Spark to report why the agent of {trial} was lost" for trial in ended), "")


def _unwell(machine: Machine, sweep: Sweep) -> str:
    """Note on agents that get no members, and on one that keeps the run waiting."""
    if sweep.health.all_well:
        return ""
    agents = machine.agents.all()
    if (excluded := sweep.health.exclusions(agents)) or sweep.gangs or not sweep.queue:
        return excluded
    return next((f"backing off: {why}" for why in map(sweep.health.why, agents) if why), "")


def _drained(machine: Machine, sweep: Sweep) -> str:
    """Note on drained agents that still have members."""
    drains = sweep.drains
    if not drains.open:
        return ""
    busy = [agent for agent in machine.agents.all() if has_member_of(agent, sweep) and drains.covers(agent)]
    hosts = ", ".join(dict.fromkeys(agent.host for agent in busy))
    return f"draining {hosts}: {count(len(busy), 'member')} to move or finish" if busy else ""


def _waiting(machine: Machine, sweep: Sweep, work: RunRequest, at: float) -> str:
    """Note on agents that the run needs to make progress."""
    agents = len(machine.agents)
    if sweep.drains.active:
        agents = useful(machine.agents, sweep)
    if sweep.shortage.of_least_since is not None and sweep.ever_entered:
        left_s = max(0.0, sweep.shortage.of_least_since + sweep.spec.start_timeout_s - at)
        return f"waiting for agents ({agents} of {sweep.limits.least}); gives up in {left_s:.0f} s"
    if not agents:
        return f"waiting for agents (0 of {work.agents})"
    if agents < sweep.limits.least:
        return f"waiting for agents ({agents} of {sweep.limits.least})"
    return ""
