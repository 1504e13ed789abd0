"""A driver that samples may die at each record of its journal: the next one suggests what it would have suggested."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from sparktrain.config.distribution import loguniform, randint, uniform
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs.history import past
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import PastSuggestion
from sparktrain.state.records import AnyRecord, DriverStarted, GangFormed, TrialConcluded, TrialsAdded
from tests.support.run_stages import in_store, with_rules
from tests.unit.driver import drivers
from tests.unit.driver.drivers import NAME, Driver, World, play, whole
from tests.unit.scripted import of_a_script

OTHER_SAMPLERS = pytest.mark.all(
    case="a driver with random and quasi-random samplers dies at each record", covered_by="with TPE, CMA-ES and NSGA-II"
)

EACH_RECORD = pytest.mark.all(
    case="a driver dies at each record of its journal, with TPE, CMA-ES and NSGA-II",
    covered_by="at each sixth record of each kind",
)

ASKED_AHEAD = pytest.mark.all(
    case="CMA-ES and NSGA-II are asked ahead, and a driver dies", covered_by="TPE is; with each of them a driver dies"
)

TRIALS = 14
SPACE = space(x=randint(0, 999), lr=loguniform(1e-5, 1e-1), drop=uniform(0, 0.5), units=[1, 2])


@of_a_script
def train(x: int, lr: float, drop: float, units: int) -> float:
    """Never called: agents answer for it by x."""
    raise NotImplementedError


def prepared(sampler: str, trials: int = TRIALS) -> CheckedCall:
    options = SweepOptions(
        metric="y", mode="max", name=NAME, backend="none", preload=[], seed=1, trials=trials, sampler=sampler
    )
    return compose(train, SPACE, options)


def cut(world: World, run: CheckedCall, records: list[AnyRecord]) -> World:
    """The run as its driver has left it when it died after these records."""
    other = World()
    kept = {path: data for path, data in world.store.files.items() if "/journal/" not in path}
    other.store.files.update({path: data for path, data in kept.items() if not path.endswith("results.json")})
    who = DriverIdentity(host="other", pid=7, started=0.0, sparktrain="1")
    journal, _ = Journal.claim(other.store, run.definition.layout.journal, who)
    journal.append(records)
    return other


def deaths(records: list[AnyRecord], stride: int) -> Iterator[int]:
    """How many of these records a driver has written when it dies: it dies after each `stride`-th one of each kind."""
    seen = Counter[type[AnyRecord]]()
    for count, record in enumerate(records[:-1], 1):
        if seen[type(record)] % stride == 0:
            yield count
        seen[type(record)] += 1


def cases_of(world: World) -> list[dict[str, Any]]:
    return [case for each in world.records() if isinstance(each, TrialsAdded) for case in each.cases]


def check_suggestions(run: CheckedCall, records: list[AnyRecord], since: int) -> None:
    """Each case from `since` on is what a sampler suggests that was restored from the records before it."""
    history = past(records, "y")
    for index, each in enumerate(history):
        if isinstance(each, PastSuggestion) and each.first >= since:
            sampler = run.definition.new_sampler()
            sampler.restore(history[:index])
            assert sampler.suggest(len(each.cases)).cases == each.cases, f"trial {each.first} differs"


SAMPLERS = ["tpe", "cmaes", "nsgaii", *(pytest.param(name, marks=OTHER_SAMPLERS) for name in ("random", "qmc"))]


@pytest.fixture
def asked_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers are asked when a slot is free and not ahead: then they know the same results in each life."""
    monkeypatch.setattr(drivers, "request_of", lambda *given: replace(request_of(*given), lookahead=0))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=EACH_RECORD)])
@pytest.mark.usefixtures("asked_late")
def test_a_driver_may_die_at_each_record_of_its_journal(sampler: str, stride: int) -> None:
    run, world = prepared(sampler), World()
    play(Driver(world, run, whole, agents=1).run())
    expected, records = cases_of(world), list(world.records())
    assert len(expected) == TRIALS
    kinds = set()
    for end in deaths(records, stride):
        kinds.add(type(records[end - 1]))
        resumed = cut(world, run, records[:end])
        play(Driver(resumed, run, whole, agents=1).run())
        assert cases_of(resumed) == expected, f"it differs after {records[end - 1]}"
    assert {DriverStarted, TrialsAdded, GangFormed, TrialConcluded} <= kinds


@pytest.mark.parametrize("sampler", ["tpe", *(pytest.param(name, marks=ASKED_AHEAD) for name in ("cmaes", "nsgaii"))])
def test_what_was_asked_ahead_follows_from_the_records_before_it(sampler: str) -> None:
    """A suggestion that a dead driver had not recorded is asked for once more, and may know a later result."""
    run, world = prepared(sampler), World()
    play(Driver(world, run, whole, agents=2).run())
    records = list(world.records())
    check_suggestions(run, records, 0)
    for end in range(2, len(records), 5):
        resumed = cut(world, run, records[:end])
        kept = len(cases_of(resumed))
        play(Driver(resumed, run, whole, agents=2).run())
        assert cases_of(resumed)[:kept] == cases_of(world)[:kept]
        assert len(cases_of(resumed)) == TRIALS
        check_suggestions(run, list(resumed.records()), kept)


def test_the_journal_is_read_and_not_computed_again() -> None:
    """Cases of an earlier driver stay, even such as this sampler would never propose."""
    run, world = prepared("tpe"), World()
    play(Driver(world, run, whole, agents=1).run())
    strange = {"x": 17, "lr": 0.012345, "drop": 0.123, "units": 2}
    records: list[AnyRecord] = []
    for record in world.records()[:-1]:
        changed = isinstance(record, TrialsAdded) and not any(isinstance(each, TrialsAdded) for each in records)
        records.append(structs.replace(record, cases=(strange, *record.cases[1:])) if changed else record)
    resumed = cut(world, run, records[: len(records) // 2])
    play(Driver(resumed, run, whole, agents=1).run())
    assert cases_of(resumed)[0] == strange
    assert len(cases_of(resumed)) == TRIALS


@pytest.mark.usefixtures("asked_late")
def test_more_trials_continue_the_search_that_was_complete() -> None:
    world = World()
    play(Driver(world, prepared("tpe"), whole, agents=1).run())
    first = cases_of(world)
    play(Driver(world, prepared("tpe", TRIALS + 6), whole, agents=1).run())
    assert cases_of(world)[:TRIALS] == first
    assert len(cases_of(world)) == TRIALS + 6
    longer = World()
    play(Driver(longer, prepared("tpe", TRIALS + 6), whole, agents=1).run())
    assert cases_of(longer) == cases_of(world), "as if it had been so many from the start"


def test_another_sampler_continues_with_what_is_known() -> None:
    world = World()
    play(Driver(world, prepared("random"), whole, agents=1).run())
    other = in_store(prepared("tpe", TRIALS + 4), world.store)
    play(Driver(world, other, whole, agents=1).run())
    assert len(cases_of(world)) == TRIALS + 4


@pytest.mark.parametrize("change", [lambda run: run, lambda run: with_rules(run, retry_failed=True)])
def test_failed_trials_that_end_twice_change_no_case(change: Callable[[CheckedCall], CheckedCall]) -> None:
    world = World()
    play(Driver(world, prepared("tpe"), whole, agents=1).run())
    before = cases_of(world)
    world.again = set(range(TRIALS))
    play(Driver(world, change(prepared("tpe", TRIALS + 3)), whole, agents=1).run())
    assert cases_of(world)[:TRIALS] == before
    assert len(cases_of(world)) == TRIALS + 3
