"""A driver that takes over knows what the drivers before have written down, and runs what has no result."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import DRIVER_LOST, FailureKind
from sparktrain.state.records import CheckpointsDropped, DriverStarted, TrialConcluded, TrialReported, TrialsAdded
from sparktrain.state.recovery import compacted, fold
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World


def durable(trial: Trial) -> tuple[object, ...]:
    """What must be the same of a trial after its driver was lost."""
    known = trial.status, trial.generation, trial.params, trial.metrics, trial.attempt.hosts
    restarts = [(each.kind, each.cause, each.resumed_from_step) for each in trial.restarts]
    failure = trial.failure if trial.status.final else None
    return (*known, trial.checkpoints.retained, trial.checkpoints.corrupt, restarts, failure)


def successor(world: World, **limits: object) -> World:
    """The world of a driver that takes over after the driver of `world` was lost; the sampler has what was left."""
    new = World(Machine(LEASE_S), at=world.at, cases=world.cases)
    began = DriverStarted(plan="p", at=5.0)
    new.feed(on.RunStarted(new.at, RUN, run_limits(**limits), tuple(world.records), began))
    new.records = [*world.records, *new.records]
    return new


@pytest.fixture
def world() -> World:
    """Four trials and two agents: trial 0 has succeeded, trial 1 has failed, two run, and one has a checkpoint."""
    world = World()
    world.begin()
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    world.enter(agents[0])
    world.enter(agents[1])
    world.succeed(agents[0])
    world.suggest()
    world.fail(agents[1])
    world.suggest()
    for agent in agents:
        world.enter(agent)
    world.write(agents[0], 10)
    world.report(agents[0], 10)
    return world


def test_finished_trials_stay_finished_and_the_others_run_again(world: World) -> None:
    before = [world.status(trial) for trial in range(4)]
    assert before == ["succeeded", "failed", "running", "running"]
    new = successor(world)
    assert [new.status(trial) for trial in range(4)] == ["succeeded", "failed", "queued", "queued"]
    agent = new.join("c")
    [start] = new.all(do.PlaceMember)
    assert (start.member.trial, start.member.generation, start.agent) == (2, 2, agent)
    assert start.checkpoint is not None
    assert start.checkpoint.step == 10
    new.enter(agent)
    new.succeed(agent)
    new.suggest()
    new.enter(agent)
    new.succeed(agent)
    new.suggest()
    assert new.all(do.EndRun) != []
    assert [new.status(trial) for trial in range(4)] == ["succeeded", "failed", "succeeded", "succeeded"]
    assert [each.trial for each in new.all(do.ConcludeTrial)] == [2, 3]


def test_a_lost_driver_is_a_restart_that_does_not_count(world: World) -> None:
    new = successor(world, max_retries=0)
    trial = new.machine.last.trials[2]
    [restart] = trial.restarts
    assert (restart.kind, restart.cause, restart.resumed_from_step) == (FailureKind.LOST, DRIVER_LOST, 10)
    new.tick(3.0)
    agent = new.join("c")
    new.enter(agent)
    new.succeed(agent)
    assert new.status(2) == "succeeded"
    assert new.machine.last.trials[2].restarts[0].seconds == 3.0, "since the new driver started"
    assert new.machine.last.trials[2].restart_history.failed_at is None


def test_what_earlier_generations_left_is_swept_up(world: World) -> None:
    new = successor(world)
    swept = {each.trial: (len(each.retained), each.before) for each in new.all(do.SweepCheckpoints)}
    assert swept == {2: (1, 2), 3: (0, 2)}


def test_trials_that_were_stopped_or_lost_with_the_run_are_run_again(world: World) -> None:
    world.stop()
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    assert [world.status(trial) for trial in range(4)] == ["succeeded", "failed", "stopped", "stopped"]
    new = successor(world)
    assert [new.status(trial) for trial in range(4)] == ["succeeded", "failed", "queued", "queued"]
    restarts = [[each.kind for each in new.machine.last.trials[trial].restarts] for trial in range(4)]
    assert restarts == [[], [], ["stopped"], ["stopped"]]
    again = successor(new).machine.last
    assert [len(again.trials[trial].restarts) for trial in range(4)] == [0, 0, 1, 1], "nothing has run since"


def test_a_driver_says_how_long_those_before_were_on_the_run(world: World) -> None:
    world.tick(7.0)
    world.stop()
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    new = successor(world)
    assert [each for each in new.records if isinstance(each, DriverStarted)][-1] == DriverStarted(
        plan="p", at=5.0, ran_s=7.0
    )


def test_the_sampler_can_be_told_again_in_the_same_order(world: World) -> None:
    asked = [(each.asked, each.observed, len(each.cases)) for each in world.records if isinstance(each, TrialsAdded)]
    assert asked == [(1, 0, 1), (1, 0, 1), (1, 1, 1), (1, 2, 1)]


def test_reports_are_noted_at_intervals(world: World) -> None:
    agent = AgentId("a")
    for step in range(11, 20):
        world.report(agent, step)
    world.tick(10.0)
    world.report(agent, 20)
    assert [each.report.step for each in world.records if isinstance(each, TrialReported)] == [10, 20]


def test_dropped_checkpoints_count_no_more_and_are_forgotten_when_compacted(world: World) -> None:
    world.write(AgentId("a"), 20)
    manifests = [each.manifest for each in world.machine.last.trials[2].checkpoints.retained]
    assert len(manifests) == 2
    dropped = CheckpointsDropped(trial=TrialId(2), manifests=(manifests[0],), reason="room")
    for records in ([*world.records, dropped], compacted([*world.records, dropped])):
        sweep = Sweep(RUN, run_limits(), 0.0)
        fold(sweep, records)
        assert [each.manifest for each in sweep.trials[TrialId(2)].checkpoints.retained] == manifests[1:]
    assert dropped not in compacted([*world.records, dropped])


def test_a_damaged_checkpoint_that_is_dropped_does_not_end_its_trial(world: World) -> None:
    checkpoints = world.machine.last.trials[2].checkpoints
    manifest = checkpoints.retained[0].manifest
    checkpoints.mark_corrupt(manifest, "a bit changed")
    assert checkpoints.all_corrupt
    checkpoints.drop([manifest])
    assert not checkpoints.all_corrupt


def test_records_carry_the_time_of_their_event_by_the_wall_clock(world: World) -> None:
    new = successor(world)
    new.tick(3.0)
    agent = new.join("c")
    new.enter(agent)
    new.succeed(agent)
    concluded = [record for record in new.records if isinstance(record, TrialConcluded)][-1]
    assert concluded.at == 5.0 + 3.0


def test_compaction_leaves_what_counts(world: World) -> None:
    agent = AgentId("a")
    for step in range(20, 60, 10):
        world.write(agent, step)
    world.lose(agent)
    world.join("d")
    left = compacted(world.records)
    assert len(left) < len(world.records)
    assert compacted(left) == left
    sweeps = []
    for records in (world.records, left):
        sweep = Sweep(RUN, run_limits(), 0.0)
        fold(sweep, records)
        sweeps.append([durable(trial) for trial in sweep.trials.values()])
    assert sweeps[0] == sweeps[1]
    assert [each.trial for each in left if isinstance(each, TrialConcluded)] == [0, 1]


def test_a_trial_all_of_whose_checkpoints_are_damaged_never_begins_at_step_0(world: World) -> None:
    world.fail(AgentId("a"), FailureKind.CHECKPOINT)
    agent = next(agent for agent, member in world.running.items() if member.trial == 2)
    world.enter(agent)
    world.fail(agent, FailureKind.CHECKPOINT)
    assert world.status(2) == "failed"
    assert world.machine.last.trials[2].checkpoints.all_corrupt
    new = World(Machine(LEASE_S), at=world.at, cases=0)
    began = DriverStarted(plan="p", at=5.0, retry_failed=True)
    new.feed(on.RunStarted(new.at, RUN, run_limits(), tuple(compacted(world.records)), began))
    for name in ("c", "d", "e"):
        new.join(name)
    [start] = [each for each in new.all(do.PlaceMember) if each.member.trial == 2]
    assert start.checkpoint is not None
    assert start.checkpoint.step == 10
    new.enter(start.agent)
    new.fail(start.agent, FailureKind.CHECKPOINT)
    assert new.status(2) == "failed"
