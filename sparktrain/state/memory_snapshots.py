"""Snapshots of gangs in the shared memory of their agents' hosts: which one a gang resumes from. Pure.

Members of a gang that hold equal state each keep a snapshot of it, and one holder that survives is enough. Of a state
that they hold in parts, each keeps its own part and a copy of another member's (Wang et al., "Gemini", SOSP 2023,
section 4), and the holders that survive must have all parts of one step: `memory_parts`. A replica is the case of one
part. No record has any of them: they last as long as their agents, and a checkpoint in the store is what remains of a
lost driver.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from sparktrain.base.ids import AgentId, Generation, TrialId
from sparktrain.state.agents import AgentState
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.gangs.memory_parts import WHOLE, Layout, PartTransfers, is_split, is_whole, transfers


class MemorySnapshot(Struct, frozen=True):
    """What one agent holds of the state of a gang after a step, in the shared memory of its host."""

    generation: Generation
    """Generation that took it."""
    step: int
    """Finished steps of the trial."""
    checksum: str
    """Of the tensors and the document of this holder; members differ in what is their own, such as random seeds."""
    layout: Layout = WHOLE
    """Which part each member of the gang holds: equal in all snapshots with the same position."""
    parts: tuple[int, ...] = WHOLE
    """The parts in this snapshot."""
    rank: int = 0
    """Of the member that took it, where the state is split: its agent should get this rank again."""

    @property
    def is_split(self) -> bool:
        """Whether no member holds the whole state."""
        return is_split(self.layout)

    @property
    def position(self) -> tuple[int, int]:
        """Generation and step. All snapshots of a trial with the same position continue the same training."""
        return self.generation, self.step


class MemoryBase(Struct, frozen=True):
    """How one member of a gang gets the snapshot from which the gang resumes."""

    generation: Generation
    step: int
    checksum: str
    """Of the snapshot that the member's agent holds; empty where it holds none."""
    transfers: PartTransfers | None = None
    """None where each member has what it needs."""


class HeldSnapshots:
    """The newest snapshots of each agent, and the choice among them. An agent holds those of one trial at a time.

    Of a state in parts an agent holds the newest two: a loss may come when only some members have taken the newest. A
    snapshot that a gang does not resume from is dropped when the gang forms: its steps are repeated, perhaps with
    another result, and it must never come back.
    """

    def __init__(self) -> None:
        self._trials: dict[AgentId, TrialId] = {}
        """The trial of the snapshots of each holder."""
        self._holders: dict[TrialId, dict[AgentId, list[MemorySnapshot]]] = {}
        """By trial, in the order in which agents came to hold one of it; the newest one of an agent comes first."""

    def note(self, agent: AgentId, trial: TrialId, snapshot: MemorySnapshot) -> bool:
        """The agent of a member of the trial's gang holds `snapshot`; False if it has held a newer one."""
        if self._trials.get(agent, trial) != trial:
            self.lost(agent)
        earlier = self._holders.get(trial, {}).get(agent, [])
        if earlier and earlier[0].position >= snapshot.position:
            return False
        self._trials[agent] = trial
        self._holders.setdefault(trial, {})[agent] = [snapshot, *earlier[: int(snapshot.is_split)]]
        return True

    def lost(self, agent: AgentId) -> None:
        """The agent is gone, and what it held."""
        trial = self._trials.pop(agent, None)
        if trial is None:
            return
        holders = self._holders[trial]
        del holders[agent]
        if not holders:
            del self._holders[trial]

    def newest(self, trial: TrialId, agents: Collection[AgentId] | None = None) -> MemorySnapshot | None:
        """A snapshot of the newest state of the trial with all its parts on `agents`, by default on any agents."""
        parts: dict[tuple[int, int], set[int]] = {}
        snapshots: dict[tuple[int, int], MemorySnapshot] = {}
        for agent, held in self._holders.get(trial, {}).items():
            for snapshot in held if agents is None or agent in agents else ():
                snapshots.setdefault(snapshot.position, snapshot)
                parts.setdefault(snapshot.position, set()).update(snapshot.parts)
        usable = [position for position, snapshot in snapshots.items() if is_whole(snapshot.layout, parts[position])]
        return snapshots[max(usable)] if usable else None

    def of(self, trial: TrialId) -> dict[AgentId, MemorySnapshot]:
        """The newest snapshot of each holder of the trial."""
        return {agent: held[0] for agent, held in self._holders.get(trial, {}).items()}

    def at(self, trial: TrialId, position: tuple[int, int]) -> dict[AgentId, MemorySnapshot]:
        """The snapshots of the trial with this position, by their holders."""
        holders = self._holders.get(trial, {})
        pairs = ((agent, snapshot) for agent, held in holders.items() for snapshot in held)
        return {agent: snapshot for agent, snapshot in pairs if snapshot.position == position}

    def chief(self, trial: TrialId, agents: Sequence[AgentState], shunned: Collection[str | None]) -> AgentId | None:
        """The one of `agents` for rank 0: a holder of the newest snapshot, not on a shunned host if possible.

        Of a state in parts, the agent of the lowest rank.
        """
        newest = self.newest(trial, [agent.id for agent in agents])
        if newest is None:
            return None
        held = self.at(trial, newest.position)
        holders = [agent for agent in agents if agent.id in held]
        return min(holders, key=lambda agent: (agent.host in shunned, held[agent.id].rank)).id

    def bases(
        self, trial: TrialId, agents: Sequence[AgentId], checkpoint: Checkpoint | None
    ) -> list[MemoryBase] | None:
        """How the members of a new gang get its snapshot, by rank; None where they read the store, or start at 0.

        The snapshot is the newest one that they hold together, unless the checkpoint is newer.
        """
        base = self.newest(trial, agents)
        if base is None or (checkpoint is not None and checkpoint.step > base.step):
            return None
        held = self.at(trial, base.position)
        snapshots = [held.get(agent) for agent in agents]
        plans = transfers(base.layout, [() if snapshot is None else snapshot.parts for snapshot in snapshots])
        checksums = ["" if snapshot is None else snapshot.checksum for snapshot in snapshots]
        return [
            MemoryBase(base.generation, base.step, checksum, plan if plan.sends else None)
            for checksum, plan in zip(checksums, plans, strict=True)
        ]

    def formed(self, trial: TrialId, agents: Collection[AgentId], base: MemorySnapshot | None) -> None:
        """A gang of the trial forms on `agents`, and resumes from `base`; None: from the store, or from step 0."""
        held = {} if base is None else self.at(trial, base.position)
        for agent in self.of(trial):
            if agent in held:
                self._holders[trial][agent] = [held[agent]]
            else:
                self.lost(agent)
        for agent in agents:
            if self._trials.get(agent, trial) != trial:
                self.lost(agent)

    def forget(self, trial: TrialId) -> None:
        """No gang resumes from a snapshot of the trial: it has ended, pauses, or continues from another one's state."""
        for agent in self.of(trial):
            self.lost(agent)
