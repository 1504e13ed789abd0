"""Processes that wait for the loss of a member, in the histories of rings that heal, and what these find."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import Rank
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.handover import Handover, HandoverStage
from sparktrain.state.losses.prepared import PreparedProcesses
from sparktrain.state.losses.standbys import Standbys
from tests.histories.test_healing_rings import play_all

_pop_ready = Standbys.pop_ready
_take_place = PreparedProcesses.take_place


def _any_rank(standbys: Standbys, gang: Gang, rank: Rank) -> Handover | None:
    """A process takes the place of a rank that its function has not read."""
    for standby in gang.handovers.standbys:
        standby.bound = False
    return _pop_ready(standbys, gang, rank)


def _not_ready(standbys: Standbys, gang: Gang, rank: Rank) -> Handover | None:
    """A process takes a place before it waits for one."""
    for standby in gang.handovers.standbys:
        standby.stage = HandoverStage.READY
        standby.bound = False
    return _pop_ready(standbys, gang, rank)


def _nameless(processes: PreparedProcesses, gang: Gang, handover: Handover, by: float) -> list[do.Command]:
    """The agent does not learn which member its process is."""
    return [each for each in _take_place(processes, gang, handover, by) if not isinstance(each, do.Send)]


def _forgotten_standbys(standbys: Standbys, gang: Gang, at: float) -> list[do.Command]:
    """Processes that wait outlive their gang."""
    gang.handovers.standbys.clear()
    return []


def _start_all(standbys: Standbys, gang: Gang, at: float) -> list[do.Command]:
    """A process waits on each idle agent."""
    commands = []
    for agent in standbys._agents.idle_for(standbys._sweep.run, 9):
        standby, start = standbys._processes.start(gang, Rank(0), agent, "more", at + 9.0)
        gang.handovers.standbys.append(standby)
        commands.append(start)
    return commands


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "gives a place of another rank": partial(patch.object, Standbys, "pop_ready", _any_rank),
    "gives a place to one that is not ready": partial(patch.object, Standbys, "pop_ready", _not_ready),
    "keeps the name of a process": partial(patch.object, PreparedProcesses, "take_place", _nameless),
    "forgets those that wait": partial(patch.object, Standbys, "end", _forgotten_standbys),
    "starts too many": partial(patch.object, Standbys, "_start", _start_all),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        play_all()
