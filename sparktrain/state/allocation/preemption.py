"""A run of higher priority gets agents of lower ones: their trials pause at their next checkpoint. Pure.

The chief of the gang is asked for a checkpoint, and trains no step after it. Once that counts the gang ends, and its
trial is the next of its run: it continues from the checkpoint, repeats no step and uses no retry. A trial that makes no
checkpoints is left to finish, and its agents come then.
"""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.base.ids import RunId
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.seat_changes import pause
from sparktrain.state.seats.gang_facts import is_steady
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange, StateSource
from sparktrain.state.sweep import Sweep

PAUSE_TIMEOUT_S = 5.0
"""How long the agents of a trial that was asked to pause count as soon free: then others are asked as well."""


def preempt(gang: Gang, by: RunId, at: float) -> list[do.Command]:
    """Have the gang pause for run `by`."""
    text = f"preempted by run {by}"
    return pause(gang, SeatChange(reason=ChangeReason.PREEMPTED, source=StateSource.STORE, text=text), at)


class Victim(Struct, frozen=True, gc=False):
    """A gang that could give its agents to a run of higher priority."""

    run: RunId
    gang: Gang
    saves: bool
    """Its trial has made checkpoints."""

    @property
    def agents(self) -> int:
        """Those that its end frees."""
        return len(self.gang.ranks)


def victims(sweep: Sweep, at: float) -> list[Victim]:
    """The gangs of a run that may be asked to pause now: those of the newest trials first."""
    gangs = [gang for gang in sweep.gangs.values() if is_steady(gang, sweep) and not gang.stop.pauses(at)]
    gangs.sort(key=lambda gang: (gang.generation, -gang.trial))
    return [Victim(sweep.run, gang, sweep.trials[gang.trial].checkpoints.newest is not None) for gang in gangs]


def soon_free(sweep: Sweep, at: float) -> int:
    """The agents of gangs of a run that end for another one."""
    pausing = [(gang, gang.stop.pause) for gang in sweep.gangs.values() if gang.stop.pause is not None]
    return sum(
        len(gang.ranks)
        for gang, pause in pausing
        if pause.change.reason is ChangeReason.PREEMPTED and (pause.complete or at < pause.asked_at + PAUSE_TIMEOUT_S)
    )


def chosen(candidates: Sequence[Victim], agents: int) -> list[Victim]:
    """The first of the candidates that free so many agents by their ends; all of them where that is fewer.

    Those that can pause, as far as is known, come before the others.
    """
    chosen_victims: list[Victim] = []
    for victim in sorted(candidates, key=lambda candidate: not candidate.saves):
        if agents <= 0:
            break
        chosen_victims.append(victim)
        agents -= victim.agents
    return chosen_victims
