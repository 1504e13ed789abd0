"""The coordinator's decisions: agents, one run, its trials and their gangs, folded over events.

`Machine.handle` is the only way in. It never raises for what a peer does: a message that is out of place is `Refused`.
"""

from msgspec.structs import replace

from sparktrain.ids import CHIEF, AgentId, Generation, Member, Rank, RunId
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.agents import Agents, AgentState, AgentStatus
from sparktrain.state.deadlines import hang, not_joined
from sparktrain.state.gang import Gang, GangStatus, Pace
from sparktrain.state.health import NEVER_ENTERED
from sparktrain.state.liveness import Leases
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.placement import next_gang, places
from sparktrain.state.prospects import able, elsewhere, hopeless, idle
from sparktrain.state.records import RunEnded
from sparktrain.state.recovery import recovered
from sparktrain.state.sweep import Ending, Sweep, lost
from sparktrain.state.trial import NOT_FORMED, Trial

KILL_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL, for a member that ran out of time."""
CAUSE_TIMEOUT_S = 1.0
"""How long a failure that may only follow from another member's waits for that one to be told."""
SHRINK_AFTER_S = 30.0
"""How long a gang that may go on smaller waits for lost agents to be replaced."""
STOP_TIMEOUT_S = 15.0
"""Until a member that was told to stop must be gone; then its agent counts as lost."""

TIMEOUT_GRACE_S = 5.0
"""From `ctx.should_stop()` to the end of a trial, once the run's timeout is over, or too many trials have failed."""

Commands = list[do.Command]


class Machine:
    """All state of one pool: pure, deterministic, driven by events in the order of their times."""

    def __init__(self, lease_s: float, word_timeout_s: float = 0.0) -> None:
        """Before a trial is given up for a lost agent, the cluster has `word_timeout_s` to say why that was lost; 0
        where it says nothing."""
        self.agents = Agents()
        self.last: Sweep | None = None
        """The newest run, also when it is over."""
        self._leases = Leases(lease_s)
        self._word_timeout_s = word_timeout_s

    @property
    def sweep(self) -> Sweep | None:
        """The run that is on, if any."""
        return self.last if self.last is not None and not self.last.ended else None

    @property
    def ready(self) -> bool:
        """Some agent has the run's code, and can start or has a member."""
        return any(agent.status is not AgentStatus.PREPARING for agent in self.agents.all())

    def handle(self, event: on.Event) -> Commands:
        """Fold one event; the commands that follow from it, in order."""
        commands = self._dispatch(event)
        if self.sweep is not None:
            commands += self._advance(self.sweep, event.at)
        return [*self._facts(event.at), *commands]

    def _facts(self, at: float) -> Commands:
        """What has come to pass by the event: it is written down before the commands that follow from it are done."""
        if self.last is None:
            return []
        facts, self.last.facts = self.last.facts, []
        wall = self.last.started_wall + at - self.last.started_at
        return [do.WriteRecord(replace(fact, at=wall)) for fact in facts]

    def _dispatch(self, event: on.Event) -> Commands:
        match event:
            case on.AgentHeartbeat():
                return self._on_beat(event)
            case on.MemberReported():
                return self._on_reported(event)
            case on.MemberStepped():
                return self._on_stepped(event)
            case on.CheckpointWritten():
                return self._on_checkpoint(event)
            case on.CheckpointFailed():
                return self._on_unsaved(event)
            case on.MemberReserved():
                return self._on_reserved(event)
            case on.MemberShared():
                return self._on_shared(event)
            case on.MemberEntered():
                return self._on_entered(event)
            case on.MemberEnded():
                return self._on_ended(event)
            case on.Suggested():
                return self._on_suggested(event)
            case on.AgentJoined():
                return self._on_joined(event)
            case on.AgentReady():
                return self._on_ready(event)
            case on.AgentGone():
                return self._on_gone(event.agent, event.reason, event.at)
            case on.LossExplained():
                return self._on_explained(event)
            case on.RunStarted():
                return self._on_run_begun(event)
            case on.StopAsked():
                return self._stop(event.run, event.reason, Ending.STOPPED, event.at + event.grace_s)
            case on.AgentsUnavailable():
                run = self.sweep.run if self.sweep else RunId("")
                return self._stop(run, event.reason, Ending.UNAVAILABLE, event.at)
            case on.Ticked():
                return self._on_tick(event.at)
            case _:
                raise TypeError(f"no such event: {type(event).__name__}")

    # ---- agents

    def _on_joined(self, event: on.AgentJoined) -> Commands:
        agent = AgentState(event.agent, event.slot, event.host, event.address, event.gpus)
        self.agents.join(agent)
        self._leases.renew(event.agent, event.at)
        return self._prepare(agent)

    def _on_ready(self, event: on.AgentReady) -> Commands:
        agent = self.agents.get(event.agent)
        if agent is None or agent.status is not AgentStatus.PREPARING:
            return [do.Refused(event.agent, "ready, but it is not being prepared")]
        self._leases.renew(event.agent, event.at)
        if self.sweep is None or event.run == self.sweep.run:
            self.agents.ready(agent, event.run)
        return []

    def _on_beat(self, event: on.AgentHeartbeat) -> Commands:
        if self.agents.get(event.agent) is None:
            return [do.Refused(event.agent, "sign of life of a lost agent")]
        self._leases.renew(event.agent, event.at)
        return []

    def _on_gone(self, agent_id: AgentId, reason: str, at: float) -> Commands:
        agent = self.agents.remove(agent_id)
        self._leases.end(agent_id)
        if agent is None or agent.member is None or self.sweep is None:
            return []
        gang = self.sweep.gangs.get(agent.member.trial)
        if gang is None:
            return []
        self.sweep.lost[agent_id] = agent.member, agent.host
        return self._member_over(gang, agent.member.rank, lost(agent.host, reason), at)

    def _on_explained(self, event: on.LossExplained) -> Commands:
        gang = self.sweep.explain(event.agent, event.loss, event.told) if self.sweep else None
        if gang is None or self.sweep is None or gang.status is not GangStatus.ENDED:
            return []
        return self._gang_over(self.sweep, gang, event.at)

    def _prepare(self, agent: AgentState) -> Commands:
        if self.sweep is None:
            return []
        self.agents.prepare(agent)
        return [do.PrepareAgent(agent.id, self.sweep.run)]

    def _drop(self, agent_id: AgentId, reason: str, at: float) -> Commands:
        return [do.DropAgent(agent_id, reason), *self._on_gone(agent_id, reason, at)]

    # ---- members

    def _gang_of(self, agent: AgentId, member: Member) -> Gang | None:
        """The gang that `member` is of, unless it is of an older generation or another agent's."""
        gang = self.sweep.gangs.get(member.trial) if self.sweep and self.sweep.run == member.run else None
        if gang is None or gang.generation != member.generation or member.rank in gang.ended:
            return None
        if not 0 <= member.rank < len(gang.agents) or gang.agents[member.rank] != agent:
            return None
        return gang

    def _refuse(self, agent: AgentId, member: Member) -> Commands:
        return [do.Refused(agent, f"{member} is not this agent's member, or is of an older generation")]

    def _on_reserved(self, event: on.MemberReserved) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None:
            return self._refuse(event.agent, event.member)
        if not gang.reserve(event.member.rank, event.port) or gang.stop_by is not None:
            return []
        return [do.FormGang(agent, member, gang.places) for agent, member in gang.live()]

    def _on_shared(self, event: on.MemberShared) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None or gang.status not in (GangStatus.CONNECTING, GangStatus.RUNNING):
            return self._refuse(event.agent, event.member)
        others = [(agent, member) for agent, member in gang.live() if member != event.member]
        return [do.RelayToPeers(agent, member, event.key, event.value) for agent, member in others]

    def _on_entered(self, event: on.MemberEntered) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None or self.sweep is None:
            return self._refuse(event.agent, event.member)
        gang.enter(event.member.rank, event.at)
        self.sweep.ever_entered = True
        if (agent := self.agents.get(event.agent)) is not None:
            self.sweep.health.entered(agent)
        if gang.running_since == event.at:
            self.sweep.running(gang, event.at)
        return []

    def _on_stepped(self, event: on.MemberStepped) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None:
            return self._refuse(event.agent, event.member)
        gang.step(event.member.rank, Pace(event.step, event.at, event.steps_per_s, event.training))
        return []

    def _on_checkpoint(self, event: on.CheckpointWritten) -> Commands:
        gang, new = self._gang_of(event.agent, event.member), event.checkpoint
        if gang is None or self.sweep is None or event.member.rank != 0 or new.generation != gang.generation:
            return self._refuse(event.agent, event.member)
        checkpoints = self.sweep.trials[gang.trial].checkpoints
        newest = checkpoints.newest
        if newest is not None and new.step <= newest.step:
            return [do.Refused(event.agent, f"checkpoint of step {new.step} is not newer than that of {newest.step}")]
        doomed = self.sweep.acknowledge(gang, new)
        commands: Commands = [do.AckCheckpoint(event.agent, event.member, new)]
        return [*commands, do.DeleteCheckpoints(gang.trial, tuple(doomed))] if doomed else commands

    def _on_unsaved(self, event: on.CheckpointFailed) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None or self.sweep is None or event.member.rank != 0:
            return self._refuse(event.agent, event.member)
        self.sweep.unsaved(gang, event.step, event.problem)
        return []

    def _on_reported(self, event: on.MemberReported) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None or self.sweep is None or not event.reports:
            return self._refuse(event.agent, event.member)
        newest = event.reports[-1]
        gang.reported[event.member.rank] = Pace(newest.step, event.at)
        if event.member.rank == CHIEF:
            self.sweep.report(gang, newest, event.at)
        return [do.RecordReports(event.member, event.reports)]

    def _on_ended(self, event: on.MemberEnded) -> Commands:
        gang = self._gang_of(event.agent, event.member)
        if gang is None:
            return self._refuse(event.agent, event.member)
        if self._unasked(gang, event.outcome):
            return self._drop(event.agent, "it ended its member, and nobody had asked it to", event.at)
        agent = self.agents.get(event.agent)
        if agent is not None and agent.member == event.member:
            self.agents.release(agent)
        rank, failure = event.member.rank, event.outcome.failure
        blamed = self._blame(gang, rank, failure, event.at) if failure is not None else []
        return [*blamed, *self._member_over(gang, rank, event.outcome, event.at)]

    def _blame(self, gang: Gang, rank: Rank, failure: Failure, at: float) -> Commands:
        """A member has failed: where it had not entered the training function, its agent backs off."""
        assert self.sweep is not None
        agent = self.agents.get(gang.agents[rank])
        early = rank not in gang.entered and gang.stop_by is None and failure.kind in NEVER_ENTERED
        if agent is None or not early or not self.sweep.health.failed(agent, gang.trial, failure, at):
            return []
        return [do.ExcludeAgent(agent.id, self.sweep.health.why(agent))]

    def _unasked(self, gang: Gang, outcome: Outcome) -> bool:
        """The agent ended its member for a reason of its own: it is about to leave, and must get no other member."""
        assert self.sweep is not None
        stopped = outcome.failure is not None and outcome.failure.kind is FailureKind.STOPPED
        return stopped and gang.stop_by is None and self.sweep.stop is None

    def _member_over(self, gang: Gang, rank: Rank, outcome: Outcome, at: float) -> Commands:
        assert self.sweep is not None
        gang.end(rank, outcome, at)
        if gang.status is GangStatus.ENDED:
            return self._gang_over(self.sweep, gang, at)
        return self._stop_members(gang, at) if gang.cause is not None or gang.accomplished else []

    def _gang_over(self, sweep: Sweep, gang: Gang, at: float) -> Commands:
        told_by = at if gang.failed_at is None else gang.failed_at + self._word_timeout_s
        if at < told_by and sweep.awaits_word(gang):
            return []  # until the cluster's word comes, or the time for it is over
        trial = sweep.conclude(gang, elsewhere=elsewhere(self.agents.all(), sweep, at))
        if trial is None:
            return []
        cause = trial.failure
        if cause is not None and cause.kind is FailureKind.LOAD and not sweep.ever_entered:
            sweep.stop = sweep.stop or (cause.summary, Ending.UNLOADABLE)
        ended: Commands = [do.ConcludeTrial(trial.id), *self._conclude(sweep.clear_queue() if sweep.stop else [])]
        if reason := sweep.failing(trial):
            ended += self._stop(sweep.run, reason, Ending.FAILING, at + TIMEOUT_GRACE_S)
        return ended

    def _stop_members(self, gang: Gang, at: float) -> Commands:
        if gang.stop_by is not None:
            return []
        # The survivors of a gang may be stuck in an operation of the ring, and have nothing to finish.
        grace_s = 0.0 if gang.size > 1 and gang.cause is not None else KILL_GRACE_S
        gang.stop_by = at + grace_s + STOP_TIMEOUT_S
        return [do.StopMember(agent, member, grace_s) for agent, member in gang.live()]

    # ---- the run

    def _on_run_begun(self, event: on.RunStarted) -> Commands:
        if self.sweep is not None:
            raise ValueError(f"run {event.run} begins while run {self.sweep.run} is not over")
        self.last = sweep = recovered(event)
        leftovers = [self._sweep_up(trial) for trial in sweep.queue if trial.generation != NOT_FORMED]
        prepares = [command for agent in self.agents.all() for command in self._prepare(agent)]
        return [*leftovers, *prepares]

    def _sweep_up(self, trial: Trial) -> do.SweepCheckpoints:
        """Generations of drivers before are over, and nobody has tidied up after them."""
        return do.SweepCheckpoints(trial.id, tuple(trial.checkpoints.kept), Generation(trial.generation + 1))

    def _on_suggested(self, event: on.Suggested) -> Commands:
        if self.sweep is None or self.sweep.run != event.run:
            return []
        return self._conclude(self.sweep.add(event))

    def _conclude(self, trials: list[Trial]) -> Commands:
        return [do.ConcludeTrial(trial.id) for trial in trials]

    def _stop(self, run: RunId, reason: str, ending: Ending, kill_at: float) -> Commands:
        sweep = self.sweep
        if sweep is None or sweep.run != run:
            return []
        if sweep.stop is None:
            sweep.stop = (reason, ending)
        sweep.kill_at = min(kill_at, sweep.kill_at) if sweep.kill_at is not None else kill_at
        live = [pair for gang in sweep.gangs.values() for pair in gang.live()]
        advice = [do.AdviseMember(agent, member) for agent, member in live]
        return [*self._conclude(sweep.clear_queue()), *advice]

    def _advance(self, sweep: Sweep, at: float) -> Commands:
        """What follows from the state as it is now: gangs to form, trials to ask for, the end."""
        commands: Commands = []
        if sweep.kill_at is not None and at >= sweep.kill_at:
            for gang in sweep.gangs.values():
                gang.fail(Failure(FailureKind.STOPPED, f"ended: {sweep.stop[0] if sweep.stop else 'stopped'}"), at)
                commands += self._stop_members(gang, at)
        if sweep.stop is None:
            commands += self._form_gangs(sweep, at)
        if sweep.over:
            commands.append(self._end(sweep, at))
        return commands

    def _form_gangs(self, sweep: Sweep, at: float) -> Commands:
        """All or nothing, first come first served: a gang forms only when all of its agents are idle."""
        commands: Commands = []
        while found := next_gang(sweep, self.agents, lambda trial: self._size(sweep, trial, at), at):
            commands += self._form(sweep, *found, at)
        if sweep.wants_trials and (count := self._wanted(sweep, at)):
            sweep.ask(count)
            commands.append(do.Suggest(sweep.run, count))
        return commands

    def _wanted(self, sweep: Sweep, at: float) -> int:
        """Trials to ask the sampler for: as many as can start now, and some that the next free agents find waiting."""
        start = len(idle(self.agents, sweep, at)) // sweep.limits.size
        return start + sweep.limits.lookahead if start or sweep.gangs else 0

    def _size(self, sweep: Sweep, trial: Trial, at: float) -> int:
        """Members of a trial's gang: fewer than wanted when agents are lost for good, and the run allows it."""
        wanted, short_since = sweep.limits.size, sweep.short_since
        began = trial.generation != NOT_FORMED
        if sweep.limits.min_size is None or not began or short_since is None or at < short_since + SHRINK_AFTER_S:
            return wanted
        return max(sweep.limits.min_size, min(wanted, len(able(self.agents.all(), sweep))))

    def _form(self, sweep: Sweep, trial: Trial, agents: list[AgentState], at: float) -> Commands:
        ids = tuple(agent.id for agent in agents)
        roles = sweep.limits.roles[: len(agents)]
        newest, generation = trial.checkpoints.newest, Generation(trial.generation + 1)
        gang = Gang(sweep.run, trial.id, generation, ids, places(agents, roles), at, newest)
        sweep.start(trial, gang)
        commands: Commands = []
        for rank, agent in enumerate(agents):
            member = gang.member(Rank(rank))
            self.agents.occupy(agent, member)
            commands.append(do.StartMember(agent.id, member, gang.size, trial.params, newest))
        return commands

    def _end(self, sweep: Sweep, at: float) -> do.EndRun:
        sweep.ended = True
        sweep.ran_s += at - sweep.started_at
        reason, ending = sweep.stop or ("", Ending.COMPLETE)
        sweep.facts.append(RunEnded(ending=ending, reason=reason, seconds=at - sweep.started_at))
        failures = (trial.failure for trial in sweep.trials.values() if trial.failure)
        unloadable = (*failures, *sweep.health.unloadable.values())
        cause = next((each for each in unloadable if each.kind is FailureKind.LOAD), None)
        return do.EndRun(sweep.run, ending, reason, cause if ending is Ending.UNLOADABLE else None)

    # ---- deadlines

    def _on_tick(self, at: float) -> Commands:
        commands: Commands = []
        slept_s = self._leases.woke(at)
        if slept_s and self.sweep is not None:
            self.sweep.postpone(slept_s)
        for agent in self._leases.expired(at):
            commands += self._drop(agent, "no sign of life before its lease ran out", at)
        if self.sweep is None:
            return commands
        for gang in list(self.sweep.gangs.values()):
            commands += self._check_gang(self.sweep, gang, at)
        return commands + self._check_run(self.sweep, at)

    def _check_gang(self, sweep: Sweep, gang: Gang, at: float) -> Commands:
        if gang.status is GangStatus.ENDED:
            return self._gang_over(sweep, gang, at)
        if gang.stop_by is not None:
            if at < gang.stop_by:
                return []
            reason = f"its member did not end within {STOP_TIMEOUT_S:g} s of being stopped"
            return [command for agent, _ in gang.live() for command in self._drop(agent, reason, at)]
        limit, blamed = sweep.limits.trial_timeout_s, list[do.Command]()
        if gang.running_since is not None and limit is not None and at >= gang.running_since + limit:
            failure = Failure(FailureKind.TIMEOUT, f"ran longer than trial_timeout ({limit:g} s) and was stopped")
            gang.fail(failure, at)
        elif (late := not_joined(gang, sweep.limits.join_timeout_s, at)) is not None:
            failure, _, rank = late
            blamed = self._blame(gang, rank, failure, at) if gang.status is GangStatus.RESERVING else []
            gang.fail(*late)
        elif (stuck := hang(gang, sweep.limits, at)) is not None:
            gang.fail(*stuck)
        elif gang.follower is not None and gang.failed_at is not None and at >= gang.failed_at + CAUSE_TIMEOUT_S:
            gang.cause = gang.follower
        return [*blamed, *self._stop_members(gang, at)] if gang.cause is not None else []

    def _check_run(self, sweep: Sweep, at: float) -> Commands:
        limits = sweep.limits
        if limits.timeout_s is not None and sweep.stop is None and at >= sweep.started_at + limits.timeout_s:
            reason = f"the run's timeout ({limits.timeout_s:g} s) is over"
            return self._stop(sweep.run, reason, Ending.STOPPED, at + TIMEOUT_GRACE_S)
        end = hopeless(self.agents.all(), sweep, at)
        return self._stop(sweep.run, *end, at) if end is not None else []
