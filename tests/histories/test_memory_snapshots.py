"""A model of gangs with snapshots in memory, under losses and late messages, around the product's own decisions.

Each member's host has two buffers. A snapshot overwrites the older one; its message reaches the coordinator later, or
never. Gangs form on the agents that are left. The model knows for each state which training led to it.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from sparktrain.base.ids import AgentId, Generation, TrialId
from sparktrain.state.memory_snapshots import HeldSnapshots, MemorySnapshot

TRIAL = TrialId(0)
SIZE = 3
AGENTS = 5
HISTORIES = 400
EVENTS = 60

Lineage = tuple[tuple[int, int], ...]
"""For each generation, its number and the step that it resumed from."""


class WrongHistoryError(AssertionError):
    """The model has found a state that no correct training reaches."""


@dataclass
class Host:
    """An agent, with two buffers that a member fills in turn."""

    id: AgentId
    buffers: list[tuple[MemorySnapshot, Lineage] | None] = field(default_factory=lambda: [None, None])
    torn: int | None = None
    """The buffer that is being overwritten."""
    outbox: deque[MemorySnapshot] = field(default_factory=deque)

    def begin(self) -> int:
        """Start to overwrite the buffer without the newest snapshot."""
        filled = [-1 if each is None else each[0].step + 1000 * each[0].generation for each in self.buffers]
        self.torn = filled.index(min(filled))
        return self.torn

    def find(self, wanted: MemorySnapshot) -> Lineage | None:
        """The lineage of a whole snapshot at the position of `wanted`."""
        for number, each in enumerate(self.buffers):
            if each is not None and number != self.torn and each[0].position == wanted.position:
                return each[1]
        return None


class Model:
    """One trial, its agents, and the coordinator."""

    def __init__(self, held: HeldSnapshots, single_buffer: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.held, self._single = held, single_buffer
        self.count = 0
        self.hosts = {each.id: each for each in (self.new_host() for _ in range(AGENTS))}
        self.gone: list[Host] = []
        self.generation, self.step, self.lineage = 0, 0, ((0, 0),)
        self.durable: tuple[int, Lineage] = (0, ((0, 0),))
        self.gang: list[AgentId] = []
        self.form()

    def new_host(self) -> Host:
        self.count += 1
        return Host(AgentId(f"agent-{self.count}"))

    # ---- events

    def train(self) -> None:
        """Steps, and a snapshot on some members: a loss may prevent it on the others, or tear it."""
        self.step += self.random.randint(1, 3)
        whole = self.random.choice([SIZE, SIZE, self.random.randint(0, SIZE)])
        for number, agent in enumerate(self.gang):
            host = self.hosts[agent]
            if number < whole:
                self.snapshot(host)
            elif self.random.random() < 0.5:
                host.torn = 0 if self._single else host.begin()
        if whole < SIZE:
            self.form()

    def snapshot(self, host: Host) -> None:
        taken = MemorySnapshot(Generation(self.generation), self.step, "")
        place = 0 if self._single else host.begin()
        host.buffers[place], host.torn = (taken, self.lineage), None
        host.outbox.append(taken)

    def deliver(self, host: Host) -> None:
        """One message of an agent, perhaps of one that is gone for the coordinator."""
        if not host.outbox:
            return
        snapshot = host.outbox.popleft()
        current = host.id in self.gang and snapshot.generation == self.generation
        if current:
            self.held.note(host.id, TRIAL, snapshot)

    def save(self) -> None:
        """The newest step becomes a durable checkpoint."""
        self.durable = self.step, self.lineage

    def lose(self) -> None:
        """A host is cut off; what it has sent may still arrive. Another one joins."""
        victim = self.hosts.pop(self.random.choice(list(self.hosts)))
        self.gone.append(victim)
        self.held.lost(victim.id)
        fresh = self.new_host()
        self.hosts[fresh.id] = fresh
        if victim.id in self.gang:
            self.form()

    def form(self) -> None:
        """The members that are left have ended, and all that they sent has arrived; the next gang forms."""
        for agent in self.gang:
            while agent in self.hosts and self.hosts[agent].outbox:  # messages of one agent keep their order
                self.deliver(self.hosts[agent])
        idle = list(self.hosts)
        self.random.shuffle(idle)
        base = self.held.newest(TRIAL, idle)
        step, lineage = self.durable
        if base is not None and base.step >= step:
            step, lineage = base.step, self.restored(base)
        else:
            base = None
        newest = [each.step for agent, each in self.held.of(TRIAL).items() if agent in self.hosts]
        if newest and step < max(newest):
            raise WrongHistoryError(f"step {step} is restored, and an agent that is there holds {max(newest)}")
        chief = [agent for agent, each in self.held.of(TRIAL).items() if base and each.position == base.position]
        self.gang = ([*chief[:1], *(agent for agent in idle if agent not in chief[:1])])[:SIZE]
        self.held.formed(TRIAL, self.gang, base)
        self.generation += 1
        self.step, self.lineage = step, (*lineage, (self.generation, step))

    def restored(self, base: MemorySnapshot) -> Lineage:
        """What the chief loads. Raises WrongHistoryError if that is no whole snapshot, or is of another training."""
        for agent, each in self.held.of(TRIAL).items():
            if each.position != base.position:
                continue
            found = self.hosts[agent].find(base) if agent in self.hosts else None
            if found is None:
                raise WrongHistoryError(f"{agent} has no whole snapshot of step {base.step}")
            if found != self.lineage[: len(found)] or len(self.lineage) - len(found) > 1:
                raise WrongHistoryError(f"step {base.step} is of {found}, and the training is {self.lineage}")
            return found
        raise WrongHistoryError("no holder")

    def play(self) -> None:
        events = [self.train] * 6 + [self.lose] * 2 + [self.save, self.form]
        for _ in range(EVENTS):
            for host in [*self.hosts.values(), *self.gone]:
                if self.random.random() < 0.6:
                    self.deliver(host)
            self.random.choice(events)()


def play(kind: type[HeldSnapshots] = HeldSnapshots, *, single_buffer: bool = False) -> int:
    """Play all histories; returns how many gangs resumed from memory."""
    resumed = 0
    for seed in range(HISTORIES):
        model = Model(kind(), single_buffer, seed)
        model.play()
        resumed += sum(step > 0 for _, step in model.lineage)
    return resumed


def test_each_gang_continues_from_the_newest_whole_snapshot_of_its_own_training() -> None:
    assert play() > HISTORIES


class KeepsForks(HeldSnapshots):
    """A snapshot that a gang did not resume from stays."""

    def formed(self, trial, agents, base):  # type: ignore[no-untyped-def]
        """Nothing is dropped."""


class TakesOldest(HeldSnapshots):
    """The oldest snapshot is chosen."""

    def newest(self, trial, agents=None):  # type: ignore[no-untyped-def]
        found = [held for agent, held in self.of(trial).items() if agents is None or agent in agents]
        return min(found, key=lambda each: each.position, default=None)


class KeepsLost(HeldSnapshots):
    """A lost agent still counts as a holder."""

    def lost(self, agent):  # type: ignore[no-untyped-def]
        """Nothing is dropped."""

    def newest(self, trial, agents=None):  # type: ignore[no-untyped-def]
        return super().newest(trial)


class TakesLastMessage(HeldSnapshots):
    """The last message of any agent is taken for the newest snapshot."""

    def newest(self, trial, agents=None):  # type: ignore[no-untyped-def]
        found = [held for agent, held in self.of(trial).items() if agents is None or agent in agents]
        return found[-1] if found else None


@pytest.mark.parametrize("mutant", [KeepsForks, TakesOldest, KeepsLost, TakesLastMessage])
def test_the_histories_find_a_wrong_choice(mutant: type[HeldSnapshots]) -> None:
    with pytest.raises(WrongHistoryError):
        play(mutant)


def test_the_histories_find_a_single_buffer() -> None:
    with pytest.raises(WrongHistoryError):
        play(single_buffer=True)
