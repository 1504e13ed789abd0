"""Processes that wait for the loss of a member, in the histories of rings that heal, and what these find."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import Rank
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.handover import Handover
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.prepared import PreparedProcesses
from sparktrain.state.seats.gang_facts import GangFacts
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange
from tests.histories.test_healing_rings import play_all

_pop_ready = Handovers.pop_ready
_take_place = PreparedProcesses.take_place


def _any_rank(handovers: Handovers, gang: Gang, rank: Rank) -> Handover | None:
    """A process takes the place of a rank that its function has not read."""
    for standby in gang.handovers.standbys:
        standby.standing = replace(standby.standing, bound=False)
    return _pop_ready(handovers, gang, rank)


def _not_ready(handovers: Handovers, gang: Gang, rank: Rank) -> Handover | None:
    """A process takes a place before it waits for one."""
    for standby in gang.handovers.standbys:
        standby.state = SeatState.WAITING
        standby.standing = replace(standby.standing, bound=False)
    return _pop_ready(handovers, gang, rank)


def _nameless(processes: PreparedProcesses, gang: Gang, handover: Handover, by: float) -> list[do.Command]:
    """The agent does not learn which member its process is."""
    return [each for each in _take_place(processes, gang, handover, by) if not isinstance(each, do.Send)]


def _forgotten_standbys(processes: PreparedProcesses, gang: Gang, handover: Handover, at: float) -> list[do.Command]:
    """Processes that wait outlive their gang."""
    gang.handovers.remove(handover)
    return []


def _lacks_one(facts: GangFacts) -> SeatChange | None:
    """A process waits on each idle agent."""
    if not facts.heals or not facts.idle:
        return None
    return SeatChange(reason=ChangeReason.STANDBY, text="more", rank=Rank(0), agent=facts.idle[0])


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "gives a place of another rank": partial(patch.object, Handovers, "pop_ready", _any_rank),
    "gives a place to one that is not ready": partial(patch.object, Handovers, "pop_ready", _not_ready),
    "keeps the name of a process": partial(patch.object, PreparedProcesses, "take_place", _nameless),
    "forgets those that wait": partial(patch.object, PreparedProcesses, "end", _forgotten_standbys),
    "starts too many": partial(patch, "sparktrain.state.losses.seat_changes.lacks_standby", _lacks_one),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        play_all()
