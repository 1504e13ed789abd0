"""How the collectives between the steps of a training survive the loss of a member.

The results of a collective are equal on all members. So a member that has missed one, or has joined the ring later,
takes the result that another member has recorded, and goes on as all others do.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sparktrain.errors import RingError

Result = list[Any]
"""The tensors that a collective returns."""


class Continuity:
    """The eager collectives of one member. All methods belong to the thread that trains."""

    def __init__(self) -> None:
        self.mend: Callable[[RingError], None] | None = None
        """Forms the ring anew after an error, or raises it; None: the error ends the training."""
        self.echoes = False
        """Whether collectives return what all would get from members that are equal to this one: a member that joins a
        ring in its midst does not repeat what the others have done together before."""
        self.alone = False
        """The same also for collectives of a function that is traced."""
        self.started = 0
        """Collectives that this member has called."""
        self.results: list[Result] = []
        """Of all collectives since the newest step, where there is a `mend`."""
        self._ahead: deque[Result] = deque()
        self._mending = False

    def call(self, operate: Callable[[], Result], echo: Callable[[], Result]) -> Result:
        """The result of a collective, from the ring, or as recorded by another member. Raises RingError."""
        if self._mending:
            return operate()
        self.started += 1
        if self.echoes or self.alone:
            return echo()
        result = None if self._ahead else self._from_ring(operate)
        if result is None:
            result = self._ahead.popleft()
        if self.mend is not None:
            self.results.append(result)
        return result

    def _from_ring(self, operate: Callable[[], Result]) -> Result | None:
        """The result; None where another member has recorded it."""
        while True:
            try:
                return operate()
            except RingError as error:
                if self.mend is None:
                    raise
                self.mend(error)
                if self._ahead:
                    return None

    def follow(self, results: Sequence[Result]) -> None:
        """The next collectives of this member are those with `results`, by another member."""
        self._ahead = deque(results)

    def step(self) -> None:
        """A step has ended: the results before it are not needed any more."""
        self.results.clear()

    @contextmanager
    def mending(self) -> Iterator[None]:
        """Within the block, collectives are those of the members that mend the ring: they raise every error."""
        self._mending = True
        try:
            yield
        finally:
            self._mending = False

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Within the block this member calls no other one."""
        self.alone = True
        try:
            yield
        finally:
            self.alone = False
