"""A sweep that has found enough, or cost enough, ends: under this driver, and under one that takes over."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.config.stoppers import Threshold
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Outcome, Report
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

LIMITS = {"metric": "loss", "mode": "min"}
A, B = AgentId("a"), AgentId("b")


def started(**limits: object) -> World:
    """Two agents that train the first trials of eight."""
    world = World(cases=8)
    world.begin(**LIMITS, **limits)
    for name in ("a", "b"):
        world.join(name)
    world.suggest()
    for agent in (A, B):
        world.enter(agent)
    return world


def returns(world: World, agent: AgentId, loss: float) -> None:
    """The agent's trial ends with `loss`, and the next one starts there."""
    world.end(agent, Outcome(1.0, metrics={"loss": loss}))
    world.suggest()
    if agent in world.running:
        world.enter(agent)


def end_of(world: World) -> do.EndRun:
    [end] = world.all(do.EndRun)
    return end


def test_the_first_trial_that_reaches_the_target_ends_the_run() -> None:
    world = started(target=0.2)
    returns(world, A, 0.21)
    assert world.running.keys() == {A, B}
    member = world.running[A]
    returns(world, B, 0.2)
    assert do.Send(A, m.Advise(member)) in world.commands
    assert B not in world.running
    world.end(A, Outcome(1.0, metrics={"loss": 0.5}))
    assert (end_of(world).ending, end_of(world).reason) == (
        Ending.TARGET, "trial 1 reached the target: loss 0.2 (target=0.2)",
    )  # fmt: skip
    assert world.status(2) == "succeeded"


@pytest.mark.parametrize(("mode", "enough", "short"), [("max", 0.9, 0.89), ("min", 0.1, 0.11)])
def test_the_better_end_counts(mode: str, enough: float, short: float) -> None:
    world = World()
    world.begin(metric="loss", mode=mode, target=enough)
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    returns(world, agent, short)
    assert agent in world.running
    returns(world, agent, enough)
    assert end_of(world).ending is Ending.TARGET


def test_a_pruned_trial_reaches_no_target_and_counts_for_a_plateau() -> None:
    world = started(target=0.5, plateau=2, stopper=(Threshold(lower=0.3),))
    world.receive(A, m.MemberReported(world.running[A], (Report(0, {"loss": 0.2}),)))
    returns(world, A, 0.2)
    assert world.status(0) == "pruned"
    assert world.all(do.EndRun) == []
    returns(world, B, 0.8)
    returns(world, B, 0.9)
    assert world.all(do.EndRun) == []
    world.fail(B)
    world.fail(A)
    assert end_of(world).ending is Ending.PLATEAU
    assert end_of(world).reason == "none of the last 2 trials was better than trial 1 (loss 0.8; plateau=2)"


def test_without_a_result_there_is_no_plateau() -> None:
    world = started(plateau=1)
    world.fail(A)
    world.suggest()
    world.fail(B)
    assert world.all(do.EndRun) == []


def test_the_budget_counts_the_time_of_all_slots() -> None:
    world = started(budget_s=100.0)
    world.tick(30.0)
    returns(world, A, 0.5)  # 30 s of it, and as many in b
    world.tick(19.0)
    assert not world.sent(m.Advise)
    world.tick(2.0)
    assert len(world.sent(m.Advise)) == 2
    for agent in (A, B):
        world.end(agent, Outcome(1.0, metrics={"loss": 0.5}))
    assert end_of(world).ending is Ending.BUDGET


def test_a_driver_that_takes_over_knows_what_was_reached() -> None:
    world = started(plateau=2)
    returns(world, A, 0.1)
    returns(world, A, 0.5)
    new = successor(world, **LIMITS, plateau=2)
    assert new.all(do.EndRun) == []
    agent = new.join("c")
    new.enter(agent)
    new.end(agent, Outcome(1.0, metrics={"loss": 0.7}))
    assert end_of(new).ending is Ending.PLATEAU
    met = successor(world, **LIMITS, target=0.1)
    assert end_of(met).ending is Ending.TARGET
    spent = successor(world, **LIMITS, budget_s=1.5)
    spent.tick(0.2)
    assert end_of(spent).ending is Ending.BUDGET
    assert spent.status(TrialId(0)) == "succeeded"
