"""Proposes the trials that users add to a running sweep before those of its sampler."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from sparktrain.base.ids import TrialId
from sparktrain.runs.additions.enqueued import MEMO, EnqueuedTrial
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import Space
from sparktrain.search.warm_sampler import Places

ALL_CASES = "enqueued_whole"
"""The entry in the memo of a suggestion that leaves out added cases: all cases that the inner sampler proposed."""

Requests = Callable[[Collection[str]], Sequence[EnqueuedTrial]]
"""Reads the requests of users: those that are not among these numbers, the oldest first. Blocks. Raises OSError."""

logger = logging.getLogger("sparktrain")


class EnqueuedSampler(Sampler):
    """Proposes what users have added, and else what `inner` does. An added trial counts as one of the sweep's trials.

    `inner` has numbers of its own for its cases, which follow each other as if nothing had been added. It learns from
    the results of added trials, which have numbers below 0 for it. The memo of a suggestion names the requests that it
    answers, so that another driver answers none twice.
    """

    def __init__(self, inner: Sampler, space: Space, requests: Requests, listed: bool) -> None:
        """`listed`: `inner` proposes each case of the space once, so an added one only comes before its turn."""
        self.learns = inner.learns
        self._inner = inner
        self._requests = requests
        self._listed = listed
        self._places = Places(space)
        self._request_ids: set[str] = set()
        self._count = 0
        """Cases so far, of both kinds."""
        self._inner_count = 0
        self._numbers: dict[TrialId, TrialId] = {}
        """The inner number of each case that `inner` has proposed."""
        self._tried: set[bytes] = set()
        """The cases so far, of a list."""
        self._added: Counter[bytes] = Counter()
        """The cases of a list that were added, which `inner` will propose, too."""

    @property
    def total(self) -> int | None:  # type: ignore[override]  # it grows with what the inner one learns
        """See base class."""
        return self._inner.total

    def suggest(self, count: int) -> Suggestion:
        """See base class. Blocks on the store, where the requests are."""
        remaining = count if self.total is None else min(count, self.total - self._count)
        if remaining <= 0:
            return Suggestion((), exhausted=True)
        if added := self._take(remaining):
            cases = tuple(trial.params for trial in added)
            for case in cases:
                self._add(case)
            return Suggestion(cases, self._is_full, {MEMO: [trial.id for trial in added]})
        # The journal has what was asked for: as long as nothing was added, the inner sampler is asked for the same.
        return self._of_inner(count if self._count == self._inner_count else remaining)

    def observe(self, observation: Observation) -> None:
        """See base class."""
        self._inner.observe(self._as_inner(observation))

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class."""
        of_inner: list[PastSuggestion | Observation] = []
        for record in history:
            if isinstance(record, Observation):
                of_inner.append(self._as_inner(record))
            elif MEMO in record.memo:
                self._request_ids.update(record.memo[MEMO])
                for case in record.cases:
                    self._add(case)
            else:
                all_cases = tuple(record.memo.get(ALL_CASES, record.cases))
                of_inner.append(replace(record, first=TrialId(self._inner_count), cases=all_cases))
                for case in all_cases:
                    self._enlist(case)
        # The inner sampler must see what it proposed and nothing else, or a restored one would propose other cases than
        # the one that the driver before had.
        self._inner.restore(of_inner)

    # ---- inside

    @property
    def _is_full(self) -> bool:
        return self.total is not None and self._count >= self.total

    def _of_inner(self, count: int) -> Suggestion:
        all_cases: list[dict[str, Any]] = []
        while True:
            suggestion = self._inner.suggest(count)
            all_cases += suggestion.cases
            cases = tuple(case for case in suggestion.cases if self._enlist(case))
            if cases or not suggestion.cases or suggestion.exhausted:
                left_out = {} if len(all_cases) == len(cases) else {ALL_CASES: all_cases}
                return Suggestion(cases, suggestion.exhausted or self._is_full, {**suggestion.memo, **left_out})

    def _take(self, most: int) -> list[EnqueuedTrial]:
        """The next requests, at most so many, with their cases as the space has them; wrong ones are logged."""
        try:
            requests = self._requests(self._request_ids)
        # An added trial can wait for the store; the sweep must not end because of it.
        except OSError as error:
            logger.debug("added trials cannot be read now: %s", error)
            return []
        trials: list[EnqueuedTrial] = []
        for request in requests:
            if len(trials) == most:
                break
            self._request_ids.add(request.id)
            case, problem = self._places.find(request.params)
            if case is not None and self._listed and _key(case) in self._tried:
                case = None
                problem = "a list has each combination once, and this one is a trial already"
            if case is None:
                logger.warning("the trial that %s added is left out: %s", request.user or "a user", problem)
                continue
            self._tried.add(_key(case))
            trials.append(msgspec.structs.replace(request, params=case))
        return trials

    def _add(self, case: Mapping[str, Any]) -> None:
        self._count += 1
        self._tried.add(_key(case))
        self._added[_key(case)] += 1

    def _enlist(self, case: Mapping[str, Any]) -> bool:
        """Count a case of `inner`; returns whether it is a new trial, and none that a user added before its turn."""
        number = TrialId(self._inner_count)
        key = _key(case)
        self._inner_count += 1
        if self._listed and self._added[key] > 0:
            self._added[key] -= 1
            return False
        self._numbers[TrialId(self._count)] = number
        self._count += 1
        self._tried.add(key)
        return True

    def _as_inner(self, observation: Observation) -> Observation:
        if observation.trial < 0:
            return observation
        number = self._numbers.get(observation.trial, TrialId(-1 - observation.trial))
        return replace(observation, trial=number)


def _key(case: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(case, order="sorted")
