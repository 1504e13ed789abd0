"""Leases: what an agent and the coordinator each think of the same silence."""

from hypothesis import given
from hypothesis import strategies as some

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.liveness import ANSWER_S, SLEPT_S, Lease, Leases
from sparktrain.state.outcome import FailureKind
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World

AGENT = AgentId("a")
DELAYS = some.floats(0.0, 40.0)


@given(some.lists(some.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=6))
def test_an_agents_lease_never_ends_later_than_the_coordinators(beats: list[tuple[float, float, float]]) -> None:
    """However long heartbeats wait before they are sent, travel, and are answered."""
    mine, theirs, at = Lease(LEASE_S), Leases(LEASE_S), 0.0
    for wait, there, back in beats:
        sent = at + wait
        mine.sent(sent)
        theirs.renew(AGENT, sent + there)
        mine.answered()
        at = sent + there + back
        given_up = sent + there + LEASE_S
        assert mine.left_s(given_up) == 0.0
        assert not theirs.expired(given_up)


def test_an_unanswered_heartbeat_renews_nothing() -> None:
    lease = Lease(LEASE_S)
    for at in (0.0, 3.0, 6.0):
        lease.sent(at)
    lease.answered()
    assert lease.left_s(LEASE_S - 1.0) == 1.0
    assert lease.left_s(LEASE_S) == 0.0


def test_each_answer_is_of_the_oldest_heartbeat() -> None:
    lease = Lease(LEASE_S)
    lease.answered()  # of none
    lease.sent(0.0)
    lease.sent(10.0)
    lease.answered()
    assert lease.left_s(LEASE_S) == 0.0
    lease.answered()
    assert lease.left_s(LEASE_S) == 10.0


def test_a_lease_is_short_while_others_cannot_reach_the_host_of_the_agent() -> None:
    leases = Leases(LEASE_S)
    other = AgentId("b")
    for agent in (AGENT, other):
        leases.renew(agent, 1.0)
    assert leases.doubt(AGENT, 2.0)
    assert not leases.doubt(AGENT, 2.5), "it was asked for a heartbeat already"
    assert not leases.doubt(AgentId("gone"), 2.0)
    assert not leases.expired(2.0 + ANSWER_S)
    assert leases.expired(2.1 + ANSWER_S) == {AGENT: "no answer for 1 s, and no other member reaches its host"}
    leases.renew(AGENT, 3.0)
    assert not leases.expired(1.0 + LEASE_S), "a heartbeat ends the doubt"
    silent = f"no heartbeat for {LEASE_S:g} s"
    assert leases.expired(3.1 + LEASE_S) == {AGENT: silent, other: silent}


def test_a_coordinator_that_is_held_up_gives_an_agent_its_whole_time_to_answer() -> None:
    leases = Leases(LEASE_S)
    leases.renew(AGENT, 0.0)
    leases.woke(0.0)
    leases.doubt(AGENT, 0.0)
    leases.woke(4.0)
    assert not leases.expired(4.0), "its answer may be among what is unread"
    leases.woke(4.1)
    assert not leases.expired(4.0 + ANSWER_S)
    assert leases.expired(4.1 + ANSWER_S)


# ---- a coordinator that was suspended


def slept(world: World, seconds: float) -> list[do.Command]:
    """The first look after the machine of the coordinator was suspended."""
    world.at += seconds
    return world.feed(on.Ticked(world.at))


def gang(world: World, **limits: float) -> list[AgentId]:
    world.feed(on.RunStarted(world.at, RUN, run_limits(size=2, **limits)))  # type: ignore[arg-type]
    agents = [world.join(name) for name in "ab"]
    world.suggest()
    world.tick(0.1)
    return agents


def test_after_a_sleep_all_agents_have_a_whole_lease() -> None:
    world = World()
    agents = gang(world)
    assert not [each for each in slept(world, 3600.0) if isinstance(each, do.DropAgent)]
    assert not world.tick(LEASE_S, beating=False)
    dropped = [each for each in world.tick(0.1, beating=False) if isinstance(each, do.DropAgent)]
    assert [each.agent for each in dropped] == agents


def test_a_look_that_is_a_little_late_renews_nothing() -> None:
    world = World()
    gang(world)
    world.tick(LEASE_S, beating=False)
    assert [each for each in slept(world, SLEPT_S - 1.0) if isinstance(each, do.DropAgent)]


def test_after_a_sleep_members_have_the_rest_of_their_time() -> None:
    world = World()
    agents = gang(world, join_timeout_s=60.0, trial_timeout_s=100.0, hang_timeout_s=20.0)
    world.tick(40.0)
    assert not slept(world, 3600.0), "members that had 20 s left to join"
    for port, agent in enumerate(agents):
        world.reserve(agent, port)
    for agent in agents:
        world.enter(agent)
        world.step(agent, 1)
    assert not slept(world, 3600.0), "members that had 20 s left for a step, and 100 s for all"
    world.tick(10.0)
    for agent in agents:
        world.step(agent, 2)
    world.tick(20.0)
    assert not world.sent(m.StopMember)
    world.tick(5.0)
    assert [each.member.rank for each in world.sent(m.StopMember)] == [0, 1]


def test_after_a_sleep_members_that_report_metrics_have_the_rest_of_their_time() -> None:
    world = World()
    agents = gang(world, report_timeout_s=30.0)
    for port, agent in enumerate(agents):
        world.reserve(agent, port)
    for agent in agents:
        world.enter(agent)
        world.report(agent)
    assert not slept(world, 3600.0)
    world.tick(29.0)
    assert not world.sent(m.StopMember)
    world.tick(2.0)
    assert world.sent(m.StopMember)


def test_after_a_sleep_stopped_members_have_the_rest_of_their_time() -> None:
    world = World()
    first, second = gang(world)
    world.fail(first, FailureKind.MEMORY)
    assert not slept(world, 3600.0)
    world.tick(10.0)
    assert second in {agent.id for agent in world.machine.agents.all()}
    world.tick(10.0)
    assert [each.agent for each in world.all(do.DropAgent)] == [second]


def test_after_a_sleep_a_run_that_waits_for_agents_has_the_rest_of_its_time() -> None:
    world = World()
    world.begin(start_timeout_s=60.0)
    world.tick(50.0)
    assert not slept(world, 3600.0)
    assert not world.tick(5.0)
    assert [type(each) for each in world.tick(10.0)] == [do.EndRun]
