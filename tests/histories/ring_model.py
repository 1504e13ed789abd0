"""What the members of a run know of their rings that heal, by the messages alone: a model beside the machine."""

from sparktrain.base.ids import CHIEF, Generation, Member, Rank, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.records import MemberRestarted
from tests.unit.state.world import World, seatings_in, stage_of

RingKey = tuple[TrialId, Generation, int]


class RingModel:
    """What the members of one run know."""

    def __init__(self, world: World, standby: int = 0) -> None:
        self.world = world
        self.standby = standby
        """The most processes of a gang that wait for a loss."""
        self._commands = 0
        self._fed = 0
        self._able: set[Member] = set()
        self._newest: dict[tuple[TrialId, Generation], int] = {}
        self._notified: dict[RingKey, set[Rank]] = {}
        """Members that were asked to leave the ring before this one."""
        self._formed: dict[RingKey, dict[Member, object]] = {}
        """The places that members of a ring have."""
        self._healed: dict[RingKey, set[Member]] = {}
        self._fresh: set[Member] = set()
        """Next processes in rings that have not healed yet."""
        self._recorded = 0
        self._offers: dict[Member, m.Seating] = {}
        """The processes that members know to wait for a place in their ring."""
        self._prepared: set[Member] = set()
        """Processes that were started to wait for a place."""
        self._ready: set[Member] = set()
        """Those of them that wait."""
        self._bound: set[Member] = set()
        """Those that can take the place of their own rank alone."""
        self._former: set[Member] = set()
        """Names of processes that have another one since."""
        self._dismissed: set[Member] = set()
        """Processes that were asked to end, or have left their gang."""
        self._shrinking: set[Member] = set()
        """Members that can continue in a smaller ring."""
        self._comebacks: set[tuple[Member, int]] = set()
        """Members that know of a process for a vacant place, and the ring that they form with it."""
        self._vacant: dict[tuple[TrialId, Generation], set[Rank]] = {}
        """The members that others train without."""
        self._acknowledged: dict[tuple[TrialId, Generation], int] = {}
        """The newest incarnation of a chief that has an acknowledged checkpoint."""

    def check(self) -> None:
        """What has happened since the last call."""
        commands = self.world.commands[self._commands :]
        self._commands = len(self.world.commands)
        # First: a gang that waits for an agent shrinks when its last member can.
        for fed in self.world.fed[self._fed :]:
            if isinstance(fed.message, m.MemberStands):
                shrinks = fed.message.standing.heals and fed.message.standing.shrinks
                (self._shrinking.add if shrinks else self._shrinking.discard)(fed.message.member)
        for command in commands:
            if isinstance(command, do.Send):
                self._send(command.message)
            elif isinstance(command, do.PlaceMember):
                self._place(command)
        self._check_survivors(commands)
        for form in seatings_in(commands, "formed"):
            notified = self._formed.get((form.member.trial, form.member.generation, form.ring))
            ranks = None if notified is None else {member.rank for member in notified}
            assert ranks is None or len(ranks) == len(form.places), "a member does not get the places of its ring"
        for fed in self.world.fed[self._fed :]:
            self._hear(fed.message)
        self._fed = len(self.world.fed)
        self._check_records(commands)
        self._check_processes()

    def _send(self, message: m.StateOutput) -> None:
        generation = message.member.trial, message.member.generation
        assert message.member not in self._former, "a process is called by a name that it has no more"
        if isinstance(message, m.RenameMember):
            self._rename(message.member, message.successor)
        elif isinstance(message, m.Seating):
            self._seat(message)
        elif isinstance(message, m.StopMember):
            self._dismissed.add(message.member)
        elif isinstance(message, m.AckCheckpoint):
            newest = self._acknowledged.get(generation, 0)
            assert message.member.incarnation >= newest, "a checkpoint of a chief counts after that of its successor"
            self._acknowledged[generation] = message.member.incarnation

    def _seat(self, message: m.Seating) -> None:
        generation = message.member.trial, message.member.generation
        stage = stage_of(message)
        if stage == "broken":
            assert message.member in self._able, f"{message.member} is asked to heal, and cannot"
            notified = self._notified.setdefault((*generation, message.ring), set())
            assert message.member.rank not in notified, "the ring is an older one"
            self._newest[generation] = message.ring
            notified.add(message.member.rank)
            self._offers.pop(message.member, None)
        elif stage == "offered":
            assert message.member in self._able, f"{message.member} is asked to change its ring, and cannot"
            if message.moving in self._vacant.get(generation, ()):
                self._comebacks.add((message.member, message.ring))
            self._newest[generation] = message.ring
            self._offers[message.member] = message
            self._notified.setdefault((*generation, message.ring), set()).add(message.member.rank)
            self._formed.setdefault((*generation, message.ring), {})[message.member] = message.places
        elif stage == "joined":
            self._offers.pop(message.member, None)
        elif stage == "formed" and message.ring:
            assert message.ring == self._newest.get(generation), "a ring forms that is not the newest"
            joined = [key for key, places in self._formed.items() if key[:2] == generation and message.member in places]
            assert message.member not in self._fresh or not joined, "a process without a state joins a second ring"
            assert not message.ranks or message.member in self._shrinking, "the ring shrinks, and a member cannot"
            if not message.ranks:
                self._vacant.pop(generation, None)
            is_ready = message.member not in self._prepared or message.member in self._ready
            assert is_ready, "a process gets a place that does not wait for one"
            self._offers = {
                member: offer
                for member, offer in self._offers.items()
                if (member.trial, member.generation) != generation or offer.ring > message.ring
            }
            self._formed.setdefault((*generation, message.ring), {})[message.member] = message.places

    def _rename(self, member: Member, successor: Member) -> None:
        assert member in self._ready, "a process takes a place that does not wait for one"
        assert member not in self._bound or member.rank == successor.rank, "a process takes a place of another rank"
        assert successor not in self._prepared, "two processes have the same name"
        self._former.add(member)
        self._prepared.add(successor)
        self._ready.add(successor)

    def _check_survivors(self, commands: list[do.Command]) -> None:
        """Half of the members, at least, have kept the process with which they trained in the ring that broke."""
        for message in seatings_in(commands, "broken"):
            if self.world.machine.sweep is None:
                continue
            gang = self.world.machine.sweep.gangs.get(message.member.trial)
            if gang is not None and gang.generation == message.member.generation:
                key = gang.trial, gang.generation, message.ring
                members = self._notified[key] | gang.absences.by_rank.keys()
                assert 2 * len(self._notified[key]) >= len(members), "a ring heals that has lost most of its members"
                assert message.member not in self._fresh, "a process without a state is asked to keep it"

    def _place(self, start: do.PlaceMember) -> None:
        if start.prepared:
            assert (start.ring, start.memory) == (0, None), "the process has no place in a ring yet"
            self._prepared.add(start.member)
            return
        newest = self._newest.get((start.member.trial, start.member.generation), 0)
        assert start.ring == (newest if start.member.incarnation else 0), "the member joins another ring"
        assert not (start.ring and start.memory), "the ring gives the member its state"
        if start.ring:
            assert (start.member.trial, start.member.generation) not in self._vacant, "it has the share of another rank"
            self._fresh.add(start.member)

    def _hear(self, message: m.MemberMessage) -> None:
        if not isinstance(message, m.MemberStands):
            return
        member = message.member
        standing = message.standing
        (self._able.add if standing.heals else self._able.discard)(member)
        self._healed.setdefault((member.trial, member.generation, standing.ring), set()).add(member)
        if standing.waits:
            if standing.bound and member not in self._ready:
                self._bound.add(member)
            self._ready.add(member)
        # The chief reports it for all where the place was vacant, and stays.
        if standing.leaves and (member, standing.leaves) not in self._comebacks:
            self._dismissed.add(member)
            self._offers.pop(member, None)
            key = member.trial, member.generation, standing.leaves
            self._formed.get(key, {}).pop(member, None)
            self._notified.get(key, set()).discard(member.rank)

    def _check_processes(self) -> None:
        gangs = self.world.machine.sweep.gangs.values() if self.world.machine.sweep is not None else ()
        members = {member for gang in gangs for _, member in gang.live()}
        running = set(self.world.running.values())
        waiting = {
            (member.trial, member.generation, member.rank) for member in (running & self._prepared) - self._dismissed
        }
        current = {process.member for gang in gangs for process in gang.handovers.processes}
        assert all(len(gang.handovers.standbys) <= self.standby for gang in gangs), "too many processes wait"
        assert running <= members | current | self._dismissed, "a process trains that belongs to no gang"
        lasting = [gang for gang in gangs if gang.fault.first is None and not gang.stop.has_started]
        trained = {member for gang in lasting for _, member in gang.live() if not gang.attendance.ended}
        for member, offer in self._offers.items():
            if member in trained & running:
                able = (running & self._ready) - self._bound - self._dismissed
                other = any((each.trial, each.generation) == (member.trial, member.generation) for each in able)
                assert other or (member.trial, member.generation, offer.moving) in waiting, (
                    "nothing waits for the place"
                )

    def _vacate(self, key: RingKey, ranks: set[Rank], size: int) -> None:
        """The members of a smaller ring have joined it."""
        sweep = self.world.machine.sweep
        assert sweep is not None
        assert size >= (sweep.spec.gang.min_workers or 99), "a ring is smaller than the run allows"
        assert CHIEF not in ranks, "no member saves or reports"
        self._vacant.setdefault(key[:2], set()).update(ranks)

    def _check_records(self, commands: list[do.Command]) -> None:
        joined = {(message.member, message.ring) for message in seatings_in(commands, "joined")}
        for member, ring in joined:
            key = member.trial, member.generation, ring
            formed = self._formed.get(key, {})
            assert formed.keys() <= self._healed.get(key, set()), "a member trains on before all have joined"
        restarts = [each for each in self.world.records if isinstance(each, MemberRestarted)]
        for record in restarts[self._recorded :]:
            key = record.trial, record.generation, self._newest[record.trial, record.generation]
            formed = self._formed.get(key, {})
            assert formed, "a ring counts as healed that could not form"
            assert len(set(map(str, formed.values()))) == 1, "members of a ring know different places"
            size = len(next(iter(formed.values())))
            assert len({member.rank for member in formed}) == size, "a member does not know the others of its ring"
            over = [each.restart for each in restarts[self._recorded :] if each.trial == record.trial]
            lost = {Rank(restart.rank) for restart in over}
            vacated = {Rank(restart.rank) for restart in over if restart.members is not None}
            if vacated:
                self._vacate(key, vacated, size)
            notified = self._notified[key] | (lost - vacated)
            self._fresh -= formed.keys()
            assert len(notified) == size, "a member has not left its ring"
            assert not self._notified[key] & lost, "a member that kept its process counts as lost"
            assert formed.keys() <= self._healed.get(key, set()), "a ring counts as healed, and a member is not there"
            assert {(member, key[2]) for member in formed} <= joined, "a member waits for ever to train on"
            assert record.restart.healed
        self._recorded = len(restarts)
        for gang in self.world.machine.sweep.gangs.values() if self.world.machine.sweep is not None else ():
            fails = gang.fault.cause is not None or gang.stop.has_started
            assert fails or gang.absences.healing is None or not gang.attendance.ended, "a member is gone for good"
