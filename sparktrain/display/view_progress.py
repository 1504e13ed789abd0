"""The progress of a run as its directory shows it, for the displays of a call that does not drive it."""

from sparktrain.base.ids import CHIEF
from sparktrain.display import standing
from sparktrain.display.progress import MemberLine, MemberState, Progress, RunningTrial
from sparktrain.runs.view import RunState, RunView, TrialView
from sparktrain.state.trial import TrialStatus


def progress_of_view(view: RunView, now: float, agents: int, note: str = "") -> Progress:
    """What a run's display shows of `view` at `now`, in seconds since 1970, where the run has so many agents."""
    counts = standing.of_view(view)
    running = tuple(_running(trial, now) for trial in view.trials if trial.result.status is TrialStatus.RUNNING)
    return Progress(
        total=counts.total,
        done=counts.done,
        running=counts.running,
        queued=counts.queued,
        failed=counts.failed,
        lost=counts.lost,
        stopped=counts.stopped,
        pruned=counts.pruned,
        paused=counts.paused,
        metric=counts.metric,
        best=counts.best,
        replicas=counts.replicas,
        name=view.name,
        seconds=view.seconds(now),
        eta_s=None,
        agents_alive=0 if view.state is RunState.GONE else agents,
        agents_wanted=agents,
        restarts=sum(len(trial.result.restarts) for trial in view.trials),
        running_trials=running,
        gang=view.spec.gang.size,
        in_step=view.spec.gang.in_step,
        causes=view.trials[0].result.restarts if view.total == 1 and view.trials else (),
        note=note or next(iter(view.notes), ""),
    )


def _running(trial: TrialView, now: float) -> RunningTrial:
    report = trial.report
    result = trial.result
    return RunningTrial(
        id=result.id,
        params=dict(result.params),
        seconds=0.0 if trial.since is None else max(0.0, now - trial.since),
        step=trial.step,
        metrics={} if report is None else report.metrics,
        host=result.host,
        members=_members(trial),
    )


def _members(trial: TrialView) -> tuple[MemberLine, ...]:
    """The members of a gang that has formed; the journal has the steps of its chief alone."""
    members = trial.result.members
    if len(members) < 2 or trial.since is None:
        return ()
    report = trial.report
    return tuple(
        MemberLine(
            rank=member.rank,
            host=member.host,
            role=member.role,
            state=MemberState.TRAINING,
            step=trial.step if member.rank == CHIEF else None,
            metrics=report.metrics if report is not None and member.rank == CHIEF else {},
        )
        for member in members
    )
