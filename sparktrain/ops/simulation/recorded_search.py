"""In which order a simulation takes recorded trials: as recorded, or as a sampler asks for them.

A sampler may ask for parameters that no trial had. It gets the nearest trial that is left, as in benchmarks of search
from tables of results (Eggensperger et al. 2015, "Efficient Benchmarking of Hyperparameter Optimizers via Surrogates",
section 2), and learns from the parameters which that trial really had.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import Distribution
from sparktrain.errors import SpecError
from sparktrain.runs.flat_params import flat
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import Leaf
from sparktrain.search.sampler import Observation, ObservedStatus, Sampler
from sparktrain.search.space import Space
from sparktrain.search.space_json import Document, from_document, stored_leaves
from sparktrain.state.trial import Trial, TrialStatus

SAMPLERS = ("random", "tpe", "gp", "qmc")
"""Samplers that a simulation can follow; others learn only from the very cases that they suggested."""
_LOG = ("loguniform", "lograndint")


class AsRecorded:
    """The trials in the order of their numbers, the first `total` of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0

    def propose(self, count: int) -> tuple[list[int], bool]:
        """The next recorded trials, at most `count`, and whether none follows."""
        first = self._next
        self._next = min(self._total, self._next + count)
        return list(range(first, self._next)), self._next == self._total

    def observe(self, trial: Trial, value: float | None, step: int) -> None:
        """Take the end of a trial: the order is fixed."""


class RecordedCases(NamedTuple):
    """The parameters of the recorded trials, and the space that they are of."""

    params: tuple[Mapping[str, Any], ...]
    space: Document
    """As the plan of the run has it."""


class RecordedSearch:
    """The trials in the order in which a sampler asks for them."""

    def __init__(self, cases: RecordedCases, sampler: Sampler, metric: str) -> None:
        self._cases = cases
        self._sampler = sampler
        self._metric = metric
        self._near = NearestCase(cases)
        self._proposed: list[int] = []
        """The recorded trial of each one of the simulation."""
        self._suggested_cases: list[Mapping[str, Any]] = []

    def propose(self, count: int) -> tuple[list[int], bool]:
        """The next recorded trials, at most `count`, and whether none follows."""
        suggestion = self._sampler.suggest(count)
        indexes = [self._near.take(case) for case in suggestion.cases]
        self._proposed += indexes
        self._suggested_cases += suggestion.cases
        return indexes, suggestion.exhausted

    def observe(self, trial: Trial, value: float | None, step: int) -> None:
        """Take the end of a trial of the simulation, its last value and the step of that."""
        # The sampler learns from the parameters that the recorded trial had, as from a trial of a former run, and
        # forgets those that it asked for: no trial has ever tried these.
        number = trial.id
        self._sampler.observe(Observation(number, self._suggested_cases[number], ObservedStatus.FAILED, {}))
        params = self._cases.params[self._proposed[number]]
        is_finite = value is not None and math.isfinite(value)
        status = ObservedStatus(trial.status) if is_finite else ObservedStatus.FAILED
        metrics = {self._metric: value} if is_finite and value is not None else {}
        pruned_at = step if trial.status is TrialStatus.PRUNED else None
        self._sampler.observe(Observation(TrialId(-1 - number), params, status, metrics, pruned_at))


Order = AsRecorded | RecordedSearch
"""Chooses the recorded trials that a simulation runs."""


class NearestCase:
    """Finds the recorded trial with the nearest parameters, each trial once.

    The distance is Euclidean, over parameters scaled to their ranges, after the logarithm where they are sampled by it;
    different values of a choice are as far apart as both ends of a range. Of equals the first one is taken.
    """

    def __init__(self, cases: RecordedCases) -> None:
        leaves = stored_leaves(cases.space)
        self._scales = {path: _scale(leaf) for path, leaf in leaves.items()}
        self._rows = np.array([self._row(case) for case in cases.params]).reshape(len(cases.params), -1)
        self._available = np.ones(len(cases.params), bool)
        self._chosen = np.array([_is_choice(leaf) for leaf in leaves.values()], bool)

    def take(self, case: Mapping[str, Any]) -> int:
        """The nearest one that is left; there must be one."""
        row = np.array(self._row(case))
        gaps = np.abs(self._rows - row)
        lacking = np.isnan(self._rows) != np.isnan(row)  # a parameter that only one of both has
        gaps = np.where(self._chosen, gaps > 0, np.nan_to_num(gaps))
        distances = (np.where(lacking, 1.0, gaps) ** 2).sum(axis=1)
        nearest = int(np.where(self._available, distances, np.inf).argmin())
        self._available[nearest] = False
        return nearest

    def _row(self, case: Mapping[str, Any]) -> list[float]:
        values = flat(case)
        return [scale(values[path]) if path in values else math.nan for path, scale in self._scales.items()]


def _is_choice(leaf: Leaf) -> bool:
    return not isinstance(leaf, Distribution) or leaf.kind == "choice"


def _scale(leaf: Leaf) -> Callable[[Any], float]:
    """Makes a value of the leaf a number: from 0 to 1, or for choices the place in their list."""
    if isinstance(leaf, Distribution) and leaf.kind == "normal":
        return leaf.share
    if isinstance(leaf, Distribution) and leaf.kind != "choice":
        warp = math.log if leaf.kind in _LOG else float
        low = warp(leaf.arguments[0])
        high = warp(leaf.arguments[1])
        return lambda value: (warp(value) - low) / ((high - low) or 1.0)
    values = list(leaf.arguments if isinstance(leaf, Distribution) else leaf)
    return lambda value: float(values.index(value)) if value in values else float(len(values))


def searches(
    cases: RecordedCases | None, name: str, metric: str, maximize: bool, trials: int, seeds: int
) -> list[RecordedSearch]:
    """A search by the sampler of that name for each seed from 0.

    Raises SpecError where the run, its space or the sampler does not allow one.
    """
    if name not in SAMPLERS:
        raise SpecError(
            f"sampler {name!r} learns only from the very cases that it suggested, and a simulation has the recorded "
            f"ones: pass one of {', '.join(SAMPLERS)}"
        )
    if cases is None:
        raise SpecError(f"sampler {name!r} needs the parameters of trials, which a file of curves lacks: pass a run")
    space = _space(cases.space, name)
    choices = [
        SamplerChoice(requested=name, trials=trials, seed=seed, goal=Goal(metric, maximize)) for seed in range(seeds)
    ]
    return [RecordedSearch(cases, choice.sampler(space), metric) for choice in choices]


def _space(document: Document, name: str) -> Space:
    if document["kind"] not in ("grid", "sampled"):
        raise SpecError(
            f"sampler {name!r} chooses each parameter by itself, and the run has a list of cases: simulate a run of a "
            "grid or of distributions"
        )
    if document.get("conditions"):
        raise SpecError(
            f"sampler {name!r} cannot be simulated: the space of the run has conditions (when, where), which are "
            "functions and are not stored with it; simulate a run of a space without them"
        )
    return from_document(document)
