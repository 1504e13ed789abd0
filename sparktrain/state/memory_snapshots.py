"""Snapshots of gangs in the shared memory of their agents' hosts: which one a gang resumes from. Pure.

Members of a gang hold equal state, so each keeps a snapshot, and one holder that survives is enough (Wang et al.,
"Gemini", SOSP 2023, section 4). No record has them: they last as long as their agents, and a checkpoint in the store is
what remains of a lost driver.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from sparktrain.base.ids import AgentId, Generation, TrialId
from sparktrain.state.agents import AgentState
from sparktrain.state.checkpoint_history import Checkpoint


class MemorySnapshot(Struct, frozen=True):
    """The state of a gang after a step, whole in the shared memory of one host."""

    generation: Generation
    """Generation that took it."""
    step: int
    """Finished steps of the trial."""
    checksum: str
    """Of the tensors and the document of this holder; members differ in what is their own, such as random seeds."""

    @property
    def position(self) -> tuple[int, int]:
        """Generation and step. All snapshots of a trial with the same position continue the same training."""
        return self.generation, self.step


class MemoryBase(Struct, frozen=True):
    """How one member of a gang gets the snapshot from which the gang resumes."""

    generation: Generation
    step: int
    checksum: str
    """Of the snapshot that the member's agent holds; empty where it holds none, and rank 0 sends its own."""
    sent: bool
    """Some member gets it from rank 0."""


class HeldSnapshots:
    """The newest snapshot of each agent, and the choice among them. An agent holds one trial's at a time.

    A snapshot that a gang does not resume from is dropped when the gang forms: its steps are repeated, perhaps with
    another result, and it must never come back.
    """

    def __init__(self) -> None:
        self._held: dict[AgentId, tuple[TrialId, MemorySnapshot]] = {}
        self._holders: dict[TrialId, dict[AgentId, MemorySnapshot]] = {}
        """The same by trial, in the order in which agents came to hold one of it."""

    def note(self, agent: AgentId, trial: TrialId, snapshot: MemorySnapshot) -> bool:
        """The agent of a member of the trial's gang holds `snapshot`; False if it has held a newer one."""
        holding = self._held.get(agent)
        if holding is not None and holding[0] == trial and holding[1].position >= snapshot.position:
            return False
        if holding is not None and holding[0] != trial:
            self.lost(agent)
        self._held[agent] = trial, snapshot
        self._holders.setdefault(trial, {})[agent] = snapshot
        return True

    def lost(self, agent: AgentId) -> None:
        """The agent is gone, and what it held."""
        trial, _ = self._held.pop(agent, (None, None))
        if trial is None:
            return
        holders = self._holders[trial]
        del holders[agent]
        if not holders:
            del self._holders[trial]

    def newest(self, trial: TrialId, agents: Collection[AgentId] | None = None) -> MemorySnapshot | None:
        """The newest snapshot of the trial that one of `agents` holds, by default any agent."""
        snapshots = [held for agent, held in self.of(trial).items() if agents is None or agent in agents]
        return max(snapshots, key=lambda snapshot: snapshot.position, default=None)

    def of(self, trial: TrialId) -> dict[AgentId, MemorySnapshot]:
        """The snapshots of the trial, by their holders."""
        return dict(self._holders.get(trial, ()))

    def chief(self, trial: TrialId, agents: Sequence[AgentState], shunned: Collection[str | None]) -> AgentId | None:
        """The one of `agents` for rank 0: a holder of the newest snapshot, not on a shunned host if possible."""
        held = self.of(trial)
        holders = [agent for agent in agents if agent.id in held]
        if not holders:
            return None
        newest = max(held[agent.id].position for agent in holders)
        newest_holders = [agent for agent in holders if held[agent.id].position == newest]
        return min(newest_holders, key=lambda agent: agent.host in shunned).id

    def bases(
        self, trial: TrialId, agents: Sequence[AgentId], checkpoint: Checkpoint | None
    ) -> list[MemoryBase] | None:
        """How the members of a new gang get its snapshot, by rank; None where they read the store, or start at 0.

        The snapshot is that of rank 0, unless the checkpoint is newer.
        """
        held = self.of(trial)
        base = held.get(agents[0])
        if base is None or (checkpoint is not None and checkpoint.step > base.step):
            return None
        checksums = {agent: snapshot.checksum for agent, snapshot in held.items() if snapshot.position == base.position}
        mine = [checksums.get(agent, "") for agent in agents]
        return [MemoryBase(base.generation, base.step, checksum, "" in mine) for checksum in mine]

    def formed(self, trial: TrialId, agents: Collection[AgentId], base: MemorySnapshot | None) -> None:
        """A gang of the trial forms on `agents`, and resumes from `base`; None: from the store, or from step 0."""
        for agent, snapshot in self.of(trial).items():
            if base is None or snapshot.position != base.position:
                self.lost(agent)
        for agent in agents:
            if agent in self._held and self._held[agent][0] != trial:
                self.lost(agent)

    def forget(self, trial: TrialId) -> None:
        """No gang resumes from a snapshot of the trial: it has ended, pauses, or continues from another one's state."""
        for agent in self.of(trial):
            self.lost(agent)
