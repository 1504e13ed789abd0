"""The coordinator's decisions, folded over events: agents here, each run in a `run_machine`.

`Machine.fold` is the entry; `handle` is the same without the runs' names. Neither raises for what a peer does: a
message that is out of place is `Refused`. An event reaches the run that it names, or that of its agent; ticks
and losses reach all. Then agents that can change hands are shared among the runs (`allocation`), and each run that the
event or its new agents concern draws its own conclusions. With one run, that has all agents.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sparktrain.base.ids import AgentId, RunId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.agents import Agents, AgentState, AgentStatus
from sparktrain.state.allocation.allocator import Allocator, Contender
from sparktrain.state.allocation.preemption import Victim, chosen, preempt, soon_free, victims
from sparktrain.state.ending import Ending
from sparktrain.state.recovery import recovered
from sparktrain.state.run_machine import Commands, RunMachine, refused
from sparktrain.state.sweep import Sweep

PREEMPT_S = 0.1
"""Interval at which a run of higher priority may ask others for their agents."""

_FREES_NOTHING = (
    m.Heartbeat,
    m.MemberReported,
    m.MemberStepped,
    m.MemberStarted,
    m.MemberShared,
    m.MemberAsked,
    m.SnapshotHeld,
    m.CheckpointStored,
    m.CheckpointFailed,
    m.PartStored,
)
"""Messages after which no agent is free and no run wants another one, unless a rule decides so: a tick follows soon."""

_CONCERNS_ALL = (on.Ticked, on.RunStarted, on.AgentGone)
"""Events after which the claims of all runs may have changed."""


@dataclass
class RunCommands:
    """The commands for one run, in order; of no run, those about agents alone."""

    run: RunId | None
    commands: Commands = field(default_factory=list)


class Machine:
    """All state of one pool: pure, deterministic, driven by events in the order of their times."""

    def __init__(self, lease_s: float, reason_timeout_s: float = 0.0) -> None:
        """Before a trial is given up for a lost agent, the machine waits `reason_timeout_s` for the cluster's reason
        of the loss; 0 where the cluster reports none."""
        self.agents = Agents(lease_s)
        self._reason_timeout_s = reason_timeout_s
        self._newest: RunMachine | None = None
        self._runs: dict[RunId, RunMachine] = {}
        """Those that are not over, in the order of their starts."""
        self._allocator = Allocator(self.agents)
        self._preempts_at = 0.0
        self._changed = False
        """A run has come to its end since agents were shared."""

    @property
    def last(self) -> Sweep | None:
        """The newest run, also when it is over."""
        return self._newest.sweep if self._newest is not None else None

    @property
    def sweep(self) -> Sweep | None:
        """The newest run, if it is not over."""
        return self._run.sweep if self._run is not None else None

    @property
    def _run(self) -> RunMachine | None:
        return self._newest if self._newest is not None and not self._newest.sweep.ended else None

    @property
    def runs(self) -> list[RunId]:
        """The runs that are not over, in the order of their starts."""
        return list(self._runs)

    def sweep_of(self, run: RunId) -> Sweep | None:
        """A run that is not over."""
        machine = self._runs.get(run)
        return None if machine is None else machine.sweep

    def agents_of(self, run: RunId) -> int:
        """How many agents a run has now; all of them while it is the only one."""
        if len(self._runs) < 2:
            return len(self.agents)
        return self.agents.free_count(run) + self.agents.busy_count(run)

    def is_ready(self, run: RunId) -> bool:
        """Some agent has the run's code, and can start or has a member."""
        return bool(self.agents.idle_count(run) or self.agents.busy_count(run))

    def handle(self, event: on.Event) -> Commands:
        """Fold one event; the commands that follow from it, in order."""
        return [command for part in self.fold(event) for command in part.commands]

    def fold(self, event: on.Event) -> list[RunCommands]:
        """Fold one event; the commands that follow from it, by run. Of each run, the event's records come first."""
        fold = _Fold(self._runs)
        if len(self._runs) == 1:
            fold.of(next(iter(self._runs)))
        self._dispatch(event, fold)
        if len(self._runs) > 1 and not self._frees_nothing(event):
            self._allocate(event, fold)
        self._advance(list(fold.commands), fold, event.at)
        while ended := [run for run, machine in self._runs.items() if machine.sweep.ended]:
            for run in ended:
                del self._runs[run]
                self._allocator.close(run)
                self._changed = True
            # A run that ends gives its agents to the others at once.
            self._advance(self._allocate(event, fold), fold, event.at)
        return fold.parts(event.at)

    def _advance(self, runs: Iterable[RunId | None], fold: "_Fold", at: float) -> None:
        for run in runs:
            if run is not None and run in self._runs:
                fold.add(run, self._runs[run].advance(at))

    def _dispatch(self, event: on.Event, fold: "_Fold") -> None:
        match event:
            case on.AgentSent():
                self._on_message(event, fold)
            case on.AgentJoined():
                self._on_joined(event, fold)
            case on.LossAnnounced():
                self._on_notice(event.agent, event.notice, fold, event.at)
            case on.AgentGone():
                self._on_gone(event.agent, event.reason, fold, event.at)
            case on.RunStarted():
                self._on_run_started(event, fold)
            case on.Ticked():
                self._on_tick(event.at, fold)
            case on.AgentsUnavailable():
                for run, machine in self._runs.items():
                    fold.add(run, machine.stop(event.reason, Ending.UNAVAILABLE, event.at))
            case on.LossExplained():
                for run, machine in self._runs.items():
                    fold.add(run, machine.on_loss_explained(event))
            case on.Suggested() | on.QuestionAnswered() | on.StopAsked() | on.TrialStopAsked() | on.DrainAsked():
                self._on_run_event(event, fold)
            case _:
                raise TypeError(f"no such event: {type(event).__name__}")

    def _on_run_event(
        self,
        event: on.Suggested | on.QuestionAnswered | on.StopAsked | on.TrialStopAsked | on.DrainAsked,
        fold: "_Fold",
    ) -> None:
        name = event.member.run if isinstance(event, on.QuestionAnswered) else event.run
        run = self._runs.get(name)
        if run is None:
            return  # for a run that is over
        match event:
            case on.Suggested():
                fold.add(name, run.on_suggested(event))
            case on.QuestionAnswered():
                fold.add(name, run.on_answered(event))
            case on.StopAsked():
                fold.add(name, run.stop(event.reason, event.ending, event.at + event.grace_s))
            case on.TrialStopAsked():
                fold.add(name, run.on_trial_stop(event))
            case on.DrainAsked():
                fold.add(name, run.on_drain(event))

    # ---- agents

    def _on_message(self, event: on.AgentSent, fold: "_Fold") -> None:
        match event.message:
            case m.Heartbeat():
                self._on_heartbeat(event.agent, fold, event.at)
            case m.Ready(run=run):
                self._on_ready(event.agent, run, fold, event.at)
            case m.AgentLeaves(notice=notice, within_s=within_s):
                self._on_notice(event.agent, notice, fold, event.at, within_s)
            case message if (run_machine := self._runs.get(message.member.run)) is not None:
                fold.add(message.member.run, run_machine.on_message(event.agent, message, event.at))
            case message:
                fold.add(self._default, [refused(event.agent, message.member)])

    @property
    def _default(self) -> RunId | None:
        """The run that gets the commands which concern no run."""
        return self._run.sweep.run if self._run is not None else None

    def _on_joined(self, event: on.AgentJoined, fold: "_Fold") -> None:
        agent = AgentState(event.agent, event.slot, event.host, event.address, event.gpus)
        self.agents.join(agent, event.at)
        if event.held is not None:
            self.agents.held[event.agent] = event.held
        self._allocator.joined()
        if len(self._runs) == 1:
            [(run, machine)] = self._runs.items()
            fold.add(run, machine.welcome(agent))

    def _on_ready(self, agent_id: AgentId, run: RunId | None, fold: "_Fold", at: float) -> None:
        agent = self.agents.get(agent_id)
        if agent is None or agent.status is not AgentStatus.PREPARING:
            fold.add(self._default, [do.Refused(agent_id, "ready, but it is not being prepared")])
            return
        self.agents.renew_lease(agent_id, at)
        if run is not None:
            agent.learn(run)
        # It may have been on its way to another run, which it has the code of.
        if agent.run not in self._runs or agent.run in agent.codes:
            self.agents.ready(agent, run)
        if agent.run in self._runs:
            fold.add(agent.run, [])

    def _on_heartbeat(self, agent: AgentId, fold: "_Fold", at: float) -> None:
        if self.agents.get(agent) is None:
            fold.add(self._default, [do.Refused(agent, "heartbeat of a lost agent")])
            return
        self.agents.renew_lease(agent, at)

    def _on_notice(
        self, agent_id: AgentId, notice: str, fold: "_Fold", at: float, within_s: float | None = None
    ) -> None:
        agent = self.agents.get(agent_id)
        if agent is None:
            fold.add(self._default, [do.Refused(agent_id, "notice of a lost agent")])
            return
        if not agent.notice:
            agent.notice = notice
            agent.leaves_within_s = within_s
        # Another run that gets the agent later learns of the notice then.
        if agent.run in self._runs:
            fold.add(agent.run, self._runs[agent.run].on_notice(agent, at))

    def _on_gone(self, agent_id: AgentId, reason: str, fold: "_Fold", at: float) -> None:
        agent = self.agents.get(agent_id)
        owner = None if agent is None or agent.member is None else agent.member.run
        for run, machine in self._runs.items():
            if run != owner:
                machine.forget(agent_id)
        if owner is not None and owner in self._runs:
            fold.add(owner, self._runs[owner].on_agent_gone(agent_id, reason, at))
        else:
            self.agents.remove(agent_id)

    # ---- runs and time

    def _on_run_started(self, event: on.RunStarted, fold: "_Fold") -> None:
        if event.run in self._runs:
            raise ValueError(f"run {event.run} starts while it is not over")
        self.agents.forget_code(event.run)
        self._newest = run = RunMachine(recovered(event), self.agents, self._reason_timeout_s)
        self._runs[event.run] = run
        self._allocator.open(event.run, event.limits.allotment, event.at)
        fold.add(event.run, run.leftovers())
        if len(self._runs) == 1:
            for agent in self.agents.all():
                fold.add(event.run, run.welcome(agent))

    def _on_tick(self, at: float, fold: "_Fold") -> None:
        # Before the leases are checked: after a suspension all of them look expired, though the agents were not silent.
        slept_s = self.agents.woke(at)
        if slept_s:
            self._allocator.postpone(slept_s)
            for machine in self._runs.values():
                machine.sweep.postpone(slept_s)
        for agent, reason in self.agents.expired(at).items():
            lost = self.agents.get(agent)
            owner = None if lost is None or lost.member is None else lost.member.run
            fold.add(owner if owner in self._runs else self._default, [do.DropAgent(agent, reason)])
            self._on_gone(agent, reason, fold, at)
        for run, machine in self._runs.items():
            fold.add(run, machine.on_tick(at))

    # ---- sharing

    def _allocate(self, event: on.Event, fold: "_Fold") -> list[RunId]:
        """Give agents that can change hands to the runs that should have them; returns these runs."""
        at = event.at
        if len(self._runs) == 1:
            [(run, machine)] = self._runs.items()
            free_agents = [agent for agent in self.agents.all() if agent.member is None and agent.run != run]
            self.agents.take_released()
            self.agents.take_arrived()
            for agent in free_agents:
                fold.add(run, machine.prepare(agent))
            return [run] if free_agents else []
        # The claims of other runs change with their own events alone, and with time.
        concerns_all = isinstance(event, _CONCERNS_ALL) or self._changed
        self._changed = False
        runs = list(self._runs) if concerns_all else [run for run in fold.commands if run in self._runs]
        for run in runs:
            machine = self._runs[run]
            self._allocator.refresh(run, machine.claim(), machine.accepts, at)
        gained = self._allocator.grants(runs, at)
        for agent, run in gained:
            if agent.run in self._runs:
                self._runs[agent.run].forget(agent.id)
            fold.add(run, self._runs[run].prepare(agent))
        if at >= self._preempts_at or isinstance(event, on.RunStarted):
            self._preempts_at = at + PREEMPT_S
            self._preempt(self._allocator.contenders, fold, at)
        return list(dict.fromkeys(run for _, run in gained))

    def _frees_nothing(self, event: on.Event) -> bool:
        """No agent can change hands because of this event."""
        if isinstance(event, on.Suggested):
            return True  # what the sampler may still have is claimed already
        if not isinstance(event, on.AgentSent):
            return False
        if isinstance(event.message, m.Ready):
            return not self.agents.have_arrived and self._needs(event.agent)
        return isinstance(event.message, _FREES_NOTHING)

    def _needs(self, agent_id: AgentId) -> bool:
        """The run of an agent could use all that it has, and has counted this one since it got it."""
        agent = self.agents.get(agent_id)
        run = None if agent is None or agent.run is None else self._runs.get(agent.run)
        if run is None:
            return False
        claim = run.claim()
        return claim.unit == 1 and claim.members >= self.agents.free_count(run.sweep.run)

    def _preempt(self, contenders: list[Contender], fold: "_Fold", at: float) -> None:
        """Have trials pause for a run of higher priority that wants their agents."""
        lowest = min((contender.share.priority for contender in contenders), default=0)
        urgent = [contender for contender in contenders if contender.unmet and contender.share.priority > lowest]
        if not urgent:
            return
        soon = sum(soon_free(machine.sweep, at) for machine in self._runs.values())
        for contender in sorted(urgent, key=Contender.order):
            # Those that end for one of them are not there for the next one.
            lacking = contender.unmet - soon
            soon = max(0, soon - contender.unmet)
            for victim in chosen(self._victims(contender, contenders, at), lacking):
                fold.add(victim.run, preempt(victim.gang, contender.run, at))

    def _victims(self, contender: Contender, contenders: list[Contender], at: float) -> list[Victim]:
        """The gangs that may pause for a run: of the lowest priority first, then of the run that is furthest ahead."""
        lower = [rival.share for rival in contenders if rival.share.priority < contender.share.priority]
        lower.sort(key=lambda share: (share.priority, -share.virtual_s))
        return [victim for share in lower for victim in victims(self._runs[share.run].sweep, at)]


class _Fold:
    """What follows from one event, by run, in the order in which it concerns them."""

    def __init__(self, runs: dict[RunId, RunMachine]) -> None:
        self._runs = dict(runs)
        self._all = runs
        self.commands: dict[RunId | None, Commands] = {}

    def of(self, run: RunId | None) -> Commands:
        """The commands of `run`, which the event concerns."""
        if run is not None and run not in self._runs:
            self._runs[run] = self._all[run]
        return self.commands.setdefault(run, [])

    def add(self, run: RunId | None, commands: Commands) -> None:
        """These follow for `run`."""
        self.of(run).extend(commands)

    def parts(self, at: float) -> list[RunCommands]:
        """All of it, with the records of each run first. An agent that is dropped is lost to all runs."""
        if len(self._runs) > 1:
            dropped = [
                (run, command.agent)
                for run, commands in self.commands.items()
                for command in commands
                if isinstance(command, do.DropAgent)
            ]
            for dropper, agent in dropped:
                for run, machine in self._runs.items():
                    if run != dropper:
                        machine.forget(agent)
        return [RunCommands(run, [*self._records(run, at), *commands]) for run, commands in self.commands.items()]

    def _records(self, run: RunId | None, at: float) -> Commands:
        return [] if run is None else [do.WriteRecord(record) for record in self._runs[run].sweep.take_facts(at)]
