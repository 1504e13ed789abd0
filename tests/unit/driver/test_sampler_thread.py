"""A sampler of the user may raise whatever it likes, or never return: the run ends, and the process can."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import TrialId
from sparktrain.driver.sampler_thread import SamplerThread, guarded_aside
from sparktrain.errors import SamplerError, SpecError
from sparktrain.search.named_samplers import OwnSampler
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Suggestion

LIMIT_S = 20.0
END = Observation(TrialId(0), {"x": 1}, ObservedStatus.SUCCEEDED, {"y": 1.0})


class MuteError(Exception):
    """Its message raises."""

    def __str__(self) -> str:
        raise SystemExit(2)


class Sampler:
    """What a user writes."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def suggest(self, count: int) -> Suggestion:
        self._act()
        return Suggestion(({"x": 1},), False)

    def observe(self, observation: Observation) -> None:
        self._act()

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        self._act()


def raising(error: BaseException) -> OwnSampler:
    def act() -> None:
        raise error

    return OwnSampler(Sampler(act), None)


ERRORS = [
    SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("late"), StopIteration(),
    RecursionError("deep"), MemoryError(), MuteError(), TimeoutError("slow"), BaseExceptionGroup("g", [SystemExit()]),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_whatever_a_sampler_raises_is_an_error_of_the_sampler(error: BaseException) -> None:
    thread = SamplerThread(SystemClock())
    for call in (thread.suggest(raising(error), 2), thread.observe(raising(error), END)):
        with pytest.raises(SamplerError, match=f"the sampler raised {type(error).__name__} when it was ") as caught:
            await asyncio.wait_for(call, LIMIT_S)
        first, trace, *lines = str(caught.value).splitlines()
        assert "make the same call to resume" in first
        assert "Traceback (most recent call last):" in trace
        assert "test_sampler_thread.py" in lines[0], "no frame of ours is before the user's"
    assert await asyncio.wait_for(thread.suggest(OwnSampler(Sampler(lambda: None), None), 1), LIMIT_S)
    thread.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_sampler_raises_while_it_is_restored_is_one_too(error: BaseException) -> None:
    sampler = raising(error)
    with pytest.raises(SamplerError, match=f"raised {type(error).__name__} when it was given what"):
        guarded_aside("given what earlier drivers had", lambda: sampler.restore([]), LIMIT_S)


def test_a_sampler_that_hangs_while_it_is_restored_has_the_time_of_the_run() -> None:
    let = threading.Event()
    with pytest.raises(SamplerError, match=r"not returned within 0\.05 s since it was given what"):
        guarded_aside("given what earlier drivers had", lambda: let.wait(LIMIT_S), 0.05)
    let.set()


async def test_a_call_that_never_returns_ends_by_its_limit_and_so_does_what_waits_behind_it() -> None:
    let = threading.Event()
    thread = SamplerThread(SystemClock(), call_timeout_s=0.05)
    stuck = OwnSampler(Sampler(lambda: let.wait(LIMIT_S)), None)
    calls = thread.suggest(stuck, 1), thread.observe(stuck, END)
    for ended in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), LIMIT_S):
        assert isinstance(ended, SamplerError)
        assert "has not returned within 0.05 s since it was asked for 1 case;" in str(ended)
    own = [each for each in threading.enumerate() if each.name == "sparktrain-sampler"]
    assert own
    assert all(each.daemon for each in own), "the process exits without it"
    thread.close()
    let.set()


async def test_the_end_of_a_run_does_not_wait_for_a_sampler_that_is_stuck() -> None:
    let, entered = threading.Event(), threading.Event()

    def act() -> None:
        entered.set()
        let.wait(LIMIT_S)

    thread = SamplerThread(SystemClock())
    sampler = OwnSampler(Sampler(act), None)
    observing = asyncio.create_task(thread.observe(sampler, END))
    await asyncio.to_thread(entered.wait, LIMIT_S)
    left = await asyncio.wait_for(thread.settle(lambda: 0.01), LIMIT_S)
    assert left == "it has not returned since it was given the result of trial 0"
    let.set()
    assert await asyncio.wait_for(thread.settle(lambda: LIMIT_S), LIMIT_S) == ""
    await observing
    thread.close()


def test_attributes_of_a_sampler_that_raise_are_named() -> None:
    class Wrong(Sampler):
        @property
        def total(self) -> int:
            raise SystemExit(4)

    with pytest.raises(SpecError, match=r"total of the sampler .*Wrong raised SystemExit: 4; correct it"):
        OwnSampler(Wrong(lambda: None), None)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Suggestion({"x": 1}, False), "cases of the sampler's suggestion are {'x': 1} (dict); return a list of dicts"),  # type: ignore[arg-type]
        (Suggestion(None, False), "cases of the sampler's suggestion are None"),  # type: ignore[arg-type]
        (Suggestion(({"x": 1},), False, None), "memo of the sampler's suggestion is None"),  # type: ignore[arg-type]
    ],
)
def test_a_suggestion_that_is_none_is_named(made: Suggestion, problem: str) -> None:
    class Wrong(Sampler):
        def suggest(self, count: int) -> Suggestion:
            return made

    with pytest.raises(SpecError) as caught:
        OwnSampler(Wrong(lambda: None), None).suggest(1)
    assert problem in str(caught.value)


def test_a_sampler_gets_copies_of_results() -> None:
    class Greedy(Sampler):
        def observe(self, observation: Observation) -> None:
            observation.params.clear()  # type: ignore[attr-defined]

        def restore(self, history: Sequence[Any]) -> None:
            history[0].cases[0].clear()

    past = PastSuggestion(TrialId(0), ({"x": 1},), False)
    sampler = OwnSampler(Greedy(lambda: None), None)
    sampler.restore([past])
    sampler.observe(END)
    assert (past.cases, END.params) == (({"x": 1},), {"x": 1})
