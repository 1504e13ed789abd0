"""Agents that were lost with a member of a run, while the cluster may still report why. Pure."""

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member
from sparktrain.state.agents import AgentState
from sparktrain.state.gangs.gang import Gang, led_to
from sparktrain.state.outcome import Failure, Loss, lost_agent
from sparktrain.state.records import LossRecorded
from sparktrain.state.restart import Decision
from sparktrain.state.sweep import Sweep


class AnnouncedLoss(Struct, frozen=True):
    """What a loss counts as that users or the cluster have announced."""

    loss: Loss
    text: str
    """For the line that names the loss."""


class LostAgents:
    """The lost agents of one run, until their reasons are known."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._lost: dict[AgentId, tuple[Member, str]] = {}
        """What each of them trained, and its host."""
        self.announced: dict[AgentId, AnnouncedLoss] = {}
        """Those of them that were drained, or had notice."""

    def lose(self, agent: AgentState, member: Member) -> None:
        """The agent is lost with its member; the cluster may report the reason later."""
        self._lost[agent.id] = member, agent.host
        if agent.notice:
            self.announced[agent.id] = AnnouncedLoss(Loss.ANNOUNCED, f"that was announced ({agent.notice})")
        elif self._sweep.drains.covers(agent):
            self.announced[agent.id] = AnnouncedLoss(Loss.DECOMMISSIONED, "it was being drained")

    def awaits_reason(self, gang: Gang) -> bool:
        """The trial of an ended gang would be given up for the loss of an agent, and the cluster's reason is not known:
        what the cluster took does not count."""
        trial = self._sweep.trials[gang.trial]
        failure = gang.verdict().failure
        if failure is None or failure.loss is not None:
            return False
        agent_lost = any(
            member.trial == gang.trial
            and member.generation == gang.generation
            and led_to(failure.kind, failure.rank, member.rank)
            for member, _ in self._lost.values()
        )
        # Only a trial that would be given up waits for Spark's word, which comes seconds to minutes later.
        return agent_lost and self._sweep.decide(trial, gang, failure) is Decision.GIVE_UP

    def explain(self, agent: AgentId, loss: Loss, reason: str) -> Gang | None:
        """The cluster has reported why the agent was lost; returns the gang that this ended, unless it is over."""
        member, host = self._lost.pop(agent, (None, ""))
        if member is None:
            return None
        trial = self._sweep.trials[member.trial]
        announced = self.announced.pop(agent, None)
        if announced is not None and not loss.own:
            loss = announced.loss
            reason = f"{reason}; {announced.text}"
        failure = Failure(loss.kind, lost_agent(host, reason), loss=loss)
        gang = self._sweep.gangs.get(member.trial)
        alone = trial.restart_history.alone.get(member)
        if alone is None and gang is not None and gang.generation == member.generation:
            gang.explain(failure, member.rank)
            return gang
        place = trial.restart_history.place_of(member.generation) if alone is None else alone
        old_restart = None if place is None else trial.restarts[place]
        if place is not None and old_restart is not None and led_to(old_restart.kind, old_restart.rank, member.rank):
            details = {"kind": failure.kind, "cause": failure.summary, "loss": loss}
            restart = replace(old_restart, rank=int(member.rank), host=host, **details)
            trial.explain(place, restart)
            fact = LossRecorded(trial=trial.id, generation=member.generation, restart=restart, place=alone)
            self._sweep.note([fact])
        return None
