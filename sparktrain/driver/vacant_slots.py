"""Slots with agents that have ended while others of their job continue: Spark counts such tasks as done, and the pool
resubmits them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import Clock
from sparktrain.driver.engines.engine import AgentBatch

PAUSE_S = 15.0
"""From the end of a slot's agent until the slot is resubmitted; twice as long each time."""
PAUSE_AT_MOST_S = 600.0


@dataclass
class _Vacancy:
    due: float
    backoff: Backoff
    job: AgentBatch | None = None
    """The job that carries the slot, once it was resubmitted."""


class Vacancies:
    """Of one pool. All methods belong to one thread at a time; those that ask Spark block for a moment."""

    def __init__(self, submit: Callable[[int], AgentBatch | None], clock: Clock, pause_s: float = PAUSE_S) -> None:
        """`submit` starts a job of one slot; None when the pool wants no more. The first pause takes `pause_s`."""
        self._pause_s = pause_s
        self._submit = submit
        self._clock = clock
        self._vacancies: dict[int, _Vacancy] = {}

    def look(self, jobs: Iterable[AgentBatch]) -> None:
        """Resubmit slots that have been vacant for a while in `jobs`, those of the pool."""
        now = self._clock.now()
        vacant = set[int]().union(*(job.vacant() for job in jobs))
        self._vacancies = {slot: gap for slot, gap in self._vacancies.items() if slot in vacant or gap.job}
        for slot in sorted(vacant):
            if slot not in self._vacancies:
                backoff = Backoff(self._pause_s, PAUSE_AT_MOST_S)
                self._vacancies[slot] = _Vacancy(now + backoff.next_s(), backoff)
            vacancy = self._vacancies[slot]
            if vacancy.job is not None and slot in vacancy.job.vacant():
                vacancy.job = None
                vacancy.due = now + vacancy.backoff.next_s()
            if vacancy.job is None and now >= vacancy.due:
                vacancy.job = self._submit(slot)

    def retire(self) -> list[AgentBatch]:
        """The jobs of resubmitted slots; from now on no slot is vacant."""
        vacancies = self._vacancies
        self._vacancies = {}
        return [vacancy.job for vacancy in vacancies.values() if vacancy.job is not None]
