"""The sampler of a call: by its name, one of Optuna, or the user's own. What can be wrong with it is found here.

Optuna is imported when the sampler is used first, not when it is chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import unwrap
from typing import TYPE_CHECKING, Any, cast
from warnings import catch_warnings, simplefilter

from sparktrain.base.boundary import is_interrupt, message_of
from sparktrain.config.param_values import check_name, described, plain, type_name
from sparktrain.config.quantities import count as integer
from sparktrain.config.sampler_names import OBJECT, is_object, is_ours
from sparktrain.errors import SpecError
from sparktrain.search.cma_source import CmaSource
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.optuna_sampler import Goal, OptunaKind, OptunaSampler
from sparktrain.search.sampled_space import SampledSpace, as_choices, as_grid
from sparktrain.search.sampler import AnsweringSampler, Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import Grid, ListedSpace, Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

MOST_GP_TRIALS = 300
"""The most trials of a Gaussian process: one suggestion takes 7 s there, and grows with their third power."""
LEAST_POPULATION = 8
MOST_POPULATION = 50
NO_GOAL = Goal(None, True)
_BATCH = 4
"""Cases of one call of a sampler that computes, so that the first slots need not wait for the last case."""
_LEARNING = ("tpe", "gp", "cmaes", "nsgaii")
_NEEDS = {"cmaes": "cmaes", "qmc": "scipy", "gp": "torch"}
"""Modules that a sampler needs beside Optuna."""


@dataclass(frozen=True, kw_only=True)
class SamplerChoice:
    """What decides on the sampler of a run."""

    requested: Any = None
    """A name, an object, or None for what suits the space."""
    trials: int | None = None
    timeout_s: float | None = None
    seed: int = 0
    goal: Goal = NO_GOAL

    def name(self, space: Space) -> str:
        """The name of the sampler of this space; for an object that of its class."""
        if self.requested is None:
            # As in Optuna, also for several metrics: NSGA-II is a random search until a whole generation has succeeded.
            return ("tpe" if self.goal.metric else "random") if isinstance(space, SampledSpace) else "grid"
        return self.requested if isinstance(self.requested, str) else f"{OBJECT}{type_name(self.requested)}"

    def sampler(self, space: Space, slots: int = 1) -> Sampler:
        """A fresh sampler for trials on so many slots; an object of the user is the same one each time.

        Raises SpecError when it cannot do the space, needs trials or a metric, or a package that is not installed.
        """
        name = self.name(space)
        if name == "grid":
            return SpaceSampler(_listed(space), self.trials)
        if isinstance(self.requested, AnsweringSampler):
            return self.requested
        if is_ours(self.requested):
            return OwnSampler(self.requested, self.trials)
        sampled = _sampled(space, name)
        self._check(name, sampled)
        total = self.trials
        if not isinstance(self.requested, str | None):
            kind = OptunaKind(make=_UserSampler(self.requested), learns=True, hooked=True)
            return OptunaSampler(sampled, total, self.goal, self.seed, kind)
        make: Callable[..., Any] = _MAKERS[name]
        if name == "qmc":
            make = partial(make, self.seed)
        source = CmaSource() if name == "cmaes" else None
        if name == "cmaes":
            make = partial(make, slots, source)
        if name == "nsgaii":
            make = partial(make, _population(total))
        batch = 1 if name == "gp" else _BATCH
        kind = OptunaKind(make=make, learns=name in _LEARNING, batch=batch, source=source)
        return OptunaSampler(sampled, total, self.goal, self.seed, kind)

    def _check(self, name: str, space: SampledSpace) -> None:
        called = "the sampler of Optuna" if is_object(name) else f"sampler={name!r}"
        _check_installed(name, called)
        if self.trials is None and self.timeout_s is None:
            raise SpecError(f"{called} has no end, a sweep needs one: pass trials=N, or timeout= for the whole sweep")
        if self.goal.metric is None and name not in ("random", "qmc"):
            raise SpecError(
                f"{called} learns from results, and the sweep has no metric: pass metric='accuracy' or what the "
                "training function returns, or use sampler='random'"
            )
        if type(self.requested).__name__ == "GridSampler" and space.axes:
            raise SpecError(
                f"{called} takes all values from its own grid, and the space has the list {next(iter(space.axes))!r}, "
                "with values that are all tried: use sampler='grid', which tries every combination of the space"
            )
        if name == "gp" and (self.trials is None or self.trials > MOST_GP_TRIALS):
            raise SpecError(
                f"sampler='gp' with trials={self.trials}: one suggestion of a Gaussian process takes 7 s after 300 "
                f"trials, and its time grows with their third power, so {MOST_GP_TRIALS} is the most: pass fewer "
                "trials, or use sampler='tpe'"
            )
        if name in ("cmaes", "gp", "qmc") and space.conditional:
            raise SpecError(
                f"{called} cannot do conditions, and {space.conditional[0]!r} has one: use sampler='tpe' or 'random'"
            )
        if name == "cmaes" and self.goal.other_objectives:
            raise SpecError(
                f"sampler='cmaes' follows one metric, and other_metrics has {self.goal.other_objectives[0].metric!r} "
                f"beside {self.goal.metric!r}: use sampler='tpe' or 'nsgaii'"
            )
        if name == "cmaes":
            _check_numeric(space)


def stored_choice(name: str) -> Any:
    """What to ask for to get the sampler of a stored name. Raises SpecError for that of an object."""
    if is_object(name):
        raise SpecError(
            f"the sampler of the run was an object ({name.removeprefix(OBJECT)}), which is not stored with it: resume "
            "it by the same call as before"
        )
    return name


def _listed(space: Space) -> ListedSpace:
    if isinstance(space, SampledSpace):
        return as_grid(space)
    assert isinstance(space, ListedSpace)
    return space


def _sampled(space: Space, name: str) -> SampledSpace:
    if isinstance(space, SampledSpace):
        return space
    if isinstance(space, Grid):
        return as_choices(space)
    raise SpecError(
        f"the sampler {name.removeprefix(OBJECT)!r} chooses each parameter by itself, and the space is a {space}: use "
        "sampler='grid', or a dict of lists and distributions"
    )


def _check_installed(name: str, called: str) -> None:
    lacking = [module for module in ("optuna", _NEEDS.get(name, "optuna")) if find_spec(module) is None]
    if lacking:
        extra = "gp" if "torch" in lacking else "search"
        raise SpecError(f"{called} needs {lacking[0]}, which is not installed: pip install 'sparktrain[{extra}]'")


def _check_numeric(space: SampledSpace) -> None:
    chosen = [path for path, distribution in space.distributions.items() if distribution.kind == "choice"]
    if chosen:
        raise SpecError(f"sampler='cmaes' samples numbers alone, and {chosen[0]!r} is a choice: use sampler='tpe'")
    if len(space.distributions) < 2:
        raise SpecError(
            f"sampler='cmaes' needs two distributions at least, and the space has {len(space.distributions)} "
            f"({space}): use sampler='tpe'"
        )


def _population(trials: int | None) -> int:
    """Trials of a generation: a tenth of all trials, so that the search is random for no longer than that."""
    # With a fifth of the trials in a generation, the search was hardly better than random draws.
    return min(MOST_POPULATION, max(LEAST_POPULATION, (trials or 10 * MOST_POPULATION) // 10))


class _UserSampler:
    """Makes a sampler of the user: the one object each time."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __call__(self, seed: int, space: Any) -> Any:
        return self._sampler


# ---- samplers of one ask


def _over(kind: "type[BaseSampler]", space: Mapping[str, Any]) -> "Callable[..., BaseSampler]":
    """A sampler of that kind that samples the whole space at once, and need not look at all trials to find it.

    Its constructor is the one below Optuna's decorators, which warn each time that a kind is experimental.
    """

    def infer_relative_search_space(self: Any, study: Any, trial: Any) -> dict[str, Any]:
        return dict(space)

    # A new sampler infers the space from all trials: with one for each ask, that took three times as long as the rest.
    members = {"infer_relative_search_space": infer_relative_search_space, "__init__": unwrap(vars(kind)["__init__"])}
    return type(f"Whole{kind.__name__}", (kind,), members)


def _random(seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _tpe(seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    from optuna.samplers import TPESampler

    return _over(TPESampler, space)(seed=seed)


def _gp(seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    from optuna.samplers import GPSampler

    return _over(GPSampler, space)(seed=seed, independent_sampler=_random(seed, space))


def _cmaes(slots: int, source: CmaSource, seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    """A result counts only for the generation that its trial is of, so a generation has at least as many as slots.

    The first generation follows from `source`, where that has enough.
    """
    from math import log

    from optuna.distributions import CategoricalDistribution
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import CmaEsSampler

    numbers = {path: dist for path, dist in space.items() if not isinstance(dist, CategoricalDistribution)}
    with catch_warnings():
        simplefilter("ignore", ExperimentalWarning)
        return _over(CmaEsSampler, numbers)(
            seed=seed,
            # The default of CMA-ES (arXiv 1604.00772, table 1), unless there are more slots.
            popsize=max(slots, 4 + int(3 * log(len(numbers)))),
            independent_sampler=_random(seed, space),
            warn_independent_sampling=False,
            source_trials=source.trials(numbers),
        )


def _qmc(run_seed: int, seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    """One sequence for the whole run: the seed of the run scrambles it."""
    from optuna.samplers import QMCSampler

    return _over(QMCSampler, space)(
        seed=run_seed, scramble=True, independent_sampler=_random(seed, space), warn_independent_sampling=False
    )


def _nsgaii(population: int, seed: int, space: Mapping[str, Any]) -> "BaseSampler":
    from optuna.samplers import NSGAIISampler

    return _over(NSGAIISampler, space)(seed=seed, population_size=population)


_MAKERS: dict[str, Callable[..., Any]] = {
    "random": _random,
    "tpe": _tpe,
    "gp": _gp,
    "cmaes": _cmaes,
    "qmc": _qmc,
    "nsgaii": _nsgaii,
}


class OwnSampler(Sampler):
    """Proposes what a sampler of the user does, at most `limit` cases. Raises SpecError for what is no suggestion.

    The sampler gets copies: what it changes in a result changes nothing in the run.
    """

    def __init__(self, sampler: Any, limit: int | None) -> None:
        self._sampler = sampler
        self._limit = limit
        self._count = 0
        self.learns = bool(_attribute(sampler, "learns", True))
        total = _attribute(sampler, "total", None)
        sampler_total = None if total is None else integer(total, f"total of the sampler {type_name(sampler)}", least=0)
        self.total = min((bound for bound in (limit, sampler_total) if bound is not None), default=None)

    def suggest(self, count: int) -> Suggestion:
        """See base class."""
        quota = count if self._limit is None else min(count, self._limit - self._count)
        if quota <= 0:
            return Suggestion((), exhausted=True)
        suggestion = self._sampler.suggest(quota)
        cases = _cases(suggestion, quota)
        self._count += len(cases)
        over = self._limit is not None and self._count >= self._limit
        if not isinstance(suggestion.memo, Mapping):
            raise SpecError(f"the memo of the sampler's suggestion is {described(suggestion.memo)}; return a dict")
        memo = cast(dict[str, Any], plain(dict(suggestion.memo), "the memo of the sampler's suggestion"))
        return Suggestion(cases, bool(suggestion.exhausted) or over, memo)

    def observe(self, observation: Observation) -> None:
        """See base class."""
        self._sampler.observe(deepcopy(observation))

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class."""
        self._count = sum(len(event.cases) for event in history if isinstance(event, PastSuggestion))
        self._sampler.restore(deepcopy(list(history)))


def _attribute(sampler: Any, name: str, default: Any) -> Any:
    """An attribute of the user's sampler. Raises SpecError where a property of it raises."""
    try:
        return getattr(sampler, name, default)
    # A property may call sys.exit(), which would end the thread of the sampler without an error.
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise SpecError(
            f"{name} of the sampler {type_name(sampler)} raised {type(error).__name__}: {message_of(error)}; correct "
            "it, or leave it out"
        ) from error


def _cases(suggestion: object, most: int) -> tuple[dict[str, Any], ...]:
    if not isinstance(suggestion, Suggestion):
        raise SpecError(
            f"suggest() of the sampler returned {described(suggestion)}; return sparktrain.Suggestion(cases, exhausted)"
        )
    if isinstance(suggestion.cases, str | Mapping) or not isinstance(suggestion.cases, Sequence):
        raise SpecError(
            f"the cases of the sampler's suggestion are {described(suggestion.cases)}; return a list of dicts"
        )
    if len(suggestion.cases) > most:
        raise SpecError(f"suggest({most}) of the sampler returned {len(suggestion.cases)} cases; return {most} at most")
    return tuple(_case(case, f"case {index} of the sampler") for index, case in enumerate(suggestion.cases))


def _case(case: object, subject: str) -> dict[str, Any]:
    if not isinstance(case, Mapping):
        raise SpecError(f"{subject} is {described(case)}; return a dict of parameters, such as {{'lr': 0.1}}")
    return {check_name(name, subject): plain(value, f"{subject}: {name!r}") for name, value in case.items()}
