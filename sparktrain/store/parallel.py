"""The same function on many items, by a few threads."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sparktrain.base.threads import spawn

T = TypeVar("T")
R = TypeVar("R")

CheckCancelled = Callable[[], None]
"""Raises when another item has failed, so that this one need not finish."""


def spread(work: Callable[[T, CheckCancelled], R], things: Sequence[T], threads: int) -> list[R]:
    """The results of `work` for `things`, in order. Items also start in that order.

    The first failure cancels the rest: no further item starts, and running ones end at their next call of
    `CheckCancelled`. Blocks until every thread has ended, and raises that failure. With `threads=1` the caller's thread
    does all the work.
    """
    team = _Team(work, things)
    helpers = [spawn(team.run) for _ in range(min(threads, len(things)) - 1)]
    team.run()
    for helper in helpers:
        helper.join()  # each operation of a store is bounded
    if team.failures:
        raise team.failures[0]
    return [team.results[index] for index in range(len(things))]


class _Team(Generic[T, R]):
    """State that the threads share. Every operation on its containers is atomic."""

    def __init__(self, work: Callable[[T, CheckCancelled], R], things: Sequence[T]) -> None:
        self.results: dict[int, R] = {}
        self.failures: list[BaseException] = []
        self._work = work
        self._waiting = deque(enumerate(things))

    def run(self) -> None:
        """Work until no item is left, or one has failed."""
        try:
            while not self.failures and (turn := self._next()) is not None:
                index, thing = turn
                self.results[index] = self._work(thing, self._check_cancelled)
        except _EndedError:
            return
        except BaseException as failure:
            self.failures.append(failure)

    def _next(self) -> tuple[int, T] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _check_cancelled(self) -> None:
        if self.failures:
            raise _EndedError


class _EndedError(Exception):
    """Another thread has failed."""
