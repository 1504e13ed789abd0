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
    """No case follows these, whatever will be observed."""


class Sampler(Protocol):
    """Proposes hyperparameters and learns from results.

    Only the coordinator calls it, one call at a time. It may compute for long, but never waits for a file, a socket or
    a clock. The same calls in the same order give the same suggestions: a driver that recovers repeats the calls that
    its journal holds.
    """

    learns: bool
    """What it proposes depends on what it has observed: it is asked only when a trial can start."""

    def suggest(self, count: int) -> Suggestion:
        """At most `count` new cases, `count` being at least 1.

        Fewer, or none, when the space ends or when more results are needed first: unless exhausted, it is asked again
        after the next `observe`. Raises SpecError when the user's space cannot go on.
        """
        ...

    def observe(self, trial: TrialId, params: Mapping[str, Any], metrics: Mapping[str, float] | None) -> None:
        """Take in the end of a trial, once for each; `metrics` is None when it failed."""
        ...
