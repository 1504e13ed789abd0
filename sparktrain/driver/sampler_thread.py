"""The thread in which a coordinator calls the sampler of a run, because it may compute for long, or never return."""

import asyncio
import os
import queue
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sparktrain.base import formatting
from sparktrain.base.boundary import is_interrupt, message_of, trace_of
from sparktrain.base.clock import Clock
from sparktrain.base.ids import TrialId
from sparktrain.base.threads import spawn
from sparktrain.errors import SamplerError, SparktrainError
from sparktrain.search.sampler import NO_ANSWER, AnsweringSampler, Observation, Reply, Sampler, Suggestion

T = TypeVar("T")
CALL_TIMEOUT_S = 1800.0
"""How long one call of a sampler may take: one of a Gaussian process takes half a minute, that of a storage minutes."""
SETTLE_TIMEOUT_S = 300.0
"""How long the end of a run waits until the sampler has all results: they may go to a storage."""
NOTED_S = 5.0
"""A call that takes longer than this is shown."""
LOOK_S = 0.2
STEP = (
    "the run is stopped and keeps its results: correct the sampler, or choose another one, and make the same call to "
    "resume"
)


class _Call(NamedTuple):
    """One call of a sampler, and who waits for it."""

    doing: str
    work: Callable[[], Any]
    done: "Callable[[Any, BaseException | None], None]"


class SamplerThread:
    """Calls a sampler one call at a time, in the order in which its methods are called. They belong to one event loop.

    All raise SamplerError with the traceback when the sampler raises whatever it may be, or does not return within
    `CALL_TIMEOUT_S`; or the sampler's own SparktrainError. Neither a run nor the process waits for a thread that hangs.
    """

    def __init__(self, clock: Clock, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._clock = clock
        self._call_timeout_s = call_timeout_s
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._observing: set[asyncio.Task[Any]] = set()
        self._current: tuple[str, float] | None = None
        """What the sampler does, and since when."""
        self._started = False

    async def suggest(self, sampler: Sampler, count: int) -> Suggestion:
        """Ask for `count` cases."""
        return await self._call(f"asked for {formatting.count(count, 'case')}", partial(sampler.suggest, count))

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

    @property
    def note(self) -> str:
        """What takes the sampler so long; empty where nothing does."""
        current = self._current
        if current is None or (waits_s := self._clock.now() - current[1]) < NOTED_S:
            return ""
        return f"waiting {formatting.duration(waits_s)} for the sampler, which was {current[0]}"

    async def settle(self, patience_s: Callable[[], float]) -> str:
        """Wait for the calls of all results so far, for some minutes at most; not for a sampler that is in one call for
        longer than `patience_s`, as it is then. Returns what it was left in; empty where it has them all."""
        deadline = self._clock.now() + SETTLE_TIMEOUT_S
        while self._observing:
            if self._age_s > patience_s() or self._clock.now() > deadline:
                doing = self._current
                return f"it has not returned since it was {doing[0]}" if doing is not None else "it is slow"
            await asyncio.wait(self._observing, timeout=LOOK_S)
        return ""

    def close(self) -> None:
        """Call nothing more. Does not wait for a call that runs."""
        while True:
            try:
                self._calls.get_nowait()
            except queue.Empty:
                break
        # The thread is a daemon: a call that hangs keeps neither the run nor the exit of the process.
        self._calls.put(None)

    @property
    def _age_s(self) -> float:
        """For how long the sampler has been in its current call."""
        return 0.0 if (current := self._current) is None else self._clock.now() - current[1]

    async def _call(self, doing: str, work: Callable[[], T]) -> T:
        if not self._started:
            self._started = True
            spawn(self._serve, "sparktrain-sampler")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # One call at a time and in order: a sampler that is restored gets the same calls in the same order from the
        # journal.
        self._calls.put(_Call(doing, work, partial(_settle_soon, loop, future)))
        while not future.done():
            await asyncio.wait({future}, timeout=min(1.0, self._call_timeout_s))
            current = self._current
            if not future.done() and current is not None and self._age_s > self._call_timeout_s:
                future.cancel()
                raise SamplerError(
                    f"the sampler has not returned within {self._call_timeout_s:g} s since it was {current[0]}; {STEP}"
                )
        return future.result()

    def _serve(self) -> None:
        """The sampler's thread."""
        while (call := self._calls.get()) is not None:
            self._current = call.doing, self._clock.now()
            result, failed = _outcome(call.doing, call.work)
            self._current = None
            call.done(result, failed)


def _settle_soon(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Any]", result: Any, failed: BaseException | None
) -> None:
    """Have the loop, from another thread, give the call's result to who waits for it."""

    def settle() -> None:
        if done.done():
            return
        if failed is not None:
            done.set_exception(failed)
        else:
            done.set_result(result)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended
        return


def guarded(doing: str, call: Callable[[], T]) -> T:
    """Call a sampler in this thread. Raises SamplerError with the traceback when it raises, or its SparktrainError."""
    try:
        return call()
    except SparktrainError:
        raise
    except BaseException as error:  # a sampler may call sys.exit(), which would end the driver's thread
        if is_interrupt(error):
            raise
        raise SamplerError(
            f"the sampler raised {type(error).__name__} when it was {doing}: {message_of(error)}; {STEP}\n"
            f"{trace_of(error)}"
        ) from error


def _outcome(doing: str, call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """What `guarded` returns, and what it raises."""
    process = os.getpid()
    result = None
    failed = None
    try:
        result = guarded(doing, call)
    except BaseException as error:
        failed = error
    if os.getpid() != process:  # the sampler has forked: the child must not continue as a driver
        os._exit(1 if failed is not None else 0)
    return result, failed


def guarded_aside(doing: str, call: Callable[[], T], timeout_s: float | None) -> T:
    """As `guarded`, in a thread of its own, before a run has an event loop: for `timeout_s` at most, and for no longer
    than until Ctrl-C. Blocks."""
    ended: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    limit_s = CALL_TIMEOUT_S if timeout_s is None else min(CALL_TIMEOUT_S, timeout_s)
    spawn(lambda: ended.put(_outcome(doing, call)), "sparktrain-sampler")
    try:
        result, failed = ended.get(timeout=limit_s)
    except queue.Empty:
        raise SamplerError(
            f"the sampler has not returned within {limit_s:g} s since it was {doing}; nothing was run: correct the "
            "sampler, or choose another one"
        ) from None
    if failed is not None:
        raise failed
    return result  # type: ignore[return-value]  # of T, for there is no error
