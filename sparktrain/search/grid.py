"""The sampler of listed spaces: every combination once, in the order of the space."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sparktrain.errors import SpecError
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import ListedSpace, Params

MAX_TRIALS = 100_000
"""The most trials of a sweep without `trials=`."""


class SpaceSampler(Sampler):
    """Proposes the combinations of a space in order, at most `limit` of them.

    Construction iterates over the first 100,000 that it would propose, so that a condition that raises does so before
    anything starts. Raises SpecError for that, and for a larger space without a limit.
    """

    learns = False

    def __init__(self, space: ListedSpace, limit: int | None = None) -> None:
        if limit is None and space.size > MAX_TRIALS:
            raise SpecError(
                f"the space has up to {space.size:,} combinations ({space}), {MAX_TRIALS:,} is the most "
                "without trials=; pass trials=N to run the first N, or shorten the lists"
            )
        self._space = space
        self._limit = limit
        self._next: Params | None
        self._start([])

    def suggest(self, count: int) -> Suggestion:
        """See base class."""
        cases: list[Params] = []
        while self._next is not None and len(cases) < count:
            cases.append(self._next)
            self._next = next(self._cases, None)
        return Suggestion(tuple(cases), exhausted=self._next is None)

    def observe(self, observation: Observation) -> None:
        """See base class. The order of a list is fixed, so there is nothing to learn."""

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class. Earlier cases count, of whatever space they are, and are not proposed again."""
        self._start([case for event in history if isinstance(event, PastSuggestion) for case in event.cases])

    def _start(self, past_cases: Sequence[Params]) -> None:
        keys = Counter(map(_key, past_cases))
        size = self._space.size
        remaining = size if self._limit is None else min(max(0, self._limit - len(past_cases)), size)
        walked = sum(1 for _ in itertools.islice(_new_cases(self._space, keys), min(remaining, MAX_TRIALS)))
        self.total = None if walked == MAX_TRIALS < remaining else walked + len(past_cases)
        """The total number of combinations; None when it is above 100,000 and was not counted."""
        self._cases: Iterator[Params] = itertools.islice(_new_cases(self._space, keys), remaining)
        self._next = next(self._cases, None)


def _new_cases(space: ListedSpace, counts: Mapping[bytes, int]) -> Iterator[Params]:
    """The cases of the space, without the known ones."""
    # By their number: a list may have equal cases, and each is tried as often as it is listed.
    skips = dict(counts)
    for case in space:
        if skips and skips.get(key := _key(case), 0):
            skips[key] -= 1
        else:
            yield case


def _key(case: Params) -> bytes:
    """A key that is equal for equal cases, independent of the order of their parameters."""
    return msgspec.json.encode(case, order="sorted")
