"""How the collectives between the steps of a training survive the loss of a member.

The results of a collective are equal on all members. So a member that has missed one, or has joined the ring later,
takes the result that another member has recorded, and continues as all others do.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparktrain.errors import RingError

Result = list[Any]
"""The tensors that a collective returns."""


class MissedCallError(RingError):
    """A process that has joined the ring does something else than the others: no other ring changes that."""


class CallSurvivor(ABC):
    """What forms the ring again where a collective fails between the steps of a training."""

    @abstractmethod
    def meet(self, name: str) -> None:
        """Before collective `name`: raises MissedCallError where other members come to another one, RingError."""

    @abstractmethod
    def heal(self, error: BaseException) -> bool:
        """Form the ring again after an error, or raise that."""


class Continuity:
    """The eager collectives of one member. All methods belong to the thread that trains."""

    def __init__(self) -> None:
        self.survivor: CallSurvivor | None = None
        """None: an error ends the training, or its open step."""
        self.echoes = False
        """Whether collectives return what all would get from members that are equal to this one: a member that joins a
        ring in its midst does not repeat what the others have done together before."""
        self.alone = False
        """The same also for collectives of a function that is traced."""
        self.started = 0
        """Collectives that this member has called."""
        self.checks_echoes = False
        """Whether results are compared with their echoes, until a training starts or some differ."""
        self.repeats = True
        """Whether all collectives that were compared had the results of their echoes: then a process that joins the
        ring later computes them by itself."""
        self.results: list[Result] = []
        """Of all collectives since the newest step, where there is a `survivor`."""
        self.names: set[str] = set()
        """Of the collectives that were called; a step clears them."""
        self._ahead: deque[Result] = deque()
        self._healing = False

    def call(self, operate: Callable[[], Result], echo: Callable[[], Result], name: str = "") -> Result:
        """The result of collective `name`, from the ring, or as recorded by another member. Raises RingError."""
        if self._healing:
            return operate()
        self.started += 1
        self.names.add(name)
        if self.echoes or self.alone:
            return echo()
        result = None if self._ahead else self._from_ring(operate, name)
        if result is None:
            result = self._next(echo())
        if self.checks_echoes and not _are_equal(result, echo()):
            self.repeats = False
            self.checks_echoes = False
        if self.survivor is not None:
            self.results.append(result)
        return result

    def _from_ring(self, operate: Callable[[], Result], name: str) -> Result | None:
        """The result; None where another member has recorded it."""
        while True:
            try:
                if self.survivor is not None:
                    self.survivor.meet(name)
                return operate()
            except MissedCallError:
                raise
            except RingError as error:
                if self.survivor is None:
                    raise
                self.survivor.heal(error)
                if self._ahead:
                    return None

    def _next(self, like: Result) -> Result:
        """The result that another member has recorded. Raises MissedCallError for that of another collective."""
        result = self._ahead.popleft()
        kinds = [[(tensor.dtype, tuple(tensor.shape)[1:]) for tensor in tensors] for tensors in (result, like)]
        if kinds[0] != kinds[1]:
            raise MissedCallError(
                f"this process calls a collective of {kinds[1]}, by types and shapes, and the others have called one "
                f"of {kinds[0]}: the code after memory.step() must do the same in a process that resumes there"
            )
        return result

    @property
    def is_behind(self) -> bool:
        """Whether other members have called more collectives than this one."""
        return bool(self._ahead)

    def follow(self, results: Sequence[Result]) -> None:
        """The next collectives of this member are those with `results`, by another member."""
        self._ahead = deque(results)

    def step(self) -> None:
        """A step has ended: the results before it are not needed any more."""
        self.results.clear()

    @contextmanager
    def healing(self) -> Iterator[None]:
        """Within the block, collectives are those of the members that form the ring again: they raise every error."""
        self._healing = True
        try:
            yield
        finally:
            self._healing = False

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Within the block this member calls no other one."""
        self.alone = True
        try:
            yield
        finally:
            self.alone = False


def _are_equal(result: Result, echo: Result) -> bool:
    """Whether a collective has changed nothing; False for values of a type that NumPy lacks."""
    try:
        return all(
            np.array_equal(np.asarray(total), np.asarray(mine)) for total, mine in zip(result, echo, strict=True)
        )
    except (TypeError, RuntimeError):
        return False
