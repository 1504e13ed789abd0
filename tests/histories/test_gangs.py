"""Whatever happens in whatever order: each trial ends once, no agent has two members, and every run ends."""

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Generation, Member
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.ending import Ending
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Loss, Outcome
from sparktrain.state.records import MemberRestarted
from sparktrain.state.recovery import compacted, fold
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress
from sparktrain.state.trial import Trial
from tests.unit.state.test_recovery import durable
from tests.unit.state.world import LEASE_S, RUN, World, seatings_in

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("join", "lose", "reserve", "enter", "succeed", "fail", "lost", "ring", "crash", "report", "stale"),
                *("twice", "tick", "hang", "write", "corrupt", "step", "again", "explain", "leave", "load", "start"),
                *("hold", "drain"),
            ]
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)
MEMORY_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("start", "start", "start", "hold", "hold", "hold", "ring", "lost", "lose", "join", "join", "write"),
                *("tick", "corrupt", "explain", "again", "step", "crash", "succeed", "drain"),
            ]
        ),
        st.integers(0, 7),
    ),
    min_size=10,
    max_size=50,
)
MOST_WORKERS = 3
FAILURES = {
    "fail": FailureKind.EXCEPTION,
    "ring": FailureKind.RING,
    "crash": FailureKind.MEMORY,
    "corrupt": FailureKind.CHECKPOINT,
    "lost": FailureKind.LOST,
    "leave": FailureKind.STOPPED,
    "load": FailureKind.LOAD,
}
CLUSTER_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("kill", "start", "step", "lose", "join", "lost", "tick", "write", "report", "again", "explain"),
                *("kill", "start", "kill", "start", "kill", "start", "hang", "crash", "reserve", "enter", "succeed"),
                *("fail", "ring", "leave", "corrupt", "load", "hold"),
            ]
        ),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=40,
)


def act(world: World, what: str, which: int, names: list[AgentId], serving: bool = False) -> None:
    """One thing that may happen; nothing when it cannot. `serving`: workers serve the chief, and do not train."""
    busy = sorted(world.running)
    agent = busy[which % len(busy)] if busy else None
    if what == "join":
        names.append(world.join(f"a{len(names)}", f"host-{which % 3}", which))
    elif what == "tick":
        world.tick(float(which))
    elif what == "hang":
        world.tick(float(which), beating=False)
    elif what == "lose" and names:
        world.lose(names[which % len(names)])
    elif what == "explain" and names:
        losses = list(Loss)
        world.explain(names[which % len(names)], losses[which % len(losses)])
    elif what == "again" and world.fed:
        event = world.fed[which % len(world.fed)]
        if isinstance(event.message, m.MemberStands):  # no older one is sent again
            event = replace(event, message=m.MemberStands(event.message.member, world.standings[event.message.member]))
        world.feed(replace(event, at=world.at))
    elif what == "drain":
        world.drain(f"host-{which % 3}", request=str(len(world.records)))
    elif agent is None:
        return
    elif what == "reserve":
        world.reserve(agent, 4000 + world.running[agent].rank)
    elif what == "step":
        world.step(agent, which)
    elif what == "write":
        world.written += 1
        world.write(agent, world.written)
    elif what == "hold":
        world.written += 1
        world.hold(agent, world.written)
    elif what == "kill":
        if workers := [each for each in busy if 0 < world.running[each].rank < MOST_WORKERS]:
            world.fail(workers[which % len(workers)], FailureKind.SIGNAL)
    elif what == "enter":
        # A member of a gang holds a port before it enters: an agent starts the function once all places are known.
        if len(roles_of(world)) > 1 and world.running[agent] not in world.reserved:
            world.reserve(agent, 4000 + world.running[agent].rank)
        world.enter(agent, trains=not serving and trains(world, agent))
    elif what == "succeed":
        world.succeed(agent)
    elif what in FAILURES:
        world.fail(agent, FAILURES[what])
    elif what == "report":
        world.report(agent)
    elif what == "stale":
        member = world.running[agent]
        older = Member(RUN, member.trial, Generation(member.generation - 1), member.rank)
        world.feed(on.AgentSent(world.at, agent, m.MemberEnded(older, Outcome(1.0, metrics={}))))
    elif what == "start":
        for each in busy:
            world.reserve(each, 4000 + world.running[each].rank)
        for each in sorted(world.running):
            world.enter(each, trains=not serving and trains(world, each))
    elif what == "twice":
        member = world.running[agent]
        world.succeed(agent)
        world.feed(on.AgentSent(world.at, agent, m.MemberEnded(member, Outcome(1.0, metrics={}))))


def trains(world: World, agent: AgentId) -> bool:
    """Whether the agent's member is a worker beside parameter servers, which trains by itself."""
    roles = roles_of(world)
    return Role.PS in roles and roles[world.running[agent].rank] is Role.WORKER


def roles_of(world: World) -> tuple[Role, ...]:
    """The roles of the members of a gang, by rank."""
    assert world.machine.sweep is not None
    return world.machine.sweep.limits.roles


def finish(world: World) -> None:
    """From now on nothing goes wrong, and agents come when they are missing."""
    extra = 0
    while world.machine.sweep is not None:
        world.suggest()
        for agent in sorted(world.running):
            if agent in world.running:
                world.succeed(agent)
        extra += 1
        world.tick(1.0)
        assert extra < 200, f"the run does not end: {world.machine.sweep.__dict__}"
        world.join(f"extra-{extra}")


@settings(max_examples=2000, deadline=None)
@given(
    steps=STEPS,
    size=st.integers(1, 3),
    cases=st.integers(0, 6),
    restarts=st.integers(0, 2),
    stop=st.booleans(),
    recovers=st.booleans(),
    least=st.none() | st.just(1),
    word_s=st.sampled_from([0.0, 20.0]),
    agents=st.integers(0, 3),
    failures=st.tuples(st.none() | st.integers(1, 3), st.none() | st.integers(1, 3)),
)
def test_every_history_ends_with_each_trial_concluded_once(
    steps: list[tuple[str, int]],
    size: int,
    cases: int,
    restarts: int,
    stop: bool,
    recovers: bool,
    least: int | None,
    word_s: float,
    agents: int,
    failures: tuple[int | None, int | None],
) -> None:
    world, names = World(Machine(LEASE_S, word_s), cases=cases), []
    limits = {"min_workers": least, "agents": agents, "max_failures": failures[0], "alike_failures": failures[1]}
    world.begin(size=size, max_retries=restarts, trial_timeout_s=20.0, recovers=recovers, **limits)
    for what, which in steps:
        act(world, what, which, names)
        world.suggest()
        check_members(world)
    check_journal(world)
    event(f"a gang resumed from memory: {check_memory(world)}")
    if stop:
        world.stop(grace_s=1.0)
        world.tick(2.0)
    finish(world)
    check_end(world, restarts)
    concluded = world.all(do.ConcludeTrial)
    gave_up = world.all(do.EndRun)[0].ending in (Ending.UNLOADABLE, Ending.UNAVAILABLE, Ending.FAILING)
    assert stop or gave_up or len(concluded) == cases


@settings(max_examples=1000, deadline=None)
@given(steps=MEMORY_STEPS, size=st.integers(2, 3), spare=st.integers(0, 2), word_s=st.sampled_from([0.0, 20.0]))
def test_gangs_resume_from_one_snapshot_in_any_history(
    steps: list[tuple[str, int]], size: int, spare: int, word_s: float
) -> None:
    world, names = World(Machine(LEASE_S, word_s), cases=2), []
    world.begin(size=size, max_retries=20, recovers=True)
    for number in range(size + spare):
        names.append(world.join(f"a{number}", f"host-{number // 2}", number))
    world.suggest()
    for what, which in steps:
        act(world, what, which, names)
        world.suggest()
        check_members(world)
    event(f"a gang resumed from memory: {check_memory(world)}")
    check_journal(world)
    finish(world)


@settings(max_examples=1000, deadline=None)
@given(
    steps=CLUSTER_STEPS,
    workers=st.integers(1, MOST_WORKERS),
    spare=st.integers(0, 2),
    restarts=st.integers(1, 4),
    stop=st.booleans(),
    word_s=st.sampled_from([0.0, 20.0]),
    serving=st.booleans(),
    moving=st.booleans(),
)
def test_members_of_clusters_restart_alone_in_any_history(
    steps: list[tuple[str, int]],
    workers: int,
    spare: int,
    restarts: int,
    stop: bool,
    word_s: float,
    serving: bool,
    moving: bool,
) -> None:
    world, names = World(Machine(LEASE_S, word_s), cases=2), []
    roles = (Role.CHIEF, *[Role.WORKER] * workers, Role.EVALUATOR, Role.PS)
    limits = {"restarts_members": True, "recovers": True, "hang_timeout_s": 6.0, "join_timeout_s": 12.0}
    world.begin(roles=roles, max_retries=restarts, restarts_servers=moving, **limits)
    for number in range(len(roles) + spare):
        names.append(world.join(f"a{number}", f"host-{number // 4}", number))
    world.suggest()
    act(world, "start", 0, names, serving)
    for what, which in steps:
        act(world, what, which, names, serving)
        world.suggest()
        check_members(world)
        check_places(world)
    check_journal(world)
    event(f"a gang resumed from memory: {check_memory(world)}")
    if stop:
        world.stop(grace_s=1.0)
        world.tick(2.0)
    finish(world)
    check_end(world, restarts)
    formed = [each for each in world.seatings("formed") if not each.ring]
    gangs = {(each.member.trial, each.member.generation) for each in formed}
    moved = len({each.places for each in formed}) - len(gangs)
    event(f"{moved} members moved")
    event(f"{sum(isinstance(each, MemberRestarted) for each in world.records)} restarts alone")


def check_places(world: World) -> None:
    """Every member of a gang that continues knows where each other one is that does not restart now."""
    known: dict[Member, list[MemberAddress]] = {}
    for command in world.all(do.Send):
        for formed in seatings_in([command], "formed"):
            known[formed.member] = list(formed.places)
    for gang in world.machine.sweep.gangs.values() if world.machine.sweep is not None else ():
        for _, member in gang.live() if gang.fault.first is None and not gang.stop.has_started else ():
            if member in known:
                absent = {*gang.absences.by_rank, *gang.attendance.ended}
                there = [rank for rank in range(gang.size) if rank not in absent]
                assert [known[member][rank] for rank in there] == [gang.places[rank] for rank in there]


def check_end(world: World, restarts: int) -> None:
    """What holds when any run is over."""
    assert len(world.all(do.EndRun)) == 1
    concluded = [each.trial for each in world.all(do.ConcludeTrial)]
    assert sorted(concluded) == sorted(world.machine.last.trials)
    assert all(trial.status.final for trial in world.machine.last.trials.values())
    starts = world.all(do.PlaceMember)
    assert len({start.member for start in starts}) == len(starts), "a generation was formed twice"
    for trial in world.machine.last.trials.values():
        assert trial.generation <= 1 + len(trial.restart_history.of_gang)
        assert max(counted(trial)) <= restarts
    check_checkpoints(world)
    check_forming(world)
    check_journal(world)


def counted(trial: Trial) -> list[int]:
    """Restarts that count against the limit, between one newest checkpoint and the next."""
    reached, counts = -1, [0]
    for restart in trial.restarts:
        if restart.resumed_from_step is not None and restart.resumed_from_step > reached:
            reached = restart.resumed_from_step
            counts.append(0)
        counts[-1] += not (restart.excused or restart.paused)
    return counts


def check_checkpoints(world: World) -> None:
    """A generation resumes from the newest checkpoint acknowledged before it, unless that is corrupt."""
    acknowledged: dict[int, list[object]] = {}
    deleted: list[object] = []
    for command in world.commands:
        if isinstance(command, do.Send) and isinstance(ack := command.message, m.AckCheckpoint):
            assert command.durable
            assert ack.checkpoint.generation == ack.member.generation
            acknowledged.setdefault(ack.member.trial, []).append(ack.checkpoint)
        elif isinstance(command, do.DeleteCheckpoints):
            deleted += command.checkpoints
        elif isinstance(command, do.PlaceMember) and command.checkpoint is not None:
            assert command.checkpoint in acknowledged[command.member.trial]
            assert command.checkpoint not in deleted


def check_forming(world: World) -> None:
    """Members of one generation get the same places, once each, and no member those of another generation.

    One that restarts alone gets those of that moment, where members may move: see `check_places`.
    """
    formed: dict[object, object] = {}
    moves = world.machine.last.limits.restarts_servers or world.machine.last.limits.heals
    for form in world.seatings("formed"):
        if form.ring:  # see `test_healing_rings`
            continue
        assert moves or form.member not in formed
        formed.setdefault(form.member, form.places)
    for member, places in formed.items():
        if moves and member.incarnation:
            continue
        assert formed.get(replace(member, rank=0, incarnation=0), places) == places
        assert all(place.port for place in places)


def check_memory(world: World) -> bool:
    """Members of a gang resume from one snapshot: that of their own agents, or of rank 0, no older than the store's.

    Returns whether any gang has.
    """
    gangs: dict[tuple[int, int], list[do.PlaceMember]] = {}
    for each in world.all(do.PlaceMember):
        if not each.member.incarnation:  # a member that restarts alone reads the store
            gangs.setdefault((each.member.trial, each.member.generation), []).append(each)
    for placed in gangs.values():
        bases = [each.memory for each in sorted(placed, key=lambda each: each.member.rank)]
        assert len({None if base is None else (base.generation, base.step) for base in bases}) == 1
        for each in placed:
            base, checkpoint = each.memory, each.checkpoint
            if base is None:
                continue
            assert base.generation < each.member.generation
            assert checkpoint is None or checkpoint.step <= base.step
            if base.checksum:
                assert base.checksum == f"{each.agent}-{base.step}"
            else:
                assert base.transfers is not None
                assert each.member.rank > 0
    return any(placed[0].memory for placed in gangs.values())


def check_members(world: World) -> None:
    """Each member that is not away has one agent, which has this incarnation of it, at the address that others know."""
    for gang in world.machine.sweep.gangs.values() if world.machine.sweep is not None else ():
        for agent, member in gang.live():
            found = world.machine.agents.get(agent)
            assert found is not None
            assert found.member == member
            assert (found.host, found.address) == (gang.places[member.rank].host, gang.places[member.rank].address)
    for start in world.all(do.PlaceMember):
        sweep = world.machine.sweep
        moves = sweep is None or sweep.limits.restarts_servers or sweep.limits.heals
        assert bool(start.port) <= bool(start.member.incarnation) <= (bool(start.port) or moves)
        assert start.port in (0, 4000 + start.member.rank)
        in_ring = start.ring or start.prepared
        assert not start.member.incarnation or start.member.rank or in_ring, "the chief restarts alone"


def check_journal(world: World) -> None:
    """The records hold each trial as the machine knows it; so do those that compaction leaves."""
    sweep = world.machine.last
    assert sweep is not None
    for records in (world.records, compacted(world.records)):
        folded = Sweep(sweep.run, sweep.limits, sweep.started_at)
        # When no host can load the function, the end of the run drops the results of such trials: for the next driver.
        fold(folded, [each for each in records if getattr(each, "ending", "") != Ending.UNLOADABLE])
        assert [durable(trial) for trial in folded.trials.values()] == [durable(each) for each in sweep.trials.values()]
        assert folded.observed == sweep.observed
