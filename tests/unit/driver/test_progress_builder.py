"""What users see of the machine's state."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from sparktrain.base.ids import Generation, TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.gang_options import MEMBER_DEFAULTS
from sparktrain.config.gang_spec import GangSpec, Role
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.datasets.manifest import DataRef, MemberData
from sparktrain.display.progress import MemberState
from sparktrain.driver.progress_builder import LONGEST_PAUSE_S, ProgressPace, Tally, progress_of
from sparktrain.driver.run_request import RunRequest
from sparktrain.runs.trial_result import result_of
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import single
from sparktrain.state import commands as do
from sparktrain.state.events import Allotment
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Restart, RestartHow
from sparktrain.state.restart_history import RestartHistory
from sparktrain.state.trial import Attempt, Trial, TrialStatus
from sparktrain.store.url import open_store
from tests.support.run_stages import plain_request, with_spec
from tests.unit.driver.journals import NoJournal
from tests.unit.state.gangs import gang
from tests.unit.state.world import LEASE_S, World

RESTART = Restart(1, "gpu-2", FailureKind.SIGNAL, "killed by SIGKILL", 1.23)


@pytest.fixture
def work(tmp_path: Path) -> RunRequest:
    spec = SweepSpec(name="run", gang=GangSpec(workers=2, backend=Backend.NONE))
    space = single({"x": 1})
    return plain_request(spec, space, SpaceSampler(space, None), open_store(str(tmp_path)), NoJournal())


def test_the_log_of_a_member_that_restarted_alone_is_that_of_its_newest_process(work: RunRequest) -> None:
    alone = msgspec.structs.replace(RESTART, how=RestartHow.ALONE)
    history = RestartHistory()
    for restart in (alone, RESTART, alone, alone):
        history.add(restart)
    trial = Trial(
        TrialId(0),
        {},
        TrialStatus.SUCCEEDED,
        Generation(2),
        attempt=Attempt(("a", "b", "c")),
        restart_history=history,
    )
    logs = [Path(each.log).parent.name for each in result_of(trial, work).members if each.log is not None]
    assert logs == ["rank-0", "rank-1-restart-2"]


def test_members_restart_alone_only_where_no_data_continues_from_a_checkpoint(work: RunRequest) -> None:
    assert work.limits().restarts_members
    data = MemberData({"train": DataRef(work.store.address, "manifest", "digest")})
    assert not replace(work, data=data).limits().restarts_members


def test_rings_heal_unless_the_call_turns_it_off(work: RunRequest) -> None:
    assert work.limits().heals
    spec = replace(work.spec, member_options=replace(MEMBER_DEFAULTS, healing=False))
    assert not with_spec(work, spec).limits().heals


def test_a_result_has_every_member_of_the_newest_gang(work: RunRequest, tmp_path: Path) -> None:
    trial = Trial(
        TrialId(0), {"x": 1}, TrialStatus.SUCCEEDED, Generation(2), Attempt(("gpu-1", "gpu-2")),
        restart_history=RestartHistory((RESTART,)),
    )  # fmt: skip
    result = result_of(trial, work)
    folder = tmp_path / "run" / "trials" / "0000" / "generation-2"
    assert [(each.rank, each.role, each.host, each.log) for each in result.members] == [
        (0, Role.CHIEF, "gpu-1", str(folder / "rank-0" / "log.txt")),
        (1, Role.WORKER, "gpu-2", str(folder / "rank-1" / "log.txt")),
    ]
    assert result.log == result.members[0].log
    assert result.restarts == (RESTART,)


def test_a_trial_that_never_ran_has_no_members(work: RunRequest) -> None:
    result = result_of(Trial(TrialId(0), {"x": 1}, TrialStatus.STOPPED), work)
    assert (result.members, result.log) == ((), None)


def test_a_gang_that_has_shrunk_has_fewer_members(work: RunRequest) -> None:
    trial = Trial(TrialId(0), {}, TrialStatus.SUCCEEDED, Generation(3), Attempt(("gpu-1",)))
    assert len(result_of(trial, work).members) == 1


def test_progress_of_a_run_of_one_gang(work: RunRequest) -> None:
    world = World(cases=1)
    world.begin(size=2)
    agents = [world.join("a"), world.join("b")]
    world.suggest()
    trial = world.machine.sweep.trials[TrialId(0)]  # type: ignore[union-attr]
    trial.attempt.hosts = ("host-a", "host-b")
    trial.restart_history.add(RESTART)
    forming = progress_of(world.machine, work, world.at)
    assert (forming.gang, forming.causes) == (2, (RESTART,))
    assert [each.state for each in forming.running_trials[0].members] == [MemberState.STARTING] * 2
    for agent in agents:
        world.enter(agent)
    chief, other = progress_of(world.machine, work, world.at).running_trials[0].members
    assert (chief.rank, chief.host, chief.role, chief.state) == (0, "host-a", Role.CHIEF, MemberState.TRAINING)
    assert (other.rank, other.host, other.role, other.state) == (1, "host-b", Role.WORKER, MemberState.TRAINING)
    assert other.step is None


def test_a_gang_that_waits_for_lost_agents_says_until_when(work: RunRequest) -> None:
    world = World(cases=1)
    world.begin(size=2, start_timeout_s=60.0)
    first, second = world.join("a"), world.join("b")
    world.suggest()
    for agent in (first, second):
        world.reserve(agent)
        world.enter(agent)
    world.tick(1.0)
    world.lose(second)
    world.fail(first, FailureKind.RING)
    world.tick(5.0)
    world.tick(10.0)
    assert progress_of(world.machine, work, world.at).note == "waiting for agents (1 of 2); gives up in 50 s"


def test_drained_agents_are_named_until_no_member_is_left_there(work: RunRequest) -> None:
    world = World(cases=1)
    first, second = gang(world)
    world.drain(f"host-{second}")
    world.tick(1.0)
    assert progress_of(world.machine, work, world.at).note == "draining host-a1: 1 member to move or finish"
    world.write(first, 5)
    for agent in (first, second):
        world.fail(agent, FailureKind.STOPPED)
    world.tick(2.0)
    note = progress_of(world.machine, work, world.at).note
    assert note.startswith("waiting for agents (1 of 2); gives up in ")


def test_a_trial_that_is_about_to_be_given_up_says_what_it_waits_for(work: RunRequest) -> None:
    world = World(Machine(LEASE_S, reason_timeout_s=20.0), cases=1)
    world.begin(max_retries=0)
    agent = world.join("a")
    world.suggest()
    world.lose(agent)
    note = progress_of(world.machine, work, world.at).note
    assert note == "waiting for Spark to report why the agent of trial 0 was lost; waiting for agents (0 of 2)"
    world.explain(agent)
    assert progress_of(world.machine, work, world.at).note == "waiting for agents (0 of 2)"


def test_while_agents_are_missing_the_clusters_words_are_told(work: RunRequest) -> None:
    world = World(cases=1)
    world.begin(size=2)

    def note() -> str:
        return progress_of(world.machine, work, world.at, outlook="1 of 2 executors fit").note

    assert note() == "waiting for agents (0 of 2); 1 of 2 executors fit"
    world.join("a")
    assert note() == "waiting for agents (1 of 2); 1 of 2 executors fit"
    world.join("b")
    assert "fit" not in note()


def test_agents_that_fail_trials_before_they_enter_are_told_of(work: RunRequest) -> None:
    def note() -> str:
        return progress_of(world.machine, work, world.at).note

    world = World(cases=9)
    world.begin(agents=2, lookahead=9)
    bad, good = world.join("bad"), world.join("good")
    world.suggest()
    full = Outcome(0.0, failure=Failure(FailureKind.LOST, "No space left on device"))
    world.end(bad, full)
    assert note() == ""
    world.enter(good)
    for seconds in (5.0, 10.0):
        world.tick(seconds)
        world.end(bad, full)
    assert note() == (
        "1 of 2 agents are excluded: 3 trials failed on host-bad before they entered the training function, the last "
        "with: No space left on device"
    )


def test_a_run_that_waits_because_its_agents_back_off_says_why(work: RunRequest) -> None:
    world = World(cases=1)
    world.begin(agents=1)
    agent = world.join("a")
    world.suggest()
    world.end(agent, Outcome(0.0, failure=Failure(FailureKind.LOST, "No space left on device")))
    note = progress_of(world.machine, work, world.at).note
    assert note.startswith("backing off: 1 trial failed on host-a before it entered the training function")


# ---- updated, not recounted


class Watched(Trial):
    """Counts how often any of these trials is read."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.looks += 1
        return super().__getattribute__(name)


def many(world: World, count: int) -> None:
    """The run has so many trials more that are done, all of them watched; some were restarted before."""
    sweep = world.machine.sweep
    assert sweep is not None
    for number in range(count):
        trial, status = TrialId(len(sweep.trials)), (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.LOST)
        restarts = (RESTART,) * (number % 2)
        sweep.trials[trial] = Watched(
            trial, {}, status[number % 3], Generation(1), outcome=Outcome(2.0, {"accuracy": number % 97}),
            restart_history=RestartHistory(restarts),
        )  # fmt: skip


@pytest.mark.long
def test_a_tick_looks_at_the_trials_that_run_and_no_others(work: RunRequest) -> None:
    """However many have ended: it is done ten times a second, in the loop that answers the agents."""
    world = World(cases=2)
    world.begin()
    for name in "ab":
        world.join(name)
    world.suggest()
    many(world, 10_000)
    spec = replace(work.spec, metric="accuracy")
    long, sweep = replace(with_spec(work, spec), total=20_000), world.machine.sweep
    assert sweep is not None
    tally = Tally(spec)
    for trial in sweep.trials.values():
        tally.add(trial)
    Watched.looks = 0
    shown = progress_of(world.machine, long, world.at, tally=tally)
    assert Watched.looks < 10, "but at the best one"
    assert shown == progress_of(world.machine, long, world.at), "and is the same"
    assert (shown.done, shown.running, shown.failed, shown.lost, shown.restarts) == (10_000, 2, 3333, 3333, 5000)
    assert shown.best == (TrialId(98), 96)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_up_is_what_would_be_counted(work: RunRequest, seed: int) -> None:
    random, world = Random(seed), World(cases=12)
    world.begin(max_retries=1, lookahead=3)
    sweep = world.machine.sweep
    assert sweep is not None
    work = replace(with_spec(work, replace(work.spec, metric="accuracy")), total=12)
    tally = Tally(work.spec, sweep.trials.values())
    for name in "abc":
        world.join(name)
    for turn in range(60):
        world.suggest()
        if world.running:
            agent = random.choice(list(world.running))
            act = random.choice([world.enter, world.succeed, world.fail, world.lose])
            if act is world.lose:
                world.join(f"again-{turn}")
            act(agent)
        if turn == 50:
            world.stop()
        for command in world.commands:
            if isinstance(command, do.ConcludeTrial):
                tally.add(sweep.trials[command.trial])
        kept = progress_of(world.machine, work, world.at, tally=tally)
        assert kept == progress_of(world.machine, work, world.at)
    assert kept.done


def test_the_time_left_is_that_of_trials_and_no_part_of_the_start_or_the_driver(work: RunRequest) -> None:
    world = World(cases=4)
    world.begin()
    world.at += 500  # Spark starts, and agents import the frameworks
    world.join("a")
    world.suggest()
    world.enter("a")
    world.succeed("a")  # after one second
    sweep = world.machine.sweep
    assert sweep is not None
    long = replace(with_spec(work, SweepSpec(name="run")), total=4, allotment=Allotment(agents=1))
    assert progress_of(world.machine, long, world.at).eta_s == pytest.approx(3)
    resumed = Tally(long.spec, sweep.trials.values())
    assert progress_of(world.machine, long, world.at + 500, tally=resumed).eta_s == pytest.approx(3)


def test_progress_of_thousands_of_trials_is_made_less_often() -> None:
    pace = ProgressPace()
    assert pace.is_due(0.0)
    pace.record(5.0, 0.0001)
    assert pace.is_due(5.1), "a small run shows it with each tick"
    pace.record(5.1, 0.02)
    assert not pace.is_due(6.0)
    assert pace.is_due(6.2)
    pace.record(6.2, 3.0)
    assert pace.is_due(6.2 + LONGEST_PAUSE_S)


def test_runs_share_the_time_for_progress() -> None:
    pace = ProgressPace()
    pace.record(5.0, 0.002, runs=20)
    assert not pace.is_due(6.9), "each of 20 runs that take 2 ms: one of them each 0.1 s"
    assert pace.is_due(7.0)
