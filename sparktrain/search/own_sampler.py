"""Samplers of users, behind checks of what they return."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sparktrain.config.param_values import check_name, described, plain
from sparktrain.errors import SpecError
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion


class OwnSampler(Sampler):
    """Proposes what a sampler of the user does, at most `limit` cases. Raises SpecError for what is no suggestion."""

    def __init__(self, sampler: Any, limit: int | None) -> None:
        self._sampler = sampler
        self._limit = limit
        self._count = 0
        self.learns = bool(getattr(sampler, "learns", True))
        totals = [each for each in (limit, getattr(sampler, "total", None)) if each is not None]
        self.total = min(totals, default=None)

    def suggest(self, count: int) -> Suggestion:
        """See base class."""
        left = count if self._limit is None else min(count, self._limit - self._count)
        if left <= 0:
            return Suggestion((), exhausted=True)
        found = self._sampler.suggest(left)
        cases = _cases(found, left)
        self._count += len(cases)
        over = self._limit is not None and self._count >= self._limit
        memo = cast(dict[str, Any], plain(dict(found.memo), "the memo of the sampler's suggestion"))
        return Suggestion(cases, bool(found.exhausted) or over, memo)

    def observe(self, observation: Observation) -> None:
        """See base class."""
        self._sampler.observe(observation)

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class."""
        self._count = sum(len(each.cases) for each in history if isinstance(each, PastSuggestion))
        self._sampler.restore(history)


def _cases(found: object, most: int) -> tuple[dict[str, Any], ...]:
    if not isinstance(found, Suggestion):
        raise SpecError(
            f"suggest() of the sampler returned {described(found)}; return sparktrain.Suggestion(cases, exhausted)"
        )
    if len(found.cases) > most:
        raise SpecError(f"suggest({most}) of the sampler returned {len(found.cases)} cases; return {most} at most")
    return tuple(_case(case, f"case {index} of the sampler") for index, case in enumerate(found.cases))


def _case(case: object, subject: str) -> dict[str, Any]:
    if not isinstance(case, Mapping):
        raise SpecError(f"{subject} is {described(case)}; return a dict of parameters, such as {{'lr': 0.1}}")
    return {check_name(name, subject): plain(value, f"{subject}: {name!r}") for name, value in case.items()}
