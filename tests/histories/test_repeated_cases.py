"""A driver that repeats cases may die at each record: the next one closes and suggests the same cases."""

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import loguniform, randint, uniform
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.runs.history import past
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import AnyRecord, CaseClosed, GangFormed, TrialConcluded, TrialsAdded
from tests.histories.test_sampler_restarts import asked_late, cases_of, check_suggestions, cut, deaths, train
from tests.support.run_stages import with_rules
from tests.unit.driver.drivers import NAME, Driver, World, play, whole

__all__ = ["asked_late"]  # a fixture

EACH_RECORD = pytest.mark.all(
    case="a driver that repeats cases dies at each record of its journal",
    covered_by="at each eighth record of each kind",
)

CASES, REPEATS, FOLDS = 6, 2, 2
SIZE = REPEATS * FOLDS
SPACE = space(x=randint(0, 999), lr=loguniform(1e-5, 1e-1), drop=uniform(0, 0.5), units=[1, 2])


def prepared(sampler: str = "tpe", cases: int = CASES) -> CheckedCall:
    options = SweepOptions(
        metric="y", mode="max", name=NAME, backend="none", preload=[], seed=1, trials=cases, sampler=sampler,
        repeats=REPEATS, folds=FOLDS,
    )  # fmt: skip
    return compose(train, SPACE, options)


def outcome(trial: TrialId, x: int) -> Outcome:
    """The place in the case matters little; each fifth trial raises."""
    if trial % 5 == 4:
        return Outcome(0.1, failure=Failure(FailureKind.EXCEPTION, f"ValueError: {x}"))
    return Outcome(0.1, metrics={"y": float(x + trial % SIZE)})


def world_of(world: World) -> World:
    world.outcome = outcome
    return world


def ends(records: list[AnyRecord]) -> dict[int, str]:
    return {each.trial: each.status.value for each in records if isinstance(each, TrialConcluded)}


def observations(records: list[AnyRecord]) -> list[Observation]:
    return [each for each in past(records, "y") if isinstance(each, Observation)]


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=EACH_RECORD)])
@pytest.mark.usefixtures("asked_late")
def test_a_driver_may_die_at_each_record_of_its_journal(stride: int) -> None:
    run, world = prepared(), world_of(World())
    play(Driver(world, run, whole, agents=1).run())
    records = list(world.records())
    expected = cases_of(world)
    assert len(expected) == CASES
    assert len(ends(records)) == CASES * SIZE
    assert {"succeeded", "failed", "pruned"} == set(ends(records).values())
    assert [int(each.trial) for each in observations(records)] == list(range(CASES))
    kinds = set()
    for end in deaths(records, stride):
        kinds.add(type(records[end - 1]))
        resumed = world_of(cut(world, run, records[:end]))
        play(Driver(resumed, run, whole, agents=1).run())
        after = list(resumed.records())
        assert cases_of(resumed) == expected, f"it differs after {records[end - 1]}"
        assert ends(after) == ends(records), f"it differs after {records[end - 1]}"
        assert observations(after) == observations(records), f"it differs after {records[end - 1]}"
    assert {TrialsAdded, GangFormed, TrialConcluded, CaseClosed} <= kinds


def test_slots_that_race_observe_each_case_once() -> None:
    run, world = prepared(), world_of(World())
    play(Driver(world, run, whole, agents=3).run())
    records = list(world.records())
    check_suggestions(run, records, 0)
    for end in range(2, len(records), 5):
        resumed = world_of(cut(world, run, records[:end]))
        kept = len(cases_of(resumed))
        play(Driver(resumed, run, whole, agents=3).run())
        after = list(resumed.records())
        assert cases_of(resumed)[:kept] == cases_of(world)[:kept]
        assert sorted(int(each.trial) for each in observations(after)) == list(range(CASES))
        assert len(ends(after)) == CASES * SIZE
        check_suggestions(run, after, kept)
        closed = {case for each in records[:end] if isinstance(each, CaseClosed) for case in [each.case]}
        begun = {trial for trial, _ in resumed.started}
        assert not {trial for trial in begun if trial // SIZE in closed}, "a closed case starts no trial"


@pytest.mark.usefixtures("asked_late")
def test_more_cases_continue_the_search_that_was_complete() -> None:
    world = world_of(World())
    play(Driver(world, prepared(), whole, agents=1).run())
    play(Driver(world, prepared(cases=CASES + 3), whole, agents=1).run())
    longer = world_of(World())
    play(Driver(longer, prepared(cases=CASES + 3), whole, agents=1).run())
    assert cases_of(world) == cases_of(longer), "as if it had been so many from the start"
    assert ends(list(world.records())) == ends(list(longer.records()))


def test_failed_trials_are_retried_and_their_cases_learned_again() -> None:
    world = world_of(World())
    play(Driver(world, prepared(), whole, agents=1).run())
    before = list(world.records())
    failed = {trial for trial, status in ends(before).items() if status == "failed"}
    world.again = set(range(CASES * SIZE))
    world.outcome = lambda trial, x: Outcome(0.1, metrics={"y": float(x)})
    play(Driver(world, with_rules(prepared(cases=CASES + 1), retry_failed=True), whole, agents=1).run())
    after = list(world.records())
    assert "failed" not in ends(after).values()
    closed = {each.case for each in before if isinstance(each, CaseClosed)}
    again = {trial // SIZE for trial in failed}
    assert again - closed
    learned = [int(each.trial) for each in observations(after)]
    assert learned[:CASES] == list(range(CASES))
    assert set(learned[CASES:]) == again | {CASES}
