"""The contract of everything that proposes hyperparameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sparktrain.ids import TrialId


@dataclass(frozen=True)
class Suggestion:
    """What a sampler proposes next."""

    cases: tuple[dict[str, Any], ...]
    """Hyperparameters of new trials, in the order of their numbers."""
    exhausted: bool
    """Whether no case follows these, independent of later observations."""


class Sampler(Protocol):
    """Proposes hyperparameters and learns from results.

    Only the coordinator calls it, one call at a time. A call may compute for long, but never waits for a file, a socket
    or a clock. The same calls in the same order give the same suggestions: a driver that recovers repeats the calls in
    its journal.
    """

    learns: bool
    """Whether proposals depend on observations: then it is called only when a trial can start."""

    def suggest(self, count: int) -> Suggestion:
        """Propose at most `count` new cases; `count` is at least 1.

        Fewer, or none, when the space ends or more results are needed first: unless exhausted, it is called again after
        the next `observe`. Raises SpecError when the user's space raises.
        """
        ...

    def observe(self, trial: TrialId, params: Mapping[str, Any], metrics: Mapping[str, float] | None) -> None:
        """Record the end of a trial, once for each; `metrics` is None when it failed."""
        ...
