"""Samplers of users, behind checks of what they return."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from sparktrain.base.boundary import is_interrupt, message_of
from sparktrain.config.param_values import check_name, described, plain, type_name
from sparktrain.config.quantities import count as integer
from sparktrain.errors import SpecError
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion


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
