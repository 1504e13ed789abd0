"""One run: its trials, which of them is next, and when it is over."""

from collections import deque
from enum import StrEnum

from sparktrain.ids import Generation, RunId, TrialId
from sparktrain.state.events import RunLimits, Suggested
from sparktrain.state.gang import Gang
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.restart import Decision, decide
from sparktrain.state.trial import Trial, TrialStatus


class Ending(StrEnum):
    """Why a run is over."""

    COMPLETE = "complete"  # every trial that the sampler had is final
    STOPPED = "stopped"  # by the user or by the run's timeout
    NO_AGENTS = "no agents"  # fewer agents than a gang needs, for too long
    UNAVAILABLE = "unavailable"  # the agents' Spark job is over for good
    UNLOADABLE = "unloadable"  # executors cannot load the training function

    @property
    def infrastructure(self) -> bool:
        """The cluster ended the run: trials without a result are lost, not stopped."""
        return self in (Ending.NO_AGENTS, Ending.UNAVAILABLE)


class Sweep:
    """The trials of one run. A run of one trial is a sweep too."""

    def __init__(self, run: RunId, limits: RunLimits, at: float) -> None:
        self.run = run
        self.limits = limits
        self.begun_at = at
        self.trials: dict[TrialId, Trial] = {}
        self.queue: deque[Trial] = deque()
        self.gangs: dict[TrialId, Gang] = {}
        """Gangs that have not ended."""
        self.suggesting = False
        self.starved = False
        """The sampler had no trial to give, and is asked again when one has ended."""
        self.exhausted = False
        self.ever_entered = False
        """Some member has entered the training function: executors can load it."""
        self.stop: tuple[str, Ending] | None = None
        """Why nothing new starts."""
        self.kill_at: float | None = None
        """Once stopping: when what still runs is ended."""
        self.ended = False
        """`EndRun` has been told."""
        self.short_since: float | None = at
        """Since when there are fewer agents than one gang needs."""

    def add(self, suggested: Suggested) -> list[Trial]:
        """Queue new trials; those that come after a stop are returned, stopped."""
        self.suggesting = False
        self.starved = not suggested.cases
        self.exhausted = suggested.exhausted or (self.starved and not self.gangs)
        trials = []
        for params in suggested.cases:
            trial = Trial(TrialId(len(self.trials)), params)
            self.trials[trial.id] = trial
            trials.append(trial)
        self.queue.extend(trials)
        return self.clear_queue() if self.stop else []

    def next_gang(self, agents: Gang) -> Trial:
        """Take the longest queued trial and give it the gang; the gang's trial and generation must be its own."""
        trial = self.queue.popleft()
        trial.move(TrialStatus.RUNNING)
        trial.generation = agents.generation
        trial.started_at = None
        trial.last_report = None
        self.gangs[trial.id] = agents
        return trial

    def peek(self) -> tuple[TrialId, Generation]:
        """The trial that is next, and the generation that its gang will have."""
        trial = self.queue[0]
        return trial.id, Generation(trial.generation + 1)

    def conclude(self, gang: Gang) -> Trial | None:
        """The gang has ended: its trial, when it is final now; None when it is queued again."""
        del self.gangs[gang.trial]
        self.starved = False
        trial, outcome = self.trials[gang.trial], gang.verdict()
        trial.seconds, trial.failure = outcome.seconds, outcome.failure
        if outcome.failure is None:
            trial.metrics = outcome.metrics or {}
            trial.move(TrialStatus.SUCCEEDED)
            return trial
        return self._failed(trial, outcome.failure)

    def _failed(self, trial: Trial, failure: Failure) -> Trial | None:
        trial.times_lost += failure.kind is FailureKind.LOST
        decision = decide(failure.kind, trial.times_lost, self.limits.retries, stopping=self.stop is not None)
        if decision is Decision.RETRY:
            trial.move(TrialStatus.QUEUED)
            self.queue.appendleft(trial)
            return None
        final = {Decision.FAIL: TrialStatus.FAILED, Decision.GIVE_UP: TrialStatus.LOST}
        trial.move(final.get(decision, self._unfinished))
        return trial

    @property
    def _unfinished(self) -> TrialStatus:
        """Final status of a trial that the end of the run leaves without a result."""
        return TrialStatus.LOST if self.stop and self.stop[1].infrastructure else TrialStatus.STOPPED

    def clear_queue(self) -> list[Trial]:
        """End every queued trial, for the run stops; the ended ones."""
        ended = list(self.queue)
        self.queue.clear()
        for trial in ended:
            trial.move(self._unfinished)
            why = self.stop[0] if self.stop else "the run was stopped"
            trial.failure = trial.failure or Failure(FailureKind.STOPPED, f"not run: {why}")
        return ended

    @property
    def wants_trials(self) -> bool:
        """The sampler should be asked for as many trials as can start."""
        return not (self.queue or self.suggesting or self.starved or self.exhausted or self.stop)

    @property
    def over(self) -> bool:
        """Each trial that was suggested is final, and no more will come."""
        no_more = self.stop is not None or (self.exhausted and not self.suggesting)
        return no_more and not self.queue and not self.gangs


def lost(reason: str) -> Outcome:
    """The outcome of a member whose agent is lost."""
    return Outcome(seconds=0.0, failure=Failure(FailureKind.LOST, reason))
