"""The same work on many things, by a few threads at a time."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sparktrain.threads import spawn

T = TypeVar("T")
R = TypeVar("R")

GoOn = Callable[[], None]
"""Raises when the work has failed elsewhere, and need not be finished."""


def spread(work: Callable[[T, GoOn], R], things: Sequence[T], threads: int) -> list[R]:
    """What `work` returns for each of `things`, in their order; begun in that order too.

    The first failure ends the rest: nothing more is begun, and what was begun ends at its next call of `GoOn`. Blocks
    until no thread is at work any more, and raises that failure. With one thread the caller does it all.
    """
    team = _Team(work, things)
    others = [spawn(team.run) for _ in range(min(threads, len(things)) - 1)]
    team.run()
    for each in others:
        each.join()  # each operation of a store is bounded
    if team.failures:
        raise team.failures[0]
    return [team.results[index] for index in range(len(things))]


class _Team(Generic[T, R]):
    """What the threads share. Its containers are used by operations that no other thread can interrupt."""

    def __init__(self, work: Callable[[T, GoOn], R], things: Sequence[T]) -> None:
        self.results: dict[int, R] = {}
        self.failures: list[BaseException] = []
        self._work = work
        self._waiting = deque(enumerate(things))

    def run(self) -> None:
        """Work until nothing is left, or something has failed."""
        try:
            while not self.failures and (turn := self._next()) is not None:
                index, thing = turn
                self.results[index] = self._work(thing, self._go_on)
        except _EndedError:
            return
        except BaseException as failure:
            self.failures.append(failure)

    def _next(self) -> tuple[int, T] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _go_on(self) -> None:
        if self.failures:
            raise _EndedError


class _EndedError(Exception):
    """Another thread has failed."""
