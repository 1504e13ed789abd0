"""A trial as users see it, from the state that decides over it."""

from typing import Protocol

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.ids import Member, Rank, RunId
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.results import MemberResult, TrialResult
from sparktrain.state.trial import NOT_FORMED, Trial
from sparktrain.store.base import Store


class Home(Protocol):
    """What a run was asked to do, and where its files are."""

    @property
    def spec(self) -> SweepSpec:
        """Its specification."""
        ...

    @property
    def store(self) -> Store:
        """The store that has its files."""
        ...

    @property
    def layout(self) -> RunLayout:
        """Their paths."""
        ...


def result_of(trial: Trial, home: Home) -> TrialResult:
    """A trial as users see it, when its status is final, and as far as it has come otherwise."""
    members = _member_results(trial, home)
    return TrialResult(
        id=trial.id,
        params=trial.params,
        status=trial.status,
        metrics=trial.metrics,
        seconds=trial.seconds,
        log=members[0].log if members else None,
        error=trial.failure,
        generations=trial.generation,
        host=trial.host,
        members=members,
        restarts=trial.restarts,
        unsaved=trial.unsaved,
        notices=trial.notices,
    )


def _member_results(trial: Trial, home: Home) -> tuple[MemberResult, ...]:
    """The members of its newest gang; none when it never had one."""
    if trial.generation == NOT_FORMED:
        return ()
    members = []
    for rank, (role, host) in enumerate(zip(home.spec.gang.roles(), _hosts(trial), strict=False)):
        member = Member(RunId(home.spec.name), trial.id, trial.generation, Rank(rank))
        log = home.store.where(home.layout.member(member).log)
        members.append(MemberResult(rank=rank, role=role, host=host, log=log))
    return tuple(members)


def _hosts(trial: Trial) -> tuple[str | None, ...]:
    """Of its newest gang, by rank: a gang that has shrunk has fewer than its specification."""
    return trial.hosts or (trial.host,)
