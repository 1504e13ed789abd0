"""The coordinator's decisions, folded over events: agents here, their run in `run_machine`.

`Machine.handle` is the only entry. It never raises for what a peer does: a message that is out of place is `Refused`.
"""

from sparktrain.ids import AgentId, RunId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.agents import Agents, AgentState, AgentStatus
from sparktrain.state.ending import Ending
from sparktrain.state.recovery import recovered
from sparktrain.state.run_machine import Commands, RunMachine, refused
from sparktrain.state.sweep import Sweep


class Machine:
    """All state of one pool: pure, deterministic, driven by events in the order of their times."""

    def __init__(self, lease_s: float, reason_timeout_s: float = 0.0) -> None:
        """Before a trial is given up for a lost agent, the machine waits `reason_timeout_s` for the cluster's reason
        of the loss; 0 where the cluster reports none."""
        self.agents = Agents(lease_s)
        self._reason_timeout_s = reason_timeout_s
        self._newest: RunMachine | None = None

    @property
    def last(self) -> Sweep | None:
        """The newest run, also when it is over."""
        return self._newest.sweep if self._newest is not None else None

    @property
    def sweep(self) -> Sweep | None:
        """The current run, if any."""
        return self._run.sweep if self._run is not None else None

    @property
    def _run(self) -> RunMachine | None:
        return self._newest if self._newest is not None and not self._newest.sweep.ended else None

    @property
    def ready(self) -> bool:
        """Some agent has the run's code, and can start or has a member."""
        return any(agent.status is not AgentStatus.PREPARING for agent in self.agents.all())

    def handle(self, event: on.Event) -> Commands:
        """Fold one event; the commands that follow from it, in order."""
        commands = self._dispatch(event)
        if self._run is not None:
            commands += self._run.advance(event.at)
        return [*self._facts(event.at), *commands]

    def _facts(self, at: float) -> Commands:
        """The event's records: they are written before the commands that follow from it are performed."""
        if self.last is None:
            return []
        return [do.WriteRecord(record) for record in self.last.take_facts(at)]

    def _dispatch(self, event: on.Event) -> Commands:
        match event:
            case on.AgentSent():
                return self._on_message(event)
            case on.AgentJoined():
                return self._on_joined(event)
            case on.LossAnnounced():
                return self._on_notice(event.agent, event.notice, event.at)
            case on.AgentGone():
                return self._on_gone(event.agent, event.reason, event.at)
            case on.RunStarted():
                return self._on_run_started(event)
            case on.Ticked():
                return self._on_tick(event.at)
            case (
                on.Suggested()
                | on.QuestionAnswered()
                | on.StopAsked()
                | on.TrialStopAsked()
                | on.DrainAsked()
                | on.AgentsUnavailable()
                | on.LossExplained()
            ):
                return self._on_run_event(self._run, event) if self._run is not None else []
            case _:
                raise TypeError(f"no such event: {type(event).__name__}")

    def _on_run_event(self, run: RunMachine, event: on.Event) -> Commands:
        match event:
            case on.Suggested() if event.run == run.sweep.run:
                return run.on_suggested(event)
            case on.QuestionAnswered() if event.member.run == run.sweep.run:
                return run.on_answered(event)
            case on.StopAsked() if event.run == run.sweep.run:
                return run.stop(event.reason, event.ending, event.at + event.grace_s)
            case on.TrialStopAsked() if event.run == run.sweep.run:
                return run.on_trial_stop(event)
            case on.DrainAsked() if event.run == run.sweep.run:
                return run.on_drain(event)
            case on.AgentsUnavailable():
                return run.stop(event.reason, Ending.UNAVAILABLE, event.at)
            case on.LossExplained():
                return run.on_loss_explained(event)
        return []  # for a run before this one

    # ---- agents

    def _on_message(self, event: on.AgentSent) -> Commands:
        match event.message:
            case m.Heartbeat():
                return self._on_heartbeat(event.agent, event.at)
            case m.Ready(run=run):
                return self._on_ready(event.agent, run, event.at)
            case m.AgentLeaves(notice=notice, within_s=within_s):
                return self._on_notice(event.agent, notice, event.at, within_s)
            case message if self._run is not None:
                return self._run.on_message(event.agent, message, event.at)
            case message:
                return [refused(event.agent, message.member)]

    def _on_joined(self, event: on.AgentJoined) -> Commands:
        agent = AgentState(event.agent, event.slot, event.host, event.address, event.gpus)
        self.agents.join(agent, event.at)
        return self._run.prepare(agent) if self._run is not None else []

    def _on_ready(self, agent_id: AgentId, run: RunId | None, at: float) -> Commands:
        agent = self.agents.get(agent_id)
        if agent is None or agent.status is not AgentStatus.PREPARING:
            return [do.Refused(agent_id, "ready, but it is not being prepared")]
        self.agents.renew_lease(agent_id, at)
        if self.sweep is None or run == self.sweep.run:
            self.agents.ready(agent, run)
        return []

    def _on_heartbeat(self, agent: AgentId, at: float) -> Commands:
        if self.agents.get(agent) is None:
            return [do.Refused(agent, "heartbeat of a lost agent")]
        self.agents.renew_lease(agent, at)
        return []

    def _on_notice(self, agent_id: AgentId, notice: str, at: float, within_s: float | None = None) -> Commands:
        agent = self.agents.get(agent_id)
        if agent is None:
            return [do.Refused(agent_id, "notice of a lost agent")]
        if not agent.notice:
            agent.notice = notice
            agent.leaves_within_s = within_s
        return self._run.on_notice(agent, at) if self._run is not None else []

    def _on_gone(self, agent: AgentId, reason: str, at: float) -> Commands:
        if self._run is not None:
            return self._run.on_agent_gone(agent, reason, at)
        self.agents.remove(agent)
        return []

    # ---- runs and time

    def _on_run_started(self, event: on.RunStarted) -> Commands:
        if self.sweep is not None:
            raise ValueError(f"run {event.run} starts while run {self.sweep.run} is not over")
        self._newest = run = RunMachine(recovered(event), self.agents, self._reason_timeout_s)
        return [*run.leftovers(), *(command for agent in self.agents.all() for command in run.prepare(agent))]

    def _on_tick(self, at: float) -> Commands:
        # Before the leases are checked: after a suspension all of them look expired, though the agents were not silent.
        slept_s = self.agents.woke(at)
        if slept_s and self.sweep is not None:
            self.sweep.postpone(slept_s)
        commands: Commands = []
        for agent, lease_s in self.agents.expired(at).items():
            reason = f"no heartbeat for {lease_s:g} s"
            commands += [do.DropAgent(agent, reason), *self._on_gone(agent, reason, at)]
        return [*commands, *(self._run.on_tick(at) if self._run is not None else [])]
