"""Slots with agents that have ended are resubmitted, and not too often."""

from itertools import pairwise

from sparktrain.driver.vacant_slots import PAUSE_AT_MOST_S, PAUSE_S, Vacancies
from tests.unit.clocks import HandClock


class Job:
    """A Spark job of agents, as a test has it."""

    def __init__(self, *slots: int) -> None:
        self.slots = slots
        self.ended: set[int] = set()

    def vacant(self) -> set[int]:
        return self.ended


class Scene:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.submitted: list[tuple[float, Job]] = []
        self.open = True
        self.vacancies = Vacancies(self._submit, self.clock)
        self.whole = Job(0, 1, 2)

    def _submit(self, slot: int) -> Job | None:
        if not self.open:
            return None
        job = Job(slot)
        self.submitted.append((self.clock.at, job))
        return job

    def pass_time(self, seconds: float) -> None:
        until = self.clock.at + seconds
        while self.clock.at < until:
            self.clock.at += 5.0
            self.vacancies.look([self.whole])


def test_a_slot_whose_agent_has_ended_is_submitted_again_once() -> None:
    scene = Scene()
    scene.pass_time(100.0)
    assert scene.submitted == []
    scene.whole.ended.add(1)
    scene.pass_time(PAUSE_S)
    assert scene.submitted == []
    scene.pass_time(1000.0)
    [(_, job)] = scene.submitted
    assert job.slots == (1,)
    scene.whole.ended.add(2)
    scene.pass_time(1000.0)
    assert [job.slots for _, job in scene.submitted] == [(1,), (2,)]


def test_a_slot_that_ends_again_and_again_is_submitted_less_and_less_often() -> None:
    scene = Scene()
    scene.whole.ended.add(0)
    while len(scene.submitted) < 10:
        scene.pass_time(5.0)
        for _, job in scene.submitted:
            job.ended.update(job.slots)
    pauses = [after - before for (before, _), (after, _) in pairwise(scene.submitted)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= 2 * PAUSE_S
    assert PAUSE_AT_MOST_S <= pauses[-1] <= PAUSE_AT_MOST_S + 10.0


def test_a_job_that_is_submitted_again_as_a_whole_has_no_vacancies() -> None:
    scene = Scene()
    scene.whole.ended.add(0)
    scene.pass_time(1000.0)
    [(_, alone)] = scene.submitted
    assert scene.vacancies.retire() == [alone]
    scene.whole = Job(0, 1, 2)
    scene.pass_time(1000.0)
    assert len(scene.submitted) == 1
    assert scene.vacancies.retire() == []


def test_a_pool_that_closes_submits_nothing() -> None:
    scene = Scene()
    scene.whole.ended.add(0)
    scene.open = False
    scene.pass_time(1000.0)
    assert scene.vacancies.retire() == []
