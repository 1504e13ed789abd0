"""The contract of what proposes hyperparameters: suggest, observe, and restore after a restart.

Sampler, Suggestion and Observation are what a user implements and gets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sparktrain.base.ids import TrialId


class ObservedStatus(StrEnum):
    """How a trial ended that a sampler learns from; the words are those of `TrialStatus`."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PRUNED = "pruned"


@dataclass(frozen=True)
class Observation:
    """The end of a trial; with `repeats=` or `folds=`, of all trials of a case, once."""

    trial: TrialId
    """The number of the case: they count from 0, in the order of all that were suggested. Below 0 for results of former
    runs (`warm_start=`), which `restore` brings before all else, and of trials that users add (`sparktrain enqueue`):
    no suggestion of this sampler has such a number."""
    params: Mapping[str, Any]
    status: ObservedStatus
    metrics: Mapping[str, float]
    """Empty when it failed; of a pruned trial those of its last rung. Of several trials, the means over those that
    succeeded."""
    step: int | None = None
    """The step of these metrics, of a pruned trial; of several trials, how many the means are of."""


@dataclass(frozen=True)
class Suggestion:
    """What a sampler proposes next."""

    cases: tuple[dict[str, Any], ...]
    """Hyperparameters of new trials, in the order of their numbers, as plain data."""
    exhausted: bool
    """Whether no case follows these, independent of later observations."""
    memo: Mapping[str, Any] = field(default_factory=dict)
    """What `restore` needs beside the cases, as plain data, about 4 KB for each case at most; the journal keeps it."""


@dataclass(frozen=True)
class PastSuggestion:
    """A suggestion that the journal has of an earlier driver."""

    first: TrialId
    """Number of its first case; the others follow."""
    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    memo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """The answer to a question of a running trial."""

    answer: bytes = b""
    problem: str = ""
    """Why there is none: raised in the training function."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that the trial has by this answer, as plain data; the journal keeps them."""
    memo: Mapping[str, Any] = field(default_factory=dict)
    """What `open` needs beside them under another driver, as plain data; the journal keeps it."""


NO_ANSWER = Reply(problem="the sampler of this run answers no questions: start the objective by st.optuna.optimize()")


@dataclass(frozen=True)
class PastAnswer:
    """What the journal has of an answer under an earlier driver."""

    trial: TrialId
    params: Mapping[str, Any]
    memo: Mapping[str, Any]


# A Protocol and no base class: a sampler of the user has these methods, and need not inherit from anything here.
class Sampler(Protocol):
    """Proposes hyperparameters and learns from results.

    The driver calls it in one thread, one call at a time. A call may compute for long, but never waits for a file, a
    socket or a clock. What it raises ends the sweep, which can be resumed.
    """

    learns: bool
    """Whether proposals depend on observations: then it is asked for few trials ahead of need."""
    total: int | None
    """The most cases that it will propose, with those of earlier drivers; None when unknown."""

    def suggest(self, count: int) -> Suggestion:
        """Propose at most `count` new cases; `count` is at least 1.

        Fewer, or none, when the space ends or more results are needed first: unless exhausted, it is called again, but
        after none not before another trial has ended. Raises SpecError when the user's space raises.
        """
        ...

    def observe(self, observation: Observation) -> None:
        """Record the end of a trial.

        A trial can end twice: `retry_failed` runs it again. A trial may be of another space or another sampler, where
        the user has changed these.
        """
        ...

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """Take an earlier driver's cases and results, in their order, before the first other call.

        Cases come from the journal and are never computed again. What follows should be what the earlier driver would
        have suggested.
        """
        ...


class AnsweringSampler(Sampler, ABC):
    """A sampler that running trials ask, too: its cases need not have all parameters."""

    @property
    @abstractmethod
    def line(self) -> str:
        """What proposes the parameters, in the first lines of a run."""

    @abstractmethod
    def open(self, run: str, answers: Sequence[PastAnswer], place: str = "") -> None:
        """Take the id of the run and the answers of earlier drivers, before `restore` and any other call.

        `place` is its directory, by which older versions of sparktrain named it.
        """

    @abstractmethod
    def answer(self, trial: TrialId, question: bytes) -> Reply:
        """Answer a question of a running trial; questions of one trial come in their order."""
