"""What every sampler must do. The test class of a sampler inherits `SamplerContract` and implements `make`.

    class TestMySampler(SamplerContract):
        def make(self) -> MySampler:
            return MySampler(seed=1, trials=20)

The tests simulate sweeps: some trials fail, some are pruned, and they end in an order of their own.
"""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.base.ids import TrialId
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion

_MOST_TRIALS = 30
_CALL_CASES = 3

History = list[PastSuggestion | Observation]


class SamplerContract:
    """Tests of the contract in `sparktrain.search.sampler`, with nothing of this package's tests."""

    restores_exactly = True
    """A restored sampler suggests what the one before would have."""
    memo_bytes = 5_000
    """The most bytes of a memo, for each of its cases."""
    cuts = 4
    """At how many places of a sweep a restart is tested."""

    def make(self) -> Sampler:
        """A fresh sampler; each call gives an equal one."""
        raise NotImplementedError("a test class of a sampler must have a method `make`")

    def score(self, params: Mapping[str, Any]) -> dict[str, float]:
        """The metrics of a trial."""
        return {"y": random.Random(json.dumps(params, sort_keys=True)).random()}

    def test_a_suggestion_has_at_most_as_many_cases_as_asked_and_they_are_plain_data(self) -> None:
        for count in (1, 2, 5):
            suggestion = self.make().suggest(count)
            assert isinstance(suggestion, Suggestion)
            assert 1 <= len(suggestion.cases) <= count, "a fresh sampler has something to propose"
            assert json.loads(json.dumps(suggestion.cases)) == list(suggestion.cases)

    def test_a_sweep_ends_where_the_sampler_is_exhausted(self) -> None:
        sampler = self.make()
        history = self.sweep(sampler, [])
        cases = sum(len(event.cases) for event in history if isinstance(event, PastSuggestion))
        assert sampler.total is None or cases <= sampler.total
        assert cases == _MOST_TRIALS or sampler.suggest(1) == Suggestion((), True, sampler.suggest(1).memo)

    def test_a_memo_is_small_and_plain(self) -> None:
        for event in self.sweep(self.make(), []):
            if isinstance(event, PastSuggestion):
                assert len(json.dumps(event.memo, allow_nan=False)) <= self.memo_bytes * max(1, len(event.cases))

    def test_the_same_calls_give_the_same_suggestions(self) -> None:
        assert self.sweep(self.make(), []) == self.sweep(self.make(), [])

    def test_a_restored_sampler_continues(self) -> None:
        expected = self.sweep(self.make(), [])
        for cut in sorted({1 + round(index * (len(expected) - 1) / self.cuts) for index in range(self.cuts)}):
            sampler = self.make()
            sampler.restore(json_of(expected[:cut]))
            resumed = self.sweep(sampler, expected[:cut])
            if self.restores_exactly:
                assert resumed == expected, f"it differs after a restart at event {cut} of {len(expected)}"
            else:
                assert len(resumed) == len(expected)

    def test_a_trial_may_end_twice(self) -> None:
        sampler = self.make()
        case = sampler.suggest(1).cases[0]
        sampler.observe(Observation(TrialId(0), case, ObservedStatus.FAILED, {}))
        sampler.observe(Observation(TrialId(0), case, ObservedStatus.SUCCEEDED, self.score(case)))
        sampler.suggest(1)

    def test_a_result_of_another_space_does_no_harm(self) -> None:
        sampler = self.make()
        suggestion = PastSuggestion(TrialId(0), ({"of_another_space": 1},), False)
        result = Observation(TrialId(0), {"of_another_space": 1}, ObservedStatus.SUCCEEDED, {"y": 1.0})
        sampler.restore([suggestion, result])
        sampler.suggest(1)

    def sweep(self, sampler: Sampler, before: Sequence[PastSuggestion | Observation]) -> History:
        """All that a sweep suggests and observes, with what was `before`; always in the same order of ends."""
        history = list(before)
        while True:
            count, ended, exhausted = _state_of(history)
            running = [number for number in range(count) if number not in ended]
            if not exhausted and len(running) < _CALL_CASES and count < _MOST_TRIALS:
                proposal = sampler.suggest(min(_CALL_CASES - len(running), _MOST_TRIALS - count))
                history += json_of([PastSuggestion(TrialId(count), proposal.cases, proposal.exhausted, proposal.memo)])
                continue
            if not running:
                return history
            end = self._end(running[random.Random(len(ended)).randrange(len(running))], history)
            sampler.observe(end)
            history.append(end)

    def _end(self, trial: int, history: Sequence[PastSuggestion | Observation]) -> Observation:
        params = [case for event in history if isinstance(event, PastSuggestion) for case in event.cases][trial]
        if trial % 7 == 3:
            return Observation(TrialId(trial), params, ObservedStatus.FAILED, {})
        if trial % 5 == 4:
            return Observation(TrialId(trial), params, ObservedStatus.PRUNED, self.score(params), step=3)
        return Observation(TrialId(trial), params, ObservedStatus.SUCCEEDED, self.score(params))


def json_of(history: Sequence[PastSuggestion | Observation]) -> History:
    """The same as a journal gives it back."""
    return [
        PastSuggestion(event.first, tuple(_json(list(event.cases))), event.exhausted, _json(event.memo))
        if isinstance(event, PastSuggestion)
        else event
        for event in history
    ]


def _state_of(history: Sequence[PastSuggestion | Observation]) -> tuple[int, set[int], bool]:
    """Cases so far, the trials that have ended, and whether no more come."""
    suggestions = [event for event in history if isinstance(event, PastSuggestion)]
    ended = {int(event.trial) for event in history if isinstance(event, Observation)}
    return sum(len(event.cases) for event in suggestions), ended, bool(suggestions) and suggestions[-1].exhausted


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value))
