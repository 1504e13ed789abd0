"""The state of a run as users see it: results of trials, and progress."""

from collections import Counter

from sparktrain.driver.progress import Progress, RunningTrial, eta
from sparktrain.driver.results import TrialResult, best_of
from sparktrain.driver.work import Work
from sparktrain.ids import Member, Rank, RunId
from sparktrain.state.machine import Machine
from sparktrain.state.trial import NOT_FORMED, Trial, TrialStatus


def result_of(trial: Trial, work: Work) -> TrialResult:
    """A trial with a final status."""
    log = None
    if trial.generation != NOT_FORMED:
        chief = Member(RunId(work.spec.name), trial.id, trial.generation, Rank(0))
        log = work.store.where(work.layout.member(chief).log)
    return TrialResult(
        id=trial.id,
        params=trial.params,
        status=trial.status,
        metrics=trial.metrics,
        seconds=trial.seconds,
        log=log,
        error=trial.failure,
        generations=trial.generation,
        host=trial.host,
    )


def progress_of(machine: Machine, work: Work, at: float) -> Progress:
    """How the machine's newest run stands at `at`."""
    sweep = machine.last
    assert sweep is not None
    trials = list(sweep.trials.values())
    count = Counter(trial.status for trial in trials)
    running = tuple(_running(trial, at) for trial in trials if trial.status is TrialStatus.RUNNING)
    succeeded = [trial for trial in trials if trial.status is TrialStatus.SUCCEEDED]
    best = best_of([result_of(trial, work) for trial in succeeded], work.spec.metric, work.spec.mode)
    left = None if work.total is None else max(0, work.total - len(trials)) + count[TrialStatus.QUEUED]
    mean_s = sum(trial.seconds for trial in succeeded) / len(succeeded) if succeeded else None
    return Progress(
        name=work.spec.name,
        total=work.total,
        done=sum(trial.status.final for trial in trials),
        running=len(running),
        queued=count[TrialStatus.QUEUED],
        failed=count[TrialStatus.FAILED],
        lost=count[TrialStatus.LOST],
        seconds=at - sweep.begun_at,
        eta_s=None if left is None else eta(mean_s, [each.seconds for each in running], left, len(machine.agents)),
        metric=work.spec.metric,
        best=(best.id, best.metrics[str(work.spec.metric)]) if best is not None else None,
        agents_alive=len(machine.agents),
        agents_wanted=work.agents,
        restarts=sum(len(trial.restarts) for trial in trials),
        running_trials=running,
        note=_note(machine, work),
    )


def _running(trial: Trial, at: float) -> RunningTrial:
    report = trial.last_report
    return RunningTrial(
        id=trial.id,
        params=trial.params,
        seconds=0.0 if trial.started_at is None else at - trial.started_at,
        step=report.step if report is not None else None,
        metrics=report.metrics if report is not None else {},
        host=trial.host,
    )


def _note(machine: Machine, work: Work) -> str:
    if (sweep := machine.sweep) is not None and sweep.stop is not None:
        return f"stopping: {sweep.stop[0]}"
    if not len(machine.agents):
        return f"waiting for agents (0 of {work.agents})"
    return "" if machine.ready else "agents are loading the frameworks"
