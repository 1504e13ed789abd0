"""Carries out the changes that `seats.policies` suggest: one at a time in each gang. Pure.

The members of a gang that pauses for a change end once all have paused, or once its next checkpoint counts. That is no
failure: the next gang resumes there. One without the agents for more members, or with something else that ends it,
does not end for that, and its members train on by themselves.
"""

from collections.abc import Iterable

from sparktrain.base.ids import CHIEF, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.gang_stop import GangPause
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.seats.gang_facts import FactSources, GangFacts, is_steady
from sparktrain.state.seats.policies import Policy, crowded, lacks_standby, leaving, vacant
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange, StateSource

Commands = list[do.Command]


class SeatChanges:
    """The changes of one run's gangs. The state machine calls it after each event, and at each tick."""

    def __init__(self, run: FactSources, handovers: Handovers) -> None:
        self._run = run
        self._sweep = run.sweep
        self._handovers = handovers

    def on_event(self, at: float) -> Commands:
        """What agents allow that have come, or that have lost their members."""
        spec = self._sweep.spec.gang
        gangs = self._sweep.gangs.values()
        grows = spec.min_workers not in (None, self._sweep.limits.size) and not self._sweep.queue
        commands = self.start(gangs, vacant, at) if grows else []
        for gang in gangs if spec.standby else ():
            commands += self._handovers.trim(gang, at)
            while started := self.start([gang], lacks_standby, at):
                commands += started
            self._handovers.note_standbys(gang)
        return commands

    def on_tick(self, at: float) -> Commands:
        """What is looked for at each tick alone."""
        # With 10,000 agents a look at all of them takes a millisecond.
        spreads = self._sweep.spec.gang.spread and self._sweep.limits.heals
        return self.start(self._sweep.gangs.values(), crowded, at) if spreads else []

    def start(self, gangs: Iterable[Gang], policy: Policy, at: float) -> Commands:
        """Have each of the gangs change as the policy suggests."""
        commands: Commands = []
        for gang in gangs:
            change = policy(GangFacts(self._run, gang, at))
            if change is not None and change.source is StateSource.SURVIVORS:
                commands += self._handovers.start(gang, change, at)
            elif change is not None:
                commands += pause(gang, change, at)
        return commands

    # ---- members have paused

    def held(self, gang: Gang, rank: Rank, at: float) -> bool:
        """Member `rank` has paused, and its agent holds the snapshot; whether the gang ends there."""
        pause = gang.stop.pause
        facts = GangFacts(self._run, gang, at)
        if pause is None or pause.change.source is not StateSource.MEMORY or not is_steady(gang, self._sweep):
            return False
        pause.paused.add(rank)
        if len(pause.paused) < len(gang.ranks) or (pause.change.reason is ChangeReason.VACANT and not facts.idle):
            return False
        return _complete(gang, pause, at)

    def stored(self, gang: Gang, at: float) -> bool:
        """A checkpoint of the gang counts; whether the gang ends there."""
        facts = GangFacts(self._run, gang, at)
        if not is_steady(gang, self._sweep):
            return False
        pause = gang.stop.pause
        if facts.drained and not facts.outlives_drain:
            pause = GangPause(change=leaving(facts, StateSource.STORE), asked_at=at)
            gang.stop.pause = pause
        elif pause is None or pause.change.reason is not ChangeReason.PREEMPTED:
            return False
        return _complete(gang, pause, at)


def pause(gang: Gang, change: SeatChange, at: float) -> Commands:
    """Have the members pause after one step, for a gang that resumes there.

    In the store the chief alone saves: it stops there if it can do so without the others, who wait for it in the next
    step. Else the gang ends at its next checkpoint.
    """
    gang.stop.pause = GangPause(change=change, asked_at=at)
    in_store = change.source is StateSource.STORE
    members = [(agent, member) for agent, member in gang.live() if not in_store or member.rank == CHIEF]
    return [do.Send(agent, m.AskSnapshot(member, in_store)) for agent, member in members]


def _complete(gang: Gang, pause: GangPause, at: float) -> bool:
    pause.complete = True
    gang.fault.failed_at = at
    return True
