"""The snapshots in memory over the life of a run's gangs: kept while they train, used when the next one forms. Pure.

Where the members of a gang hold equal state, each of their agents may hold the whole of it; else each holds its part,
and copies of others. `keep` notes the newest snapshots of each agent as members report them. When the gang has ended,
`ended` decides whether the next one may use them at all, and when that forms, `form` decides what it resumes from: the
newest state with all its parts on the agents of the gang, unless the checkpoint in the store is newer. `placement` has
made a holder of it rank 0. Members get what their own agents lack from others.

The invariant: all members of a gang resume from one state, and no state that a gang has not resumed from comes back
later. Its steps are repeated, perhaps with other results, so that a snapshot from before would be a fork of the
training. So what is not chosen is dropped at once, and so is everything after a failure that the snapshot itself may
cause: the next gang reads the store. Where one agent alone has no readable copy, the next gang starts from that of
another agent: each such try drops a holder, so that they end. No record has any of this: a snapshot lasts as long as
its agent, and a driver that takes over starts from checkpoints.
"""

from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.memory_parts import is_split
from sparktrain.state.memory_snapshots import HeldSnapshots, MemoryBase, MemorySnapshot
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.records import LossRecorded
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus

_UNREAD = (FailureKind.CHECKPOINT, FailureKind.FORM, FailureKind.RING)
"""A gang that fails so before it trains may fail again with the same snapshot: the next one reads the store."""


class MemoryTier:
    """What the gangs of a run hold in memory. The state machine calls it where gangs form and end."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self.held = HeldSnapshots()

    def keep(self, gang: Gang, agent: AgentId, message: m.SnapshotHeld) -> bool:
        """A member's agent holds a snapshot; False where members do not hold one model, or hold a newer snapshot."""
        snapshot = MemorySnapshot(
            generation=gang.generation,
            step=message.step,
            checksum=message.checksum,
            layout=message.layout,
            parts=message.parts,
            rank=message.member.rank if is_split(message.layout) else 0,
        )
        # Parameter servers and evaluators hold something else than the workers.
        alike = all(place.role in (Role.CHIEF, Role.WORKER) for place in gang.places)
        return alike and self.held.note(agent, gang.trial, snapshot)

    def ended(self, gang: Gang) -> list[do.Send]:
        """The gang is gone; note from where the next one can resume, unless this trial has no next one like it.

        Returns what the agents learn that hold snapshots from which no gang resumes.
        """
        trial = self._sweep.trials[gang.trial]
        cause = gang.fault.first
        tried = gang.checkpoints.memory_step is not None and gang.attendance.running_since is None
        unread = tried and cause is not None and cause.kind in _UNREAD and not self._has_copy(gang, cause)
        resumes = (cause is not None or gang.stop.continues) and not unread
        forgotten = self.held.of(trial.id)
        if not resumes or trial.stopping or trial.status is not TrialStatus.RUNNING:
            self.held.forget(trial.id)
        newest = self.held.newest(trial.id)
        gang.checkpoints.kept_step = newest.step if newest is not None else None
        members = [(agent, gang.member(Rank(rank))) for rank, agent in enumerate(gang.agents)]
        gone = forgotten.keys() - self.held.of(trial.id).keys()
        return [do.Send(agent, m.ForgetSnapshot(member)) for agent, member in members if agent in gone]

    def _has_copy(self, gang: Gang, cause: Failure) -> bool:
        """Whether one member alone could not read its agent's copy, and another agent holds one; drops the first."""
        if cause.kind is not FailureKind.CHECKPOINT or cause.rank is None:
            return False
        holder = gang.agents[cause.rank]
        had_copy = holder in self.held.of(gang.trial)
        self.held.lost(holder)
        return had_copy and self.held.newest(gang.trial) is not None

    def form(self, trial: Trial, gang: Gang) -> list[MemoryBase | None]:
        """What the members of a new gang resume from, by rank; None: the checkpoint, or step 0."""
        bases = self.held.bases(trial.id, gang.agents, gang.checkpoints.base)
        base = self.held.newest(trial.id, gang.agents) if bases is not None else None
        self.held.formed(trial.id, gang.agents, base)
        gang.checkpoints.memory_step = base.step if base is not None else None
        self._correct(trial, gang)
        return [None] * gang.size if bases is None else list(bases)

    def _correct(self, trial: Trial, gang: Gang) -> None:
        """The newest restart names the step at which this gang resumes: a holder may have been lost since."""
        step = gang.checkpoints.first_step
        place = max(trial.restart_history.of_gang, default=None)
        if place is None or trial.restarts[place].resumed_from_step == step:
            return
        newest = trial.restarts[place]
        lost = None if newest.steps_lost is None else newest.steps_lost + (newest.resumed_from_step or 0) - (step or 0)
        restart = replace(newest, resumed_from_step=step, steps_lost=lost)
        trial.explain(place, restart)
        self._sweep.note([LossRecorded(trial=trial.id, generation=trial.generation, restart=restart)])
