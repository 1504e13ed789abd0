"""The gang of one trial in one generation: forming until every member has entered, running, ended."""

from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from sparktrain.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.state.moves import check_move
from sparktrain.state.outcome import Failure, FailureKind, Outcome


class GangStatus(Enum):
    """A gang is made for one generation and ends with it."""

    FORMING = "members are being started"
    RUNNING = "every member has entered the training function"
    ENDED = "every member's process is gone"


_LEGAL = frozenset(
    {
        (GangStatus.FORMING, GangStatus.RUNNING),
        (GangStatus.FORMING, GangStatus.ENDED),
        (GangStatus.RUNNING, GangStatus.ENDED),
    }
)


@dataclass(slots=True)
class Gang:
    """Agents that train one trial together. The first failure is the cause; the others only follow from it."""

    run: RunId
    trial: TrialId
    generation: Generation
    agents: tuple[AgentId, ...]
    """By rank."""
    formed_at: float
    status: GangStatus = GangStatus.FORMING
    entered: set[Rank] = field(default_factory=set)
    ended: dict[Rank, Outcome] = field(default_factory=dict)
    running_since: float | None = None
    cause: Failure | None = None
    stop_by: float | None = None
    """Once members are told to stop: when those that have not ended are given up, with their agents."""

    def member(self, rank: Rank) -> Member:
        """Member `rank`."""
        return Member(self.run, self.trial, self.generation, rank)

    def live(self) -> list[tuple[AgentId, Member]]:
        """Members that have not ended, with their agents, by rank."""
        ranks = (Rank(rank) for rank in range(len(self.agents)))
        return [(self.agents[rank], self.member(rank)) for rank in ranks if rank not in self.ended]

    def enter(self, rank: Rank, at: float) -> None:
        """Member `rank` has entered the training function."""
        self.entered.add(rank)
        if len(self.entered) == len(self.agents) and self.status is GangStatus.FORMING:
            self._move(GangStatus.RUNNING)
            self.running_since = at

    def fail(self, failure: Failure) -> None:
        """Note the cause, if it is the first."""
        if self.cause is None:
            self.cause = failure

    def end(self, rank: Rank, outcome: Outcome) -> None:
        """Member `rank` is gone."""
        self.ended[rank] = outcome
        if outcome.failure is not None:
            self.fail(outcome.failure)
        if len(self.ended) == len(self.agents):
            self._move(GangStatus.ENDED)

    def verdict(self) -> Outcome:
        """The gang's outcome, once ended: the first cause, else the chief's result."""
        chief = self.ended[Rank(0)]
        if self.cause is None or (self.cause.kind in _RACED and self._all_succeeded()):
            return chief
        tails = (each.failure.log_tail for each in self.ended.values() if each.failure is not None)
        told = self.cause.log_tail or next(filter(None, tails), ())  # the coordinator's own causes come without lines
        seconds = max(outcome.seconds for outcome in self.ended.values())
        return Outcome(seconds, failure=replace(self.cause, log_tail=told))

    def _all_succeeded(self) -> bool:
        return all(outcome.failure is None for outcome in self.ended.values())

    def _move(self, status: GangStatus) -> None:
        self.status = check_move(f"gang of trial {self.trial}", self.status, status, _LEGAL, [f"{self.ended}"])


_RACED = (FailureKind.TIMEOUT, FailureKind.STOPPED)
"""Causes that the coordinator decides: a member that returned before it heard of them has succeeded."""
