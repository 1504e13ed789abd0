"""The thread in which a coordinator calls the samplers of its runs, because they may compute for long."""

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sparktrain.errors import SamplerError, SparktrainError
from sparktrain.ids import TrialId
from sparktrain.search.sampler import NO_ANSWER, AnsweringSampler, Observation, Reply, Sampler, Suggestion

T = TypeVar("T")
SETTLE_TIMEOUT_S = 300.0


class SamplerThread:
    """Calls samplers one call at a time, in the order in which its methods are called. They belong to one event loop.

    All raise SamplerError with the traceback when the sampler raises, or the sampler's own SparktrainError.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sparktrain-sampler")
        self._observing: set[asyncio.Task[Any]] = set()

    async def suggest(self, sampler: Sampler, count: int) -> Suggestion:
        """Ask for `count` cases."""
        return await self._call(f"asked for {count} cases", partial(sampler.suggest, count))

    async def observe(self, sampler: Sampler, observation: Observation) -> None:
        """Report the end of a trial."""
        if (task := asyncio.current_task()) is not None:
            self._observing.add(task)
            task.add_done_callback(self._observing.discard)
        await self._call(f"given the result of trial {observation.trial}", partial(sampler.observe, observation))

    async def answer(self, sampler: Sampler, trial: TrialId, question: bytes) -> Reply:
        """Ask a question of a running trial; a sampler that answers none has the reply `NO_ANSWER`."""
        if not isinstance(sampler, AnsweringSampler):
            return NO_ANSWER
        return await self._call(f"asked by trial {trial}", partial(sampler.answer, trial, question))

    async def settle(self) -> None:
        """Wait for the calls of all results so far, for some minutes at most: they may write to a storage."""
        if self._observing:
            await asyncio.wait(self._observing, timeout=SETTLE_TIMEOUT_S)

    def close(self) -> None:
        """Call nothing more. Does not wait for a call that runs."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _call(self, doing: str, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(guarded, doing, call))


def guarded(doing: str, call: Callable[[], T]) -> T:
    """Call a sampler in this thread. Raises SamplerError with the traceback when it raises, or its SparktrainError."""
    try:
        return call()
    except SparktrainError:
        raise
    except Exception as error:
        inside = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without this function
        text = "".join(traceback.format_exception(error.with_traceback(inside))).rstrip()
        raise SamplerError(
            f"the sampler raised {type(error).__name__} when it was {doing}: {error}; the run is stopped and keeps "
            f"its results: correct the sampler, or choose another one, and make the same call to resume\n{text}"
        ) from error
