"""Which member of a gang is slow: simulated rings with members that note their steps as real ones do."""

import random

import pytest

from sparktrain.base.ids import Rank
from sparktrain.state.gangs.step_times import LOOKED_STEPS, SlowCause, SlowMember, StepTimes
from sparktrain.state.gangs.stragglers import lossy_members, slow_member
from sparktrain.training.collectives.step_notes import StepNotes

STEP_NS = 100_000_000
NOISE = 0.03
"""Standard deviation of the work of one step."""
PAUSES = 0.02
"""The part of the steps that take twice as long."""


class Ring:
    """Members that work for about 100 ms in each step, and then wait for the slowest."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 1
        self.notes = [StepNotes(lambda: self.now_ns) for _ in range(size)]
        self.steps = 0
        self.slow: SlowMember | None = None

    def train(self, steps: int, slower: dict[int, float] | None = None) -> SlowMember | None:
        """Take steps; members of `slower` work longer by that part. Returns who is slow then."""
        for _ in range(steps):
            start_ns = self.now_ns
            works = [self._work(1 + (slower or {}).get(rank, 0.0)) for rank in range(len(self.notes))]
            self.now_ns = start_ns + max(works) + 2_000_000
            self.steps += 1
            for notes, work in zip(self.notes, works, strict=True):
                notes.call(start_ns + work)
                notes.step(self.steps)
        times = {Rank(rank): of for rank, notes in enumerate(self.notes) if (of := notes.times()) is not None}
        self.slow = slow_member(times, None if self.slow is None else self.slow.rank)
        return self.slow

    def _work(self, factor: float) -> int:
        pause = 2 if self.random.random() < PAUSES else 1
        return int(STEP_NS * factor * pause * max(0.5, self.random.gauss(1, NOISE)))


@pytest.mark.long
def test_no_member_of_a_thousand_even_runs_is_slow() -> None:
    named = []
    for seed in range(1000):
        ring = Ring(seed, size=2 + seed % 3)
        named += [seed for _ in range(3) if ring.train(LOOKED_STEPS + 1) is not None]
    assert named == []


@pytest.mark.parametrize("size", [2, 4])
def test_a_member_that_is_a_tenth_slower_is_named_within_20_steps(size: int) -> None:
    for seed in range(100):
        ring = Ring(seed, size)
        ring.train(LOOKED_STEPS + 1)
        slow = ring.train(LOOKED_STEPS, {1: 0.1})
        assert slow is not None, seed
        assert (slow.rank, slow.cause) == (1, SlowCause.COMPUTE)
        assert 0.105 < slow.work_s < 0.116
        assert 0.095 < slow.others_s < 0.105


def test_it_is_named_no_more_once_it_works_as_fast_as_the_others() -> None:
    ring = Ring(seed=1, size=3)
    assert ring.train(LOOKED_STEPS + 1, {2: 0.3}) is not None
    assert ring.train(LOOKED_STEPS) is None


def test_a_slow_member_stays_slow_a_little_below_the_limit() -> None:
    times = {Rank(0): StepTimes(0.100, 0.006), Rank(1): StepTimes(0.105, 0.001)}
    assert slow_member(times) is None
    assert slow_member(times, before=0) is None
    assert slow_member(times, before=1) == SlowMember(1, 0.105, 0.100, SlowCause.COMPUTE)


def test_a_member_that_waits_for_data_is_slow_because_of_them() -> None:
    even = StepTimes(0.080, 0.030, 0.001)
    times = {Rank(0): even, Rank(1): StepTimes(0.082, 0.001, 0.028), Rank(2): even}
    slow = slow_member(times)
    assert slow is not None
    assert (slow.rank, slow.cause) == (1, SlowCause.DATA)
    assert (slow.work_s, slow.others_s) == pytest.approx((0.110, 0.081))


def test_nobody_is_slow_alone_or_after_few_steps() -> None:
    assert slow_member({Rank(0): StepTimes(1.0)}) is None
    assert slow_member({Rank(0): StepTimes(1.0), Rank(1): StepTimes(2.0, steps=LOOKED_STEPS - 1)}) is None


def test_a_quota_is_the_cause_where_it_has_stopped_the_slow_member_for_the_difference() -> None:
    usual = StepTimes(0.100, 0.050)
    for throttled_s, others_s in ((0.04, 0.0), (0.01, 0.0), (0.04, 0.04)):
        held = StepTimes(0.1, 0.05, throttled_s=others_s)
        slow = slow_member({Rank(0): held, Rank(1): StepTimes(0.15, throttled_s=throttled_s)})
        assert slow is not None
        assert slow.cause is (SlowCause.QUOTA if throttled_s - others_s > 0.025 else SlowCause.COMPUTE)
    waits = StepTimes(0.100, 0.0, 0.05, throttled_s=0.04)
    assert slow_member({Rank(0): usual, Rank(1): waits}) == SlowMember(1, pytest.approx(0.15), 0.1, SlowCause.DATA)


@pytest.mark.parametrize(("limited", "cause"), [([0], SlowCause.GPU_CLOCK), ([0, 1, 2], SlowCause.COMPUTE)])
def test_the_clock_of_a_gpu_is_the_cause_where_those_of_most_others_are_not_limited(
    limited: list[int], cause: SlowCause
) -> None:
    times = {Rank(rank): StepTimes(0.1 if rank else 0.2, clock_limited=rank in limited) for rank in range(4)}
    slow = slow_member(times)
    assert slow is not None
    assert slow.cause is cause


def test_a_network_is_named_where_segments_are_lost_and_all_members_wait() -> None:
    waiting = [StepTimes(0.1, 0.05, resent=0.001), StepTimes(0.1, 0.06, resent=0.03)]
    assert lossy_members(waiting) == [1]
    assert lossy_members([*waiting, StepTimes(0.15, 0.001)]) == [], "they wait for the last one"
    assert lossy_members(waiting[:1]) == []
