"""A rule stops a trial: what the machine does about it, and what a driver that takes over knows."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.config.stoppers import ASHA, AnyStopRule, Hyperband, Threshold
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import EndedEarly, Failure, FailureKind, Outcome, Report
from sparktrain.state.pruning.asha import NEVER
from sparktrain.state.records import DriverStarted, RungReached, TrialConcluded
from sparktrain.state.recovery import compacted
from sparktrain.state.run_machine import TIMEOUT_GRACE_S
from sparktrain.state.sweep import Sweep
from tests.support.limits import run_limits
from tests.unit.state.ps_gangs import WORKER, again, cluster, placed
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, RUN, World

LIMITS = {"metric": "loss", "mode": "min", "stopper": (Threshold(upper=1.0),)}


def report(world: World, agent: AgentId, *losses: float, first: int = 0) -> list[do.Command]:
    """The agent's member reports `losses`, one for each step from `first`."""
    reports = tuple(Report(first + step, {"loss": loss}) for step, loss in enumerate(losses))
    return world.receive(agent, m.MemberReported(world.running[agent], reports))


def sweep_of(world: World) -> Sweep:
    assert world.machine.last is not None
    return world.machine.last


def rungs(world: World) -> list[RungReached]:
    return [each for each in world.records if isinstance(each, RungReached)]


@pytest.fixture
def world() -> World:
    """Two agents that train trials 0 and 1 of four."""
    world = World()
    world.begin(**LIMITS)
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    return world


A, B = AgentId("a"), AgentId("b")


def test_a_trial_that_crosses_the_limit_is_advised_and_its_slot_gets_the_next_one(world: World) -> None:
    assert do.Send(A, m.Advise(world.running[A])) not in report(world, A, 0.5)
    commands = report(world, A, 0.5, 2.0, first=1)
    assert do.Send(A, m.Advise(world.running[A])) in commands
    ended = world.end(A, Outcome(1.0, metrics={"loss": 0.4}))
    trial = sweep_of(world).trials[TrialId(0)]
    assert (trial.status, trial.metrics, trial.failure) == ("pruned", {"loss": 0.4}, None)
    assert trial.pruning is not None
    assert trial.pruning.reason == "stopped at step 2: loss 2 is above 1 (threshold(upper=1.0))"
    assert do.ConcludeTrial(TrialId(0)) in ended
    world.suggest()
    assert world.running[A].trial == 2


def test_what_it_reports_after_that_is_kept_and_judged_no_more(world: World) -> None:
    report(world, A, 2.0)
    before = rungs(world)
    commands = report(world, A, 3.0, first=1)
    assert [type(each) for each in commands] == [do.RecordReports, do.Send]
    assert rungs(world) == before


def test_a_chief_is_told_what_the_rules_make_of_its_reports() -> None:
    world = World()
    world.begin(size=2, **LIMITS)
    agents = [world.join("a"), world.join("b")]
    world.suggest()
    for agent in agents:
        world.reserve(agent)
        world.enter(agent)
    chief, other = sorted(agents, key=lambda agent: world.running[agent].rank)
    member = world.running[chief]
    report(world, chief, 0.5)
    report(world, other, 0.5)
    report(world, chief, 0.5, 2.0, first=1)
    judged = world.sent(m.Judged)
    assert {each.member for each in judged} == {member}
    assert [(each.step, each.stops) for each in judged] == [(-1, False), (0, False), (2, True)]


@pytest.mark.parametrize("steps_from", [0, 1])
def test_a_chief_is_told_at_which_report_rules_look_next(steps_from: int) -> None:
    world = World()
    world.begin(metric="loss", mode="min", stopper=(ASHA(most=18, first=2, steps_from=steps_from),))
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    for finished in (1, 2, 4, 6):
        report(world, agent, 0.5, first=finished - 1 + steps_from)
    reported = [each.next + 1 - steps_from for each in world.sent(m.Judged)]
    assert reported == [2, 2, 6, 6, NEVER]


def test_without_rules_a_chief_waits_for_nothing() -> None:
    world = World()
    world.begin(total=2, agents=2)
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    report(world, agent, 0.5)
    assert world.sent(m.Judged) == []


def test_a_function_that_looks_nowhere_is_stopped_after_a_grace(world: World) -> None:
    report(world, A, 2.0)
    member = world.running[A]
    assert not any(isinstance(each, do.Send) for each in world.tick(TIMEOUT_GRACE_S - 0.5))
    stops = [each.message for each in world.tick(1.0) if isinstance(each, do.Send)]
    assert stops == [m.StopMember(member, 2.0)]
    world.fail(A, FailureKind.STOPPED)
    trial = sweep_of(world).trials[TrialId(0)]
    assert (trial.status, trial.metrics, trial.failure) == ("pruned", {"loss": 2.0}, None)


def test_a_trial_whose_reports_show_a_rule_nothing_says_what_to_call(world: World) -> None:
    world.end(A, Outcome(1.0, metrics={"loss": 0.5}))
    assert sweep_of(world).trials[TrialId(0)].outcome.notices == (
        "stopper threshold(upper=1.0) saw no report of 'loss', for it reported nothing: call ctx.report(step, "
        "loss=...) after each epoch, or give fit() the ctx.keras_callbacks()",
    )
    world.receive(B, m.MemberReported(world.running[B], (Report(0, {"val_loss": 0.5, "acc": 1.0}),)))
    world.end(B, Outcome(1.0, metrics={"loss": 0.5}))
    assert sweep_of(world).trials[TrialId(1)].outcome.notices == (
        "stopper threshold(upper=1.0) saw no report of 'loss', for it reported 'val_loss', 'acc': report the metric "
        "under that name, or pass metric= as it is reported",
    )
    world.suggest()
    world.enter(A)
    report(world, A, 0.5)
    world.end(A, Outcome(1.0, metrics={"loss": 0.5}))
    assert sweep_of(world).trials[TrialId(2)].outcome.notices == ()


@pytest.mark.parametrize("how", ["raises", "is lost", "crashes"])
def test_however_it_ends_then_it_is_pruned_and_not_retried(world: World, how: str) -> None:
    report(world, A, 2.0)
    if how == "is lost":
        world.lose(A)
    else:
        world.fail(A, FailureKind.EXCEPTION if how == "raises" else FailureKind.SIGNAL)
    trial = sweep_of(world).trials[TrialId(0)]
    assert (trial.status, trial.failure, trial.restarts) == ("pruned", None, ())


def test_only_the_chief_of_the_newest_generation_feeds_rules() -> None:
    world = World()
    world.begin(size=2, **LIMITS)
    first, second = world.join("a"), world.join("b")
    world.suggest()
    [chief, other] = sorted((first, second), key=lambda agent: world.running[agent].rank)
    for agent in (chief, other):
        world.reserve(agent)
        world.enter(agent)
    report(world, other, 2.0)
    assert rungs(world) == []
    old = world.running[chief]
    world.lose(other)
    world.fail(chief, FailureKind.STOPPED)
    world.receive(chief, m.MemberReported(old, (Report(0, {"loss": 2.0}),)))
    assert rungs(world) == []


def test_both_members_of_a_gang_are_advised() -> None:
    world = World()
    world.begin(size=2, **LIMITS)
    agents = [world.join("a"), world.join("b")]
    world.suggest()
    for agent in agents:
        world.reserve(agent)
        world.enter(agent)
    chief = min(agents, key=lambda agent: world.running[agent].rank)
    sends = [each for each in report(world, chief, 2.0) if isinstance(each, do.Send)]
    advised = [each.agent for each in sends if isinstance(each.message, m.Advise)]
    assert sorted(advised) == sorted(agents)


def test_rules_judge_nothing_once_the_run_stops(world: World) -> None:
    world.stop(grace_s=5.0)
    report(world, A, 2.0)
    assert rungs(world) == []


def test_a_rung_counts_once_for_a_trial_whatever_its_generations() -> None:
    world = World()
    world.begin(metric="loss", mode="min", stopper=(ASHA(most=9, first=1),))
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    report(world, agent, 0.3, 0.2)
    assert [each.rung for each in rungs(world)] == [1]
    world.lose(agent)
    again = world.join("b")
    world.enter(again)
    assert world.running[again].trial == 0
    report(world, again, 9.0, 8.0, 7.0)
    assert [each.rung for each in rungs(world)] == [1, 3]


def test_a_driver_that_takes_over_concludes_what_was_pruned_and_decides_as_before(world: World) -> None:
    report(world, A, 0.5)
    report(world, B, 2.0)
    new = successor(world, **LIMITS)
    assert do.ConcludeTrial(TrialId(1)) in new.commands
    trial = sweep_of(new).trials[TrialId(1)]
    assert (trial.status, trial.metrics) == ("pruned", {"loss": 2.0})
    assert [each for each in new.records if isinstance(each, TrialConcluded)][-1].trial == 1
    agent = new.join("c")
    assert new.running[agent].trial == 0
    new.enter(agent)
    report(new, agent, 9.0)  # step 0 again
    assert sweep_of(new).trials[TrialId(0)].pruning is None
    report(new, agent, 9.0, first=1)
    assert sweep_of(new).trials[TrialId(0)].pruning is not None


def test_a_third_driver_finds_it_concluded_and_compaction_keeps_the_decisions(world: World) -> None:
    report(world, A, 0.5)
    report(world, B, 2.0)
    second = successor(world, **LIMITS)
    second.records = list(compacted(second.records))
    assert len(rungs(second)) == 2
    third = successor(second, **LIMITS)
    assert not any(isinstance(each, do.ConcludeTrial) for each in third.commands)
    assert third.status(1) == "pruned"


def test_records_of_rules_that_the_run_no_longer_has_are_ignored(world: World) -> None:
    report(world, A, 0.5)
    new = successor(world, metric="loss", mode="min", stopper=(Threshold(upper=0.4),))
    agent = new.join("c")
    new.enter(agent)
    report(new, agent, 0.5)
    assert sweep_of(new).trials[TrialId(0)].pruning is not None


def test_a_length_that_is_learned_may_prune_trials_that_run(world: World) -> None:
    world = World(cases=8)
    world.begin(metric="loss", mode="min", stopper=(ASHA(eta=2),))
    agents = [world.join(name) for name in "abcd"]
    world.suggest()
    for number, agent in enumerate(agents):
        world.enter(agent)
        report(world, agent, *[float(number)] * 4)
    assert rungs(world) == []
    commands = world.end(agents[0], Outcome(1.0, metrics={"loss": 0.0}))
    advised = {each.agent for each in commands if isinstance(each, do.Send) and isinstance(each.message, m.Advise)}
    assert advised == set(agents[2:])  # of b, c and d the first passes as the first of its rung


def pruned(world: World, chief: AgentId) -> None:
    """A rule stops the trial of the chief."""
    world.receive(chief, m.MemberReported(world.running[chief], (Report(0, {"loss": 2.0}),)))


def test_no_member_of_a_pruned_trial_restarts() -> None:
    world = World()
    agents = cluster(world, metric="loss", mode="min", stopper=(Threshold(upper=1.0),))
    pruned(world, agents[0])
    commands = world.fail(agents[WORKER], FailureKind.SIGNAL)
    assert placed(commands) == []
    for agent in agents:
        if agent in world.running:
            world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "pruned"


def test_a_member_that_is_away_when_its_trial_is_pruned_is_advised_when_it_enters() -> None:
    world = World()
    agents = cluster(world, metric="loss", mode="min", stopper=(Threshold(upper=1.0),))
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    pruned(world, agents[0])
    agent = again(world, WORKER)
    world.reserve(agent, 4000 + WORKER)
    advice = m.Advise(world.running[agent])
    assert do.Send(agent, advice) in world.enter(agent, trains=True)


# ---- ends before a rule knows how long a trial is


ENDS = {
    "raises": Outcome(1.0, failure=Failure(FailureKind.EXCEPTION, "ValueError: bad")),
    "is killed": Outcome(1.0, failure=Failure(FailureKind.SIGNAL, "SIGSEGV")),
    "returns nan": Outcome(1.0, failure=Failure(FailureKind.METRIC, "loss is nan")),
    "ends itself": Outcome(1.0, pruned=EndedEarly(3, 9.0, "it cannot win")),
}


@pytest.mark.parametrize("rule", [ASHA(), Hyperband(), ASHA(eta=2)], ids=str)
@pytest.mark.parametrize("end", [*ENDS, "is lost for good", "runs too long", "is stopped by the user"])
def test_a_trial_that_is_over_is_not_judged_when_another_one_succeeds(end: str, rule: AnyStopRule) -> None:
    world = World()
    world.begin(metric="loss", mode="min", stopper=(rule,), max_retries=0, trial_timeout_s=30.0)
    for name in "ab":
        world.enter(start(world, name))
    report(world, A, *[0.1] * 9)
    report(world, B, *[9.0] * 5)
    if end in ENDS:
        world.end(B, ENDS[end])
    elif end == "is stopped by the user":
        world.stop_trial(1)
        world.end(B, Outcome(1.0, metrics={}))
    else:
        world.lose(B)
        world.join("c")
    world.suggest()
    before = world.status(1)
    assert before in ("failed", "lost", "pruned")
    world.end(A, Outcome(1.0, metrics={"loss": 0.1}))
    assert world.status(1) == before
    after = [each for each in rungs(world) if each.trial == 1 and each.rule == str(rule)]
    assert after == [], "the rule has judged it after its end"
    again = retried(world)
    assert again.status(1) == ("pruned" if before == "pruned" else "queued")


def start(world: World, name: str) -> AgentId:
    agent = world.join(name)
    world.suggest()
    return agent


def retried(world: World) -> World:
    """A driver that retries failed trials."""
    new = World(Machine(LEASE_S), at=world.at, cases=world.cases)
    began = DriverStarted(plan="p", at=5.0, retry_failed=True)
    limits = run_limits(metric="loss", mode="min", stopper=(ASHA(), Hyperband(), ASHA(eta=2)))
    new.feed(on.RunStarted(new.at, RUN, limits, tuple(world.records), began))
    return new


def test_a_trial_that_waits_for_an_agent_is_pruned_by_what_it_has_reported() -> None:
    world = World(cases=3)
    world.begin(metric="loss", mode="min", stopper=(ASHA(eta=2),))
    agents = [start(world, name) for name in "abc"]
    for agent, loss in zip(agents, (0.1, 0.2, 9.0), strict=True):
        world.enter(agent)
        report(world, agent, *[loss] * 5)
    world.lose(agents[2])
    assert world.status(2) == "queued"
    commands = world.end(A, Outcome(1.0, metrics={"loss": 0.1}))
    trial = sweep_of(world).trials[TrialId(2)]
    assert (trial.status, trial.metrics) == ("pruned", {"loss": 9.0})
    assert do.ConcludeTrial(TrialId(2)) in commands


def test_a_journal_in_which_a_failed_trial_was_judged_keeps_its_failure_and_retries_it(world: World) -> None:
    world.fail(B)
    reason = "stopped at step 4: loss 9 is above the best third of 3 (asha())"
    world.records.append(RungReached(trial=TrialId(1), rule="asha()", rung=1, step=4, value=9.0, reason=reason))
    assert successor(world, **LIMITS).status(1) == "failed"
    again = retried(world)
    assert again.status(1) == "queued"
    again.join("c")
    again.join("d")
    assert 1 in {member.trial for member in again.running.values()}
