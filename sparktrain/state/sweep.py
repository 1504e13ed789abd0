"""One run: its trials, which of them is next, and when it is over."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from sparktrain.base.ids import Rank, RunId, TrialId
from sparktrain.state import records as fact
from sparktrain.state.agents import AgentState
from sparktrain.state.cases.case_end import CaseEnd
from sparktrain.state.cases.case_table import CaseTable
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import PartsDecision
from sparktrain.state.commands import EndRun
from sparktrain.state.driver_times import DriverTimes
from sparktrain.state.ending import Ending, Stop
from sparktrain.state.events import QuestionAnswered, RunLimits, Suggested
from sparktrain.state.failure_limits import Failures
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.step_times import LOOKED_STEPS, GangTimes, SlowMember
from sparktrain.state.goals import Goals
from sparktrain.state.health import NEVER_ENTERED, Health
from sparktrain.state.losses.absence import Absence, Shortage
from sparktrain.state.losses.drains import Drains
from sparktrain.state.outcome import DRIVER_LOST, Failure, FailureKind, Outcome, Report, Restart, RestartHow
from sparktrain.state.pruning.exploits import Exploits
from sparktrain.state.pruning.pruned_trials import NO_CHECKPOINT, PROMOTED, PrunedTrials
from sparktrain.state.restart import (
    EXCUSED_LIMIT,
    Decision,
    continuation_of,
    decide,
    driver_loss,
    history_of,
    restart_of,
)
from sparktrain.state.trial import Trial, TrialStatus

REPORT_INTERVAL_S = 10.0
"""The journal gets a trial's reports no more often than this: they are for display."""
TIMES_INTERVAL_S = 30.0
"""The same for where the steps of a gang go, but where another member is slow."""


class Sweep:
    """The trials of one run. A run of one trial is a sweep too.

    Others read its attributes; only its own methods, and those of `Trial` and `Gang`, change what they hold.
    """

    def __init__(self, run: RunId, limits: RunLimits, at: float, wall: float | None = None) -> None:
        """`wall` is the moment `at` in seconds since 1970, where that is known."""
        self.run = run
        self.limits = limits
        self.spec = limits.spec
        self.started_at = at
        self._started_wall = at if wall is None else wall
        self.times = DriverTimes()
        self.space = ""
        """Digest of the space that trials come from, see `DriverStarted`."""
        self.trials: dict[TrialId, Trial] = {}
        self.queue: deque[Trial] = deque()
        self.gangs: dict[TrialId, Gang] = {}
        """Gangs that have not ended, and those that wait for the cluster's reason."""
        self.suggesting = False
        self.starved = False
        """The sampler had no trial to give, and is asked once more when one has ended."""
        self.exhausted = False
        self.ever_entered = False
        """Some member has entered the training function: executors can load it."""
        self.health = Health()
        self.drains = Drains()
        self.failures = Failures(limits)
        self.stop: Stop | None = None
        """Why nothing new starts."""
        self.kill_at: float | None = None
        """Once stopping: when members that still run are ended."""
        self.ended = False
        """`EndRun` was given out."""
        self.shortage = Shortage(limits.size, limits.least, at)
        self._facts: list[fact.AnyRecord] = []
        """Records that `take_facts` has not given out."""
        self.observed = 0
        """Results that the sampler has observed, or will have before the next request."""
        self._last_request = (0, 0)
        """Number of cases in the last request to the sampler, and `observed` at that time."""
        self._reported_at: dict[TrialId, float] = {}
        self._timed_at: dict[TrialId, float] = {}
        """When the last report of a trial was recorded."""
        self.paused: dict[TrialId, Trial] = {}
        """Trials that wait for their promotion."""
        self.awaited: dict[TrialId, Trial] = {}
        """Trials with a gang of an earlier driver that may continue: see `losses.adoption`."""
        self.cases = CaseTable(limits.spec.replication.size, limits.spec.metric, self.trials)
        self.pruned = PrunedTrials(limits.spec, self.trials, self.cases)
        self.exploits = Exploits(limits, self.trials)
        self.goals = Goals(limits.spec)

    @property
    def ran_s(self) -> float:
        """Duration of the run under earlier drivers; once it has ended, under this one too."""
        return self.times.ran_s

    def ran_until(self, at: float) -> float:
        """Duration of the run under all drivers, up to `at` under this one."""
        return self.ran_s if self.ended else self.ran_s + at - self.started_at

    # ---- under drivers before, see `recovery`

    def recover_trials(self, added: fact.TrialsAdded) -> None:
        """An earlier driver had these cases of the sampler."""
        self.cases.size = added.each
        self._enlist(added.cases)
        self.exhausted = added.exhausted

    def recover_end(self, trial: Trial) -> None:
        """A trial had its final status."""
        self.pruned.fold_end(trial)
        self._observe(trial)

    def take_over(self, driver: fact.DriverStarted, queue: Iterable[Trial]) -> None:
        """Another driver starts, with the trials of `queue` to run."""
        # Another space has other cases, even where the one before had no more.
        self.exhausted = self.exhausted and self.space == driver.space
        self.space = driver.space
        self.queue = deque(queue)
        self.paused = {trial.id: trial for trial in self.trials.values() if trial.status is TrialStatus.PAUSED}
        self.awaited = {trial.id: trial for trial in self.trials.values() if trial.status is TrialStatus.RUNNING}

    def start_driver(self, facts: Sequence[fact.AnyRecord]) -> None:
        """All records of earlier drivers are folded; `facts` are the first of this one."""
        self._facts += facts
        self.pruned.drop_ended()
        self.failures.succeeded = any(trial.status is TrialStatus.SUCCEEDED for trial in self.trials.values())

    @property
    def settled(self) -> list[Trial]:
        """Trials that an earlier driver had pruned: the first records of this one have their ends."""
        return [self.trials[record.trial] for record in self._facts if isinstance(record, fact.TrialConcluded)]

    # ---- trials and their gangs

    def take_facts(self, at: float) -> list[fact.AnyRecord]:
        """The records since the last call, with the time `at`."""
        facts = self._facts
        self._facts = []
        return [replace(record, at=self._wall(at)) for record in facts]

    def _wall(self, at: float) -> float:
        return self._started_wall + at - self.started_at

    def add(self, suggested: Suggested) -> list[Trial]:
        """Queue new trials; after a stop, return them stopped."""
        self.suggesting = False
        self.starved = not suggested.cases
        self.exhausted = suggested.exhausted or (self.starved and not self.gangs and not self.queue)
        requested, observed = self._last_request
        cases = suggested.cases
        memo = suggested.memo
        added = fact.TrialsAdded(
            cases=cases, exhausted=self.exhausted, asked=requested, observed=observed, memo=memo, each=self.cases.size
        )
        # The numbers of the request and of observed results let a driver that takes over repeat the sampler's calls as
        # they were.
        self._facts.append(added)
        self._enlist(suggested.cases)
        return self.clear_queue() if self.stop else []

    def _enlist(self, cases: tuple[dict[str, Any], ...]) -> None:
        for params in [params for params in cases for _ in range(self.cases.size)]:
            trial = Trial(TrialId(len(self.trials)), params)
            self.trials[trial.id] = trial
            self.queue.append(trial)

    def answered(self, event: QuestionAnswered) -> bool:
        """The sampler has answered a trial; returns whether that is a record."""
        trial = self.trials[event.member.trial]
        if trial.status.final or not (event.params or event.memo):
            return False
        trial.params = trial.params | event.params  # the record of the sampler's case has the dict as it was
        self._facts.append(fact.TrialAnswered(trial=trial.id, params=event.params, memo=event.memo))
        return True

    def ask(self, count: int) -> None:
        """The sampler is asked for `count` cases."""
        self.suggesting = True
        self._last_request = count, self.observed

    def start(self, trial: Trial, gang: Gang) -> None:
        """Take a queued trial and give it the gang; the gang's trial and generation must be its own."""
        self.queue.remove(trial)
        self.failures.started(trial)
        trial.move(TrialStatus.RUNNING)
        trial.form(gang.generation, tuple(place.host for place in gang.places))
        self.gangs[trial.id] = gang
        base = gang.checkpoints.base
        formed = fact.GangFormed(
            trial=trial.id,
            generation=gang.generation,
            hosts=trial.attempt.hosts,
            base="" if base is None else base.digest,
            memory_step=gang.checkpoints.memory_step,
        )
        self._facts.append(formed)

    def adopt(self, trial: Trial, gang: Gang) -> None:
        """The gang of an earlier driver continues."""
        del self.awaited[trial.id]
        self.failures.started(trial)
        self.gangs[trial.id] = gang
        self._facts.append(fact.GangAdopted(trial=trial.id, generation=gang.generation))

    def abandon(self, trial: Trial, at: float) -> Trial | None:
        """The gang of an earlier driver was lost with it: the trial is next, from its checkpoint; returned where it was
        lost too often."""
        del self.awaited[trial.id]
        trial.restart_history.add(driver_loss(trial))
        trial.restart_history.failed_at = at
        self._facts.append(fact.GangRestarted(trial=trial.id, restart=trial.restarts[-1], forgiven=True))
        if trial.spent()[1] > EXCUSED_LIMIT:
            trial.settle(failure=Failure(FailureKind.LOST, DRIVER_LOST))
            self.finish(trial, TrialStatus.LOST)
            return trial
        trial.move(TrialStatus.QUEUED)
        self.queue.appendleft(trial)
        return None

    def enter(self, gang: Gang, rank: Rank, agent: AgentState | None, at: float, *, trains: bool = False) -> bool:
        """Member `rank` of the gang has entered the training function on `agent`; whether it restarts alone.

        `trains`: see `MemberStarted`.
        """
        absence = gang.enter(rank, at, trains=trains)
        self.ever_entered = True
        if agent is not None:
            self.health.entered(agent)
        if absence is not None and absence.ring:
            absence.by = at + self.limits.join_timeout_s  # the function loads its data and builds its model next
        elif absence is not None:
            self.returned(gang, rank, absence, at)
        elif gang.attendance.running_since == at:
            self._running(gang, at)
        return absence is not None

    def returned(self, gang: Gang, rank: Rank, absence: Absence, at: float) -> None:
        """Member `rank`, which was lost, has restarted alone and trains again; or the others train on without it."""
        trial = self.trials[gang.trial]
        failure = absence.failure
        # The member of the ring that is ahead keeps its state, and the others come to it.
        step = max(gang.joined.values(), default=None) if absence.ring else None
        restart = Restart(
            rank=int(rank),
            host=failure.host,
            kind=FailureKind.STOPPED if absence.planned else failure.kind,
            cause=failure.summary,
            seconds=at - absence.since,
            resumed_from_step=trial.checkpoints.newest_step if step is None else step,
            steps_lost=None if step is None else max(0, (absence.step or 0) - step),
            loss=None if absence.planned else failure.loss,
            how=absence.how,
            members=len(gang.ranks) if absence.how is RestartHow.SHRUNK else None,
            full_size=gang.size if absence.how is RestartHow.SHRUNK else None,
            reached_step=absence.step,
        )
        restarts = [restart]
        for loss in absence.later:
            failure = loss.failure
            lost = replace(restart, kind=failure.kind, host=failure.host, cause=failure.summary, loss=failure.loss)
            seconds = restart.seconds - loss.after_s
            restarts.append(replace(lost, seconds=seconds, steps_lost=None if step is None else 0))
        member = gang.member(rank)
        lost_processes = [*(loss.former for loss in absence.later), absence.incarnation]
        for entry, incarnation in zip(restarts, lost_processes, strict=True):
            trial.restart_history.add(entry, replace(member, incarnation=incarnation), member.incarnation)
            restarted = fact.MemberRestarted(
                trial=trial.id, generation=gang.generation, restart=entry, incarnation=member.incarnation
            )
            self._facts.append(restarted)

    def _running(self, gang: Gang, at: float) -> None:
        trial = self.trials[gang.trial]
        trial.attempt.started_at = at
        failed_at = trial.restart_history.failed_at
        if failed_at is not None:
            trial.restart_history.recover(at - failed_at)
            self._facts.append(fact.GangRecovered(trial=trial.id, seconds=at - failed_at))

    def report(self, gang: Gang, reports: Sequence[Report], at: float) -> None:
        """The chief has reported metrics, at least once."""
        trial = self.trials[gang.trial]
        trial.attempt.last_report = reports[-1]
        if at >= self._reported_at.get(gang.trial, -REPORT_INTERVAL_S) + REPORT_INTERVAL_S:
            self._reported_at[gang.trial] = at
            self._facts.append(fact.TrialReported(trial=gang.trial, report=reports[-1]))
        if self.stop is None and not gang.stop.has_started:
            judged = self.pruned.on_reports(trial, reports)
            self._facts += [*judged, *self.exploits.on_records(judged)]

    def time_steps(self, gang: Gang, at: float) -> None:
        """A member of the gang has finished steps; records where those of all go, where that has to be shown."""
        progress = gang.progress
        times = progress.times
        if gang.size == 1 or len(times) < gang.size or any(of.steps < LOOKED_STEPS for of in times.values()):
            return
        attempt = self.trials[gang.trial].attempt
        shown = attempt.step_times
        is_due = at >= self._timed_at.get(gang.trial, -TIMES_INTERVAL_S) + TIMES_INTERVAL_S
        if shown is None or is_due or _rank(shown.slow) != _rank(progress.slow):
            self._timed_at[gang.trial] = at
            attempt.step_times = GangTimes(tuple(times[rank] for rank in sorted(times)), progress.slow)
            self._facts.append(fact.StepsTimed(trial=gang.trial, times=attempt.step_times))

    def unsaved(self, gang: Gang, step: int, problem: str) -> None:
        """A snapshot did not become a checkpoint."""
        self.trials[gang.trial].checkpoints.not_saved(step, problem)
        self._facts.append(fact.SaveFailed(trial=gang.trial, step=step, problem=problem))

    def lacks_part(self, gang: Gang, decisions: Sequence[PartsDecision]) -> None:
        """A step lacks the part of a member that has returned. One that a newer step replaces is no news."""
        for decision in decisions:
            if decision.given_up == gang.checkpoints.parts.step and not decision.late:
                self.unsaved(gang, decision.given_up, decision.problem)

    def acknowledge(self, gang: Gang, new: Checkpoint) -> list[Checkpoint]:
        """A checkpoint counts from now on; returns those that can be deleted."""
        gang.checkpoints.progressed = True
        self._facts.append(fact.CheckpointAcknowledged(trial=gang.trial, checkpoint=new))
        return self.exploits.unused(self.trials[gang.trial].checkpoints.acknowledge(new))

    def conclude(self, gang: Gang, elsewhere: bool = False) -> Trial | None:
        """The gang has ended: returns its trial when that is final, None when it is requeued.

        `elsewhere`: on other hosts members may enter the training function; needed as long as none has.
        """
        del self.gangs[gang.trial]
        self.starved = False
        trial = self.trials[gang.trial]
        outcome = gang.verdict()
        # Without what the function returned: it is no result where the trial only pauses, or is stopped on its way.
        trial.outcome = Outcome(outcome.seconds, failure=outcome.failure, notices=outcome.notices)
        self._facts += self.pruned.on_ended_early(trial, outcome.pruned)
        # The decision is in the journal, so it holds however the gang ends: another driver would prune the trial too.
        if trial.pruning is not None:
            metrics = outcome.metrics or self.pruned.metrics(trial)
            trial.settle(failure=None, metrics=metrics, extra=outcome.extra, exported=outcome.exported)
            self.finish(trial, TrialStatus.PRUNED)
            return trial
        if trial.takeover.reason or (gang.stop.continues and outcome.failure is not None and gang.fault.cause is None):
            return self._again(trial, gang)
        pauses = trial.pause.due is not None or gang.stop.advised_until is not None
        if pauses and not (outcome.failure is None and self.pruned.is_whole(trial)):
            return self._pause(trial, gang, elsewhere)
        if outcome.failure is None and self.stop is not None and trial.pause.ahead is not None:
            return self._stopped(trial)  # on its way to a pause it was advised to return what it had
        if outcome.failure is None:
            advice = (*self.pruned.notices(trial), *filter(None, [trial.takeover.advice]))
            trial.outcome = replace(outcome, notices=(*outcome.notices, *advice))
            self.finish(trial, TrialStatus.SUCCEEDED)
            return trial
        return self._failed(trial, gang, self._reread(gang, outcome.failure, elsewhere))

    def _pause(self, trial: Trial, gang: Gang, elsewhere: bool) -> Trial | None:
        """The gang of a trial that pauses is gone; returns the trial where it cannot continue later."""
        newest = trial.checkpoints.newest
        why = trial.pause.due
        # While the run stops nothing promotes the trial: one that waited held the run.
        if self.stop is not None:
            return self._stopped(trial)
        if newest is None and why is None:  # promoted while its gang ended
            return self._again(trial, gang)
        # The decision to pause is recorded before the trial can save; when its gang dies in between, it trains up to
        # the pause once more.
        if newest is None and (cause := gang.fault.first) is not None:
            cause = self._reread(gang, cause, elsewhere)
            if self.decide(trial, gang, cause) is not Decision.FAIL:  # lost before it could save what it had
                return self._failed(trial, gang, cause)
        if newest is None:
            trial.pruning = why
            trial.settle(failure=None, notices=(*trial.outcome.notices, NO_CHECKPOINT))
            trial.pause.forget()
            self.finish(trial, TrialStatus.PRUNED)
            return trial
        reason = PROMOTED if why is None else why.reason
        pause = Restart(0, trial.host, FailureKind.STOPPED, reason, 0.0, newest.step, 0, how=RestartHow.PAUSED)
        trial.restart_history.add(pause)
        trial.settle(failure=None)
        self._facts.append(fact.TrialPaused(trial=trial.id, restart=pause))
        trial.move(TrialStatus.PAUSED)
        self.paused[trial.id] = trial
        return None

    def _again(self, trial: Trial, gang: Gang) -> Trial | None:
        """The gang is gone, and another one follows: for another trial's state, on more agents or on others, or because
        the trial is promoted and has no checkpoint to wait with. Returns the trial where the run stops."""
        reason = trial.takeover.reason
        trial.takeover.reason = ""
        if self.stop is not None:
            return self._stopped(trial)
        step = trial.checkpoints.newest_step
        again = Restart(0, trial.host, FailureKind.STOPPED, reason or PROMOTED, 0.0, step, 0, how=RestartHow.PAUSED)
        if not reason and gang.stop.continues:
            again = continuation_of(trial, gang)
            trial.restart_history.failed_at = gang.fault.failed_at
        trial.restart_history.add(again)
        trial.settle(failure=None)
        self._facts.append(fact.GangRestarted(trial=trial.id, restart=again))
        trial.move(TrialStatus.QUEUED)
        self.queue.appendleft(trial)
        return None

    def _stopped(self, trial: Trial) -> Trial:
        """The run stops while the gang of a trial ends for a time: the trial has no result."""
        reason = self.stop.reason if self.stop is not None else "the run was stopped"
        trial.settle(failure=Failure(FailureKind.STOPPED, f"ended: {reason}"))
        self.finish(trial, self._unfinished)
        return trial

    def resume(self, trial: Trial) -> None:
        """A paused trial is next."""
        del self.paused[trial.id]
        trial.move(TrialStatus.QUEUED)
        self.queue.appendleft(trial)

    def _reread(self, gang: Gang, failure: Failure, elsewhere: bool) -> Failure:
        """A failure before the training function was entered, which others have entered or may enter, is the host's."""
        rank = Rank(failure.rank or 0)
        if rank in gang.attendance.entered or failure.kind not in NEVER_ENTERED or not (self.ever_entered or elsewhere):
            return failure
        if failure.kind is FailureKind.LOST or failure.loss is not None:
            return failure
        where = f"the training function was not entered on {gang.places[rank].host}"
        return replace(failure, kind=FailureKind.LOST, summary=f"{where}: {failure.summary}")

    def decide(self, trial: Trial, gang: Gang, failure: Failure) -> Decision:
        """The decision for this failure, of the gang or of one member: then `RETRY` allows that it restarts alone."""
        history = history_of(trial, gang, failure, self.limits.recovers)
        return decide(failure.kind, history, self.spec.max_retries, stopping=self.stop is not None)

    def _failed(self, trial: Trial, gang: Gang, failure: Failure) -> Trial | None:
        trial.settle(failure=failure)
        base = gang.checkpoints.base if gang.checkpoints.memory_step is None else None
        if failure.kind is FailureKind.CHECKPOINT and base is not None:
            manifest = base.manifest
            trial.checkpoints.mark_corrupt(manifest, failure.summary)
            self._facts.append(fact.CheckpointCorrupt(trial=trial.id, manifest=manifest, reason=failure.summary))
        decision = self.decide(trial, gang, failure)
        # A restart at step 0 would hide that the training so far is lost.
        if decision is Decision.RETRY and trial.checkpoints.all_corrupt:
            trial.settle(failure=trial.checkpoints.corruption_report(failure))
            decision = Decision.FAIL
        if decision is Decision.RETRY:
            self._restart(trial, gang, failure)
            return None
        final = {Decision.FAIL: TrialStatus.FAILED, Decision.GIVE_UP: TrialStatus.LOST}
        self.finish(trial, final.get(decision, self._unfinished))
        return trial

    def note(self, records: Iterable[fact.AnyRecord]) -> None:
        """Give out `records` with the next facts."""
        self._facts += records

    def stop_trial(self, number: TrialId, reason: str) -> list[Trial]:
        """The user stops a trial: one that runs is advised to stop, and ended after a grace.

        One that waits or is paused is pruned at once, and returned. A trial that is unknown, has its end or is pruned
        already stays as it is.
        """
        trial = self.trials.get(number)
        if trial is None or trial.status.final or trial.pruning is not None:
            return []
        self._facts += self.pruned.on_user_stop(trial, reason)
        if trial.status is TrialStatus.RUNNING:
            return []
        self.prune(trial)
        return [trial]

    def finish(self, trial: Trial, status: TrialStatus) -> None:
        """The trial has its final status."""
        trial.move(status)
        self.paused.pop(trial.id, None)
        self.failures.ended(trial)
        self._observe(trial)
        self._facts.append(
            fact.TrialConcluded(
                trial=trial.id,
                status=status,
                metrics=trial.metrics,
                failure=trial.failure,
                seconds=trial.outcome.seconds,
                notices=trial.outcome.notices,
                extra=trial.outcome.extra,
                exported=trial.outcome.exported,
                step=None if trial.attempt.last_report is None else trial.attempt.last_report.step,
            )
        )
        self._facts += self.pruned.on_end(trial)

    def _observe(self, trial: Trial) -> None:
        """The sampler learns of a case once all its trials have results, and then counts it."""
        case_end = self.cases.ended(trial)
        if case_end is not None:
            self.observed += 1
            self.goals.case_ended(case_end)

    def ended_cases(self) -> list[Trial | CaseEnd]:
        """All cases as they are now; where each has one trial, the trials."""
        if self.cases.size == 1:
            return list(self.trials.values())
        return [self.cases.end(trial) for trial in self.trials.values() if self.cases.is_first(trial.id)]

    def close_case(self, closed: fact.CaseClosed) -> list[Trial]:
        """The case needs no more of its trials; returns those that waited, which are pruned."""
        self._facts.append(closed)
        waiting = [trial for trial in self.pruned.close(closed) if trial.status is not TrialStatus.RUNNING]
        for trial in waiting:
            self.prune(trial)
        return waiting

    def prune(self, trial: Trial) -> None:
        """A rule or the user has stopped a trial that has no gang: it is over."""
        if trial.status is TrialStatus.QUEUED:
            self.queue.remove(trial)
        trial.settle(failure=None, metrics=trial.metrics or self.pruned.metrics(trial))
        self.finish(trial, TrialStatus.PRUNED)

    def _restart(self, trial: Trial, gang: Gang, failure: Failure) -> None:
        restart = restart_of(trial, gang, failure)
        trial.restart_history.add(restart)
        trial.restart_history.failed_at = gang.fault.failed_at
        trial.move(TrialStatus.QUEUED)
        if self.health.barred(trial.id):
            self.queue.append(trial)  # other trials show whether the agent is the cause
        else:
            self.queue.appendleft(trial)
        self._facts.append(fact.GangRestarted(trial=trial.id, restart=restart))

    @property
    def _unfinished(self) -> TrialStatus:
        """Final status of a trial without a result when the run ends."""
        return TrialStatus.LOST if self.stop and self.stop.ending.infrastructure else TrialStatus.STOPPED

    def request_stop(self, reason: str, ending: Ending, kill_at: float | None = None) -> None:
        """Start nothing new. The first reason stays; what runs at the earliest `kill_at` is ended then."""
        self.stop = self.stop or Stop(reason, ending)
        if kill_at is not None:
            self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    def end(self, at: float) -> EndRun:
        """The run is over."""
        self.ended = True
        reason, ending = self.stop or ("", Ending.COMPLETE)
        ended = fact.RunEnded(ending=ending, reason=reason, seconds=at - self.started_at)
        self.times.see(replace(ended, at=self._wall(at)))
        self._facts.append(ended)
        unloadable = self.health.load_failure(self.trials.values()) if ending is Ending.UNLOADABLE else None
        return EndRun(self.run, ending, reason, unloadable)

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`: silence and absence of agents in that time do not count."""
        for gang in self.gangs.values():
            gang.postpone(seconds)
        self.shortage.postpone(seconds)

    def clear_queue(self) -> list[Trial]:
        """End every queued trial, for the run stops; returns them."""
        ended = [*self.queue, *self.paused.values()]
        self.queue.clear()
        for trial in ended:
            why = self.stop.reason if self.stop else "the run was stopped"
            trial.settle(failure=trial.failure or Failure(FailureKind.STOPPED, f"not run: {why}"))
            self.finish(trial, self._unfinished)
        return ended

    @property
    def wants_trials(self) -> bool:
        """The sampler should be asked for as many trials as can start."""
        waiting = any(not self.health.barred(trial.id) for trial in self.queue)
        return not (waiting or self.suggesting or self.starved or self.exhausted or self.stop)

    @property
    def over(self) -> bool:
        """Each trial that was added is final, and no more will come."""
        no_more = self.stop is not None or (self.exhausted and not self.suggesting)
        return no_more and not (self.queue or self.gangs or self.paused or self.awaited)


def _rank(slow: SlowMember | None) -> int | None:
    return None if slow is None else slow.rank
