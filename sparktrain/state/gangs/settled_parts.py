"""What the agents of a gang learn about a checkpoint that all of its members write. Pure."""

from collections.abc import Sequence

from sparktrain.base.ids import CHIEF, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.checkpoint_parts import PartsDecision
from sparktrain.state.gangs.gang import Gang


def settled_parts(gang: Gang, rank: Rank, step: int, decisions: Sequence[PartsDecision]) -> list[do.Command]:
    """What follows for the agents from news of member `rank` about `step`, for the parts of a checkpoint."""
    commands: list[do.Command] = []
    for decision in decisions:
        if decision.commit:
            chief = gang.member(CHIEF)
            commands.append(do.Send(gang.agents[CHIEF], m.CommitParts(chief, step, decision.commit)))
        if decision.given_up is not None:
            news = decision.given_up, decision.problem
            waiting = [entry for entry in gang.live() if not decision.late or entry[1].rank == rank]
            commands += [do.Send(agent, m.GiveUpPart(member, *news)) for agent, member in waiting]
    return commands
