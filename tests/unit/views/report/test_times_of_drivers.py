"""A driver is killed, and another one resumes the run later: every view of the run has the same times."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Generation, TrialId
from sparktrain.config.stoppers import Threshold
from sparktrain.display.status_json import run_json
from sparktrain.display.summary import summary_table
from sparktrain.display.trial_table import headline
from sparktrain.results.stored_result import load
from sparktrain.runs.record_times import Stay, dated, gang_stays
from sparktrain.state import agent_messages as m
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import DRIVER_LOST, FailureKind, Outcome, Report, Restart
from sparktrain.state.records import (
    AnyRecord,
    DriverStarted,
    GangAdopted,
    GangFormed,
    GangRestarted,
    RunEnded,
    TrialConcluded,
    TrialReported,
)
from sparktrain.state.recovery import compacted
from sparktrain.state.trial import TrialStatus
from sparktrain.views.report.reading import read_document
from sparktrain.views.report.views.report_document import ReportDocument
from tests.support.limits import run_limits
from tests.unit.driver.stored import BEGUN, HandClock, ScriptedRun, looked_at
from tests.unit.state.world import LEASE_S, RUN, World

DIED, RESUMED = 26.0, 146.0
"""Seconds after the start of the first driver."""


def driver(run: ScriptedRun, at: float, records: list[AnyRecord], cases: int) -> World:
    """A driver with two agents that starts so many seconds after the first."""
    world = World(Machine(LEASE_S), cases=cases)
    limits = run_limits(metric="accuracy", stopper=(Threshold(lower=0.0),))
    start = DriverStarted(plan=run.plan.digest, space=run.plan.space_digest, at=BEGUN + at)
    world.feed(on.RunStarted(0.0, RUN, limits, tuple(records), start))
    world.records = [*records, *world.records]
    for name in "ab":
        world.join(name, "host")
    world.suggest()
    for name in "ab":
        world.enter(AgentId(name))
    return world


def report(world: World, name: str, step: int, accuracy: float = 0.5) -> None:
    agent = AgentId(name)
    world.receive(agent, m.MemberReported(world.running[agent], (Report(step, {"accuracy": accuracy}),)))


def end(world: World, name: str) -> None:
    agent = AgentId(name)
    world.end(agent, Outcome(1.0, metrics={"accuracy": 0.5}))
    world.suggest()
    if agent in world.running:
        world.enter(agent)


def killed(run: ScriptedRun) -> World:
    """Trials 0 and 1 end after 10 s; 2 and 3 run until the driver dies, and 3 is to stop by a rule."""
    world = driver(run, 0.0, [], cases=5)
    world.tick(10.0)
    end(world, "a")
    end(world, "b")
    world.tick(DIED - 10.0)
    report(world, "a", 3)
    report(world, "b", 3, accuracy=-1.0)
    return world


def resumed(run: ScriptedRun, before: World) -> World:
    """The next driver, which ends the run 20 s after its start."""
    world = driver(run, RESUMED, before.records, before.cases)
    world.tick(20.0)
    while world.machine.sweep is not None:
        for name in [str(agent) for agent in world.running]:
            end(world, name)
    return world


def written(run: ScriptedRun, world: World) -> ReportDocument:
    run.begin().write(*world.records)
    return read_document(run.directory, HandClock(BEGUN + 10_000.0))


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return ScriptedRun(tmp_path / "runs", total=5)


def test_every_view_has_the_same_times_after_a_driver_was_killed(run: ScriptedRun) -> None:
    document = written(run, resumed(run, killed(run)))
    ran, wall = DIED + 20.0, RESUMED + 20.0
    top, timeline, cost = document.headline.course, document.views.timeline, document.views.cost
    assert timeline is not None
    assert cost is not None
    assert (top.seconds, top.wall_s, top.drivers) == (ran, wall, 3), "that of the script too, which ran for no time"
    view = looked_at(run)
    outcome = view.as_outcome()
    assert (outcome.seconds, outcome.wall_seconds) == (ran, wall)
    assert (view.seconds(0.0), view.wall_seconds(0.0)) == (ran, wall)
    status = run_json(view)
    assert (status["seconds"], status["wall_seconds"]) == (ran, wall)
    result = load(run.directory)
    assert (result.seconds, result.wall_seconds) == (ran, wall)
    assert "in 46 s under its drivers, 2:46 in all." in headline(outcome)
    assert summary_table(outcome) is not None
    assert (timeline.seconds, timeline.driver_s) == (wall, ran)
    first = [bar for bar in timeline.bars if bar.generation == 1 and bar.trial in (2, 3)]
    assert [bar.end for bar in first] == [DIED, DIED]
    assert cost.slots == 2
    assert cost.available_s == 2 * ran
    assert cost.slot_s <= cost.available_s
    assert cost.slot_s == sum(lane.busy_s for lane in timeline.lanes)
    row = document.trials[3]
    assert (row.status, row.ended) == ("pruned", BEGUN + DIED), "a rule had stopped it"


def test_a_driver_that_is_gone_counts_up_to_its_newest_record(run: ScriptedRun) -> None:
    document = written(run, killed(run))
    assert (document.headline.course.seconds, document.headline.course.wall_s) == (DIED, DIED)
    view = looked_at(run, BEGUN + 10_000.0)
    assert (view.as_outcome().seconds, run_json(view)["seconds"]) == (DIED, DIED)
    assert document.views.timeline is not None
    assert max(bar.end for bar in document.views.timeline.bars) == DIED


def test_the_time_of_a_killed_driver_survives_more_drivers_and_compaction(run: ScriptedRun) -> None:
    once = killed(run)
    twice = driver(run, RESUMED, once.records, once.cases)
    twice.tick(30.0)
    for records in (twice.records, list(compacted(twice.records))):
        third = driver(run, 300.0, records, twice.cases)
        starts = [each for each in third.records if isinstance(each, DriverStarted)]
        assert [each.ran_s for each in starts] == [0.0, DIED, DIED], "the second one has no record after its start"
        assert [each.predecessor_seen for each in starts] == [0.0, BEGUN + DIED, BEGUN + RESUMED]


def without_time(record: AnyRecord) -> AnyRecord:
    return replace(record, predecessor_seen=0.0) if isinstance(record, DriverStarted) else record


def test_journals_of_older_drivers_have_the_same_ends_of_gangs(run: ScriptedRun) -> None:
    records = resumed(run, killed(run)).records
    old = [without_time(record) for record in records]
    stays = gang_stays(records, BEGUN + RESUMED + 20.0, live=False)
    assert gang_stays(old, BEGUN + RESUMED + 20.0, live=False) == stays
    assert next(stay for stay in stays if stay.trial == 2) == Stay(
        2, 1, ("host",), BEGUN + 10.0, BEGUN + DIED, "restarted"
    )
    noted = [at for record, at in dated(records) if isinstance(record, GangRestarted)]
    assert noted == [BEGUN + DIED]
    ends = {record.trial: at for record, at in dated(records) if isinstance(record, TrialConcluded)}
    assert ends[3] == BEGUN + DIED


def test_a_driver_that_could_not_prepare_the_run_loses_no_time_of_the_one_before(run: ScriptedRun) -> None:
    before = killed(run)
    before.records.append(RunEnded(ending="unprepared", reason="its data could not be written"))
    world = driver(run, RESUMED, before.records, before.cases)
    [_, start] = [each for each in world.records if isinstance(each, DriverStarted)]
    assert start.ran_s == DIED


def test_the_clock_of_a_resumed_run_goes_on_from_the_drivers_before(run: ScriptedRun) -> None:
    before = killed(run)
    world = driver(run, RESUMED, before.records, before.cases)
    world.tick(4.0)
    sweep = world.machine.last
    assert sweep is not None
    assert sweep.ran_until(world.at) == DIED + 4.0
    world.stop()
    world.tick(30.0)
    assert sweep.ran_until(world.at + 100.0) == sweep.ran_s


def test_a_gang_that_was_adopted_has_one_stay_and_a_lost_one_ended_with_its_driver() -> None:
    first = [
        GangFormed(trial=TrialId(number), generation=Generation(1), hosts=("host",), at=BEGUN + 1.0)
        for number in (0, 1)
    ]
    lost = Restart(0, "host", FailureKind.LOST, DRIVER_LOST, 0.0)
    records: list[AnyRecord] = [
        DriverStarted(plan="p", at=BEGUN),
        *first,
        TrialReported(trial=TrialId(0), report=Report(1, {}), at=BEGUN + 5.0),
        DriverStarted(plan="p", at=BEGUN + 9.0, predecessor_seen=BEGUN + 5.0, adopts=True),
        GangAdopted(trial=TrialId(0), generation=Generation(1), at=BEGUN + 10.0),
        GangRestarted(trial=TrialId(1), restart=lost, forgiven=True, at=BEGUN + 13.0),
        TrialConcluded(trial=TrialId(0), status=TrialStatus.SUCCEEDED, at=BEGUN + 20.0),
    ]
    stays = gang_stays(records, BEGUN + 30.0, live=True)
    assert [(stay.trial, stay.start - BEGUN, stay.end - BEGUN, stay.kind) for stay in stays] == [
        (1, 1.0, 5.0, "restarted"),
        (0, 1.0, 20.0, "succeeded"),
    ]
