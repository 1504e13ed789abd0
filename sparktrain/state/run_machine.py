"""The decisions about one run: its members' messages, which gangs form and end, its deadlines and its end.

`Machine` passes each event to one method here, and calls `advance` after it. A method changes the sweep, its trials
and gangs, and returns commands; `advance` then draws what follows from the state as it is, whatever the event was:
rules and goals that are reached, members that restart alone, gangs that can form, cases to ask the sampler for, the
end of the run. Nothing here has a clock, a thread or a store: `at` is the time, and each fact becomes a record by
`Sweep.take_facts`, which `Machine` puts before the commands. So the same events lead to the same decisions, under a
driver that takes over too.

The invariants: a message counts only from the agent that has this very incarnation of the member, and everything else
is `Refused`; a gang forms with all of its agents or not at all; a trial has at most one gang, and another one only
after the agents of the first have reported its end or are lost. Deadlines are checked at each tick: the start of a
gang, a hang, a trial's timeout, the 15 s in which a stopped member must have ended, and those of the run.
"""

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Generation, Member, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.allocation.claims import Claim, claim_of, lacking_members
from sparktrain.state.checkpoint_parts import PartsDecision
from sparktrain.state.deadlines import GangRounds, hang, not_joined
from sparktrain.state.ending import Ending
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang, GangCheckpoints, GangStatus, settled_parts
from sparktrain.state.gangs.gang_progress import GangAttendance, Pace
from sparktrain.state.health import NEVER_ENTERED
from sparktrain.state.losses.adoption import Adoptions, swept
from sparktrain.state.losses.draining import Draining
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.lost_agents import LostAgents
from sparktrain.state.losses.member_restart import MemberRestarts
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.losses.prepared import PreparedProcesses
from sparktrain.state.losses.seat_changes import SeatChanges
from sparktrain.state.outcome import Failure, FailureKind, Outcome, lost
from sparktrain.state.placement import next_gang, places
from sparktrain.state.prospects import accepts, case_demand, elsewhere, failing, hopeless, room, useful
from sparktrain.state.pruning.case_closing import CaseClosing
from sparktrain.state.pruning.pauses import Pauses
from sparktrain.state.seats.gang_facts import FactSources
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import NOT_FORMED, Trial

CAUSE_TIMEOUT_S = 1.0
"""How long a failure that may follow from another member's waits for a report of that one."""

TIMEOUT_GRACE_S = 5.0
"""From `ctx.should_stop()` to the end of a trial that is pruned, or of all once the run's timeout is over, or too many
trials have failed."""

Commands = list[do.Command]


def refused(agent: AgentId, member: Member) -> do.Refused:
    """A message about `member` came from an agent that may not send it."""
    return do.Refused(agent, f"{member} is not this agent's member, or is of an older generation")


class RunMachine:
    """All decisions about a run that has started and is not over, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, reason_timeout_s: float) -> None:
        """See `Machine` for `reason_timeout_s`."""
        self.sweep = sweep
        self._agents = agents
        self._reason_timeout_s = reason_timeout_s
        self._adoptions = Adoptions(sweep, agents)
        self._pauses = Pauses(sweep)
        self._case_closing = CaseClosing(sweep)
        self._lost = LostAgents(sweep)
        self._memory = MemoryTier(sweep)
        run = FactSources(sweep, agents, self._memory.held)
        self._restarts = MemberRestarts(run, self._memory)
        self._prepared = PreparedProcesses(sweep, agents, self._memory)
        self._handovers = Handovers(run, self._prepared)
        self._changes = SeatChanges(run, self._handovers)
        self._draining = Draining(run, self._changes)
        self._rounds = GangRounds()

    # ---- agents

    def prepare(self, agent: AgentState) -> Commands:
        """The agent is this run's from now on, and gets its code, unless it has that."""
        lacks_code = self._agents.prepare(agent, self.sweep.run)
        if agent.notice:
            self._draining.announce(agent)
        return [do.PrepareAgent(agent.id, self.sweep.run)] if lacks_code else []

    def welcome(self, agent: AgentState) -> Commands:
        """The agent has joined: it gets the run's code, unless it holds a member of a gang that may continue."""
        ends = self._adoptions.offer(agent)
        return [] if ends is None else [*ends, *self.prepare(agent)]

    def forget(self, agent: AgentId) -> None:
        """The agent is another run's now, or lost to another one: what it holds in memory goes with its next member."""
        self._memory.held.lost(agent)

    def accepts(self, agent: AgentState) -> bool:
        """The run could use the agent."""
        return not agent.notice and accepts(agent, self.sweep)

    def claim(self) -> Claim:
        """How many agents more the run could use."""
        lacking = lacking_members(self.sweep) if self.sweep.limits.size > 1 else 0
        return claim_of(self.sweep, self._agents.busy_count(self.sweep.run), lacking)

    def on_agent_gone(self, agent_id: AgentId, reason: str, at: float) -> Commands:
        """The agent is lost, and its member with it."""
        agent = self._agents.remove(agent_id)
        self._memory.held.lost(agent_id)
        self._adoptions.gone(agent_id)
        if agent is None or agent.member is None:
            return []
        if (withdrawn := self._handovers.gone(agent_id, agent.member)) is not None:
            return withdrawn
        gang = self.sweep.gangs.get(agent.member.trial)
        if gang is None:
            return []
        self._lost.lose(agent, agent.member)
        # It was announced: no retry is spent, also where the agent was gone before its member could move.
        announced = self._lost.announced.get(agent.id)
        outcome = lost(agent.host, reason if announced is None else f"{reason}; {announced.text}")
        if announced is not None and outcome.failure is not None:
            outcome = replace(outcome, failure=replace(outcome.failure, loss=announced.loss))
        return self._member_over(gang, agent.member.rank, outcome, at)

    def on_loss_explained(self, event: on.LossExplained) -> Commands:
        """The cluster has reported why an agent was lost."""
        gang = self._lost.explain(event.agent, event.loss, event.reason)
        return self._gang_over(gang, event.at) if gang is not None and gang.status is GangStatus.ENDED else []

    def _drop(self, agent: AgentId, reason: str, at: float) -> Commands:
        return [do.DropAgent(agent, reason), *self.on_agent_gone(agent, reason, at)]

    # ---- members

    def on_message(self, agent: AgentId, message: m.MemberMessage, at: float) -> Commands:
        """A message about a member; refused unless the member is the agent's, in its gang's current generation."""
        message = self._agents.renamed(agent, message)
        gang = self._gang_of(agent, message.member)
        if gang is None:
            prepared = self._handovers.on_message(agent, message, at)
            return [refused(agent, message.member)] if prepared is None else prepared
        match message:
            case m.MemberReported():
                return self._on_reported(gang, agent, message, at)
            case m.MemberStepped():
                pace = Pace(message.step, at, message.steps_per_s, message.training, message.times, message.called)
                gang.step(message.member.rank, pace)
                self.sweep.time_steps(gang, at)
                return []
            case m.MemberAwaits(feed=feed, waiting=waiting):
                gang.progress.await_rows(message.member.rank, feed, waiting, at)
                return []
            case m.MemberStands():
                return self._on_stands(gang, message, at)
            case m.MemberDoubts(ranks=ranks):
                doubted = [gang.agents[rank] for rank in ranks if 0 <= rank < gang.size]
                silent = [agent for entry in doubted for agent in self._agents.doubt(entry, at)]
                return [do.Send(agent, m.AskHeartbeat()) for agent in silent]
            case m.MemberAsked(member=member) if member.rank == CHIEF:
                return [do.AskSampler(agent, member, message.number, message.question)]
            case m.MemberAsked():
                return [refused(agent, message.member)]
            case m.CheckpointStored():
                return self._on_checkpoint(gang, agent, message, at)
            case m.CheckpointFailed():
                return self._on_checkpoint_failed(gang, agent, message)
            case m.PartStored():
                return self._on_part(gang, agent, message)
            case m.SnapshotHeld():
                return self._on_held(gang, agent, message, at)
            case m.MemberShared():
                return self._on_shared(gang, agent, message)
            case m.MemberStarted():
                return self._on_started(gang, agent, message, at)
            case m.MemberEnded():
                return self._on_ended(gang, agent, message, at)

    def _gang_of(self, agent: AgentId, member: Member) -> Gang | None:
        """The gang of `member`, unless the member is of an older generation or incarnation, or another agent's."""
        gang = self.sweep.gangs.get(member.trial) if self.sweep.run == member.run else None
        return gang if gang is not None and gang.has_member(agent, member) else None

    def _on_stands(self, gang: Gang, message: m.MemberStands, at: float) -> Commands:
        """Whatever of it has changed: each part counts only where the gang waits for it."""
        rank = message.member.rank
        standing = message.standing
        before = gang.attendance.stand(rank, standing)
        commands = self._on_reserved(gang, rank, standing.port) if standing.port else []
        # At once: a member that cannot change its ring for a process heals again after its next step.
        if before.heals and not standing.heals:
            commands += self._handovers.check(at)
        return [
            *commands,
            *self._handovers.left(gang, message, at),
            *self._restarts.healed(gang, at),
            *self._delete(gang),
        ]

    def _on_reserved(self, gang: Gang, rank: Rank, port: int) -> Commands:
        if (again := self._restarts.reserved(gang, rank, port)) is not None:
            return again
        if not gang.reserve(rank, port) or gang.stop.by is not None:
            return []
        return [do.Send(agent, seating) for agent, seating in gang.seatings()]

    def _on_shared(self, gang: Gang, sender: AgentId, message: m.MemberShared) -> Commands:
        if gang.status not in (GangStatus.CONNECTING, GangStatus.RUNNING):
            return [refused(sender, message.member)]
        present = [*gang.live(), *self._handovers.listeners(gang)]
        peers = [(agent, member) for agent, member in present if member != message.member]
        return [do.Send(agent, m.PeerShared(member, message.key, message.value)) for agent, member in peers]

    def _on_started(self, gang: Gang, agent_id: AgentId, message: m.MemberStarted, at: float) -> Commands:
        if (agent := self._agents.get(agent_id)) is not None:
            self._agents.entered[agent.slot] += 1
        returned = self.sweep.enter(gang, message.member.rank, agent, at, trains=message.trains)
        commands = [*self._delete(gang), *self._judged(gang, agent_id, message.member, -1)]
        # It had no process when the others were advised.
        if returned and (self.sweep.stop is not None or gang.stop.advised_until is not None):
            commands.append(do.Send(agent_id, m.Advise(message.member)))
        return [*commands, *(self._stop_members(gang, at) if gang.accomplished else [])]

    def _on_checkpoint(self, gang: Gang, agent: AgentId, message: m.CheckpointStored, at: float) -> Commands:
        checkpoint = message.checkpoint
        if message.member.rank != CHIEF or checkpoint.generation != gang.generation:
            return [refused(agent, message.member)]
        trial = self.sweep.trials[gang.trial]
        newest = trial.checkpoints.newest
        writers = gang.live() if gang.checkpoints.parts.complete(checkpoint.step) else [(agent, message.member)]
        # Held back until the record is durable: a checkpoint counts for its agents only when a driver that takes over
        # would resume from it.
        acks = [do.Send(writer, m.AckCheckpoint(member, checkpoint), durable=True) for writer, member in writers]
        if trial.takeover.reason:  # another trial's state replaces this one's: the members need not know
            return [*acks, do.DeleteCheckpoints(gang.trial, (checkpoint,))]
        if checkpoint == gang.checkpoints.base:  # the driver before has recorded it, and its agent does not know that
            return [*acks]
        # Gangs resume from the last one that was acknowledged, so their steps only grow.
        if newest is not None and checkpoint.step <= newest.step:
            return [do.Refused(agent, f"checkpoint of step {checkpoint.step} is not newer than that of {newest.step}")]
        gang.checkpoints.doomed += self.sweep.acknowledge(gang, checkpoint)
        ends = self._changes.stored(gang, at)
        return [*acks, *self._delete(gang), *(self._stop_members(gang, at) if ends else [])]

    def _on_part(self, gang: Gang, agent: AgentId, message: m.PartStored) -> Commands:
        # Each process of a rank has a folder of its own, and a manifest names files of one folder.
        if gang.absences.incarnations:
            problem = "a member of the gang has restarted alone: parts of its members make no checkpoint any more"
            decision = PartsDecision(given_up=message.step, problem=problem, late=True)
            return settled_parts(gang, message.member.rank, message.step, [decision])
        decisions = gang.checkpoints.parts.add(message.member.rank, message.step, message.part, gang.size)
        if decisions is None:
            return [refused(agent, message.member)]
        self.sweep.lacks_part(gang, decisions)
        return settled_parts(gang, message.member.rank, message.step, decisions)

    def _delete(self, gang: Gang) -> Commands:
        """Delete checkpoints that no longer count, unless a member that restarts alone may read one of them."""
        if not gang.checkpoints.doomed or gang.in_state(SeatState.JOINING):
            return []
        doomed = tuple(gang.checkpoints.doomed)
        gang.checkpoints.doomed = []
        return [do.DeleteCheckpoints(gang.trial, doomed)]

    def _on_checkpoint_failed(self, gang: Gang, agent: AgentId, message: m.CheckpointFailed) -> Commands:
        rank = message.member.rank
        if not message.part:
            if rank != CHIEF:
                return [refused(agent, message.member)]
            self.sweep.unsaved(gang, message.step, message.problem)
            return []
        subject = f"rank {rank} on {gang.places[rank].host}"
        if message.returned:
            decisions = gang.checkpoints.parts.end(rank, message.step, subject)
            self.sweep.lacks_part(gang, decisions)
            return settled_parts(gang, rank, message.step, decisions)
        problem = f"{subject} could not store its part: {message.problem}"
        # The others report it again once they have heard of it: the first one alone has the cause.
        if decisions := gang.checkpoints.parts.fail(rank, message.step, problem):
            self.sweep.unsaved(gang, message.step, problem)
        return settled_parts(gang, rank, message.step, decisions)

    def _on_held(self, gang: Gang, agent: AgentId, message: m.SnapshotHeld, at: float) -> Commands:
        if not self._memory.keep(gang, agent, message):
            return [refused(agent, message.member)]
        rank = message.member.rank
        ends = message.paused and (self._changes.held(gang, rank, at))
        return self._stop_members(gang, at) if ends else []

    def _on_reported(self, gang: Gang, agent: AgentId, message: m.MemberReported, at: float) -> Commands:
        rank = message.member.rank
        if not message.reports:
            return [refused(agent, message.member)]
        gang.progress.reported[rank] = Pace(message.reports[-1].step, at)
        if rank == CHIEF:
            self.sweep.report(gang, message.reports, at)
        step = message.reports[-1].step
        return [do.RecordReports(message.member, message.reports), *self._judged(gang, agent, message.member, step)]

    def _judged(self, gang: Gang, agent: AgentId, member: Member, step: int) -> Commands:
        """Send the chief what the rules of the run make of its reports up to `step`: it may wait for that."""
        if not self.sweep.spec.judges(member.rank):
            return []
        trial = self.sweep.trials[gang.trial]
        # The first look at `ctx.should_stop()` after a report waits for this: without it a loop trained an epoch too
        # much.
        return [do.Send(agent, m.Judged(member, step, self.sweep.pruned.next_step(trial), trial.stopping))]

    def _on_ended(self, gang: Gang, agent_id: AgentId, message: m.MemberEnded, at: float) -> Commands:
        rank = message.member.rank
        outcome = message.outcome
        if self._unasked(gang, rank, outcome):
            return self._drop(agent_id, "it ended its member without a request", at)
        agent = self._agents.get(agent_id)
        if agent is not None and agent.member == message.member:
            self._agents.release(agent)
        blamed = self._blame(gang, rank, outcome.failure, at) if outcome.failure is not None else []
        return [*blamed, *self._member_over(gang, rank, outcome, at)]

    def _blame(self, gang: Gang, rank: Rank, failure: Failure, at: float) -> Commands:
        """A member has failed: where it had not entered the training function, its agent backs off."""
        agent = self._agents.get(gang.agents[rank])
        early = rank not in gang.attendance.entered and gang.stop.by is None and failure.kind in NEVER_ENTERED
        if agent is None or not early or not self.sweep.health.failed(agent, gang.trial, failure, at):
            return []
        return [do.ExcludeAgent(agent.id, self.sweep.health.why(agent))]

    def _unasked(self, gang: Gang, rank: Rank, outcome: Outcome) -> bool:
        """The agent ended its member for a reason of its own: it is about to leave, and must get no other member."""
        stopped = outcome.failure is not None and outcome.failure.kind is FailureKind.STOPPED
        is_requested = gang.stop.by is not None or gang.state_of(rank) is SeatState.LEAVING
        return stopped and not is_requested and self.sweep.stop is None

    def _member_over(self, gang: Gang, rank: Rank, outcome: Outcome, at: float) -> Commands:
        alone = self._restarts.lost(gang, rank, outcome.failure, at)
        if alone is not None:
            return [*alone, *self._handovers.lost(gang, rank, at)]
        gang.end(rank, self._restarts.outcome(gang, rank, outcome), at)
        if gang.status is GangStatus.ENDED:
            return self._gang_over(gang, at)
        self._restarts.needed(gang, rank, at)
        return self._stop_members(gang, at) if gang.fault.cause is not None or gang.accomplished else []

    # ---- gangs

    def _gang_over(self, gang: Gang, at: float) -> Commands:
        reason_by = at if gang.fault.failed_at is None else gang.fault.failed_at + self._reason_timeout_s
        if at < reason_by and self._lost.awaits_reason(gang):
            return []  # until the cluster reports the reason, or the time for it is over
        deleted = [*self._delete(gang), *self._handovers.end(gang, at), *self._memory.ended(gang)]
        self.sweep.goals.gang_ended(gang, at)
        # Until some member has entered the function, its failure may be the function's or the host's; another host
        # would show which. The look costs a list of all agents.
        doubtful = not self.sweep.ever_entered and gang.fault.first is not None
        trial = self.sweep.conclude(gang, elsewhere=doubtful and elsewhere(self._agents, self.sweep, at))
        if trial is None:
            return deleted
        cause = trial.failure
        if cause is not None and cause.kind is FailureKind.LOAD and not self.sweep.ever_entered:
            self.sweep.request_stop(cause.summary, Ending.UNLOADABLE)
        ended: Commands = [
            *deleted,
            *self._conclude([trial, *(self.sweep.clear_queue() if self.sweep.stop else [])]),
        ]
        if reason := failing(self.sweep, trial):
            ended += self.stop(reason, Ending.FAILING, at + TIMEOUT_GRACE_S)
        return ended

    def _stop_members(self, gang: Gang, at: float) -> Commands:
        if gang.stop.by is not None:
            return []
        # The others of one that is lost may be stuck in an operation of the ring, and have nothing to finish. Where one
        # hangs, all logs are to show where.
        rank = None if gang.fault.cause is None else gang.fault.cause.rank
        is_lost = rank is not None and all(member.rank != rank for _, member in gang.live())
        grace_s = 0.0 if gang.stop.continues or is_lost else timeouts.KILL_GRACE_S
        gang.stop.by = at + grace_s + timeouts.END_S
        for rank in gang.in_state(SeatState.EMPTY, SeatState.VACANT):
            gang.end(rank, Outcome(0.0, failure=Failure(FailureKind.STOPPED, "lost, and not restarted")), at)
        if gang.status is GangStatus.ENDED:
            return self._gang_over(gang, at)
        stops: Commands = [do.Send(agent, m.StopMember(member, grace_s)) for agent, member in gang.live()]
        return [*stops, *self._handovers.end(gang, at)]

    def _adopt(self, at: float) -> Commands:
        """Gangs of an earlier driver continue, or their trials are queued again."""
        adopted = self._adoptions.advance(at)
        commands = adopted.commands
        for gang, rank, outcome in adopted.lost:
            commands += self._member_over(gang, rank, outcome, at)
        for agent in adopted.freed:
            commands += self.prepare(agent)
        ended = [*adopted.given_up, *(self.sweep.clear_queue() if self.sweep.stop else [])]
        return [*commands, *self._conclude(ended)]

    def _form_gangs(self, at: float) -> Commands:
        """All or nothing, first come first served: a gang forms only when all of its agents are idle."""
        commands: Commands = []
        size = self.sweep.limits.size
        while room(self.sweep, self._agents) >= size and (
            seating := next_gang(self.sweep, self._agents, self._memory.held, at)
        ):
            commands += self._form(*seating, at)
        if self.sweep.wants_trials and (count := case_demand(self.sweep, self._agents, at)):
            self.sweep.ask(count)
            commands.append(do.Suggest(self.sweep.run, count))
        return commands

    def _form(self, trial: Trial, agents: list[AgentState], at: float) -> Commands:
        ids = tuple(agent.id for agent in agents)
        roles = self.sweep.limits.roles[: len(agents)]
        newest = trial.checkpoints.newest
        generation = Generation(trial.generation + 1)
        gang = Gang(
            run=self.sweep.run,
            trial=trial.id,
            generation=generation,
            agents=ids,
            places=places(agents, roles),
            attendance=GangAttendance(at),
            checkpoints=GangCheckpoints(newest),
        )
        bases = self._memory.form(trial, gang)
        self.sweep.start(trial, gang)
        commands: Commands = []
        for rank, agent in enumerate(agents):
            member = gang.member(Rank(rank))
            self._agents.occupy(agent, member)
            base = bases[rank]
            grows = gang.size < self.sweep.limits.size
            start = do.PlaceMember(agent.id, member, gang.size, trial.params, newest, memory=base, may_grow=grows)
            commands.append(start)
        return commands

    # ---- the run

    def leftovers(self) -> Commands:
        """What follows from the records of drivers before.

        Trials that they pruned and that had not ended are concluded; what older generations left of trials that will
        form a gang again is deleted, for their drivers are gone.
        """
        formed = [trial for trial in self.sweep.queue if trial.generation != NOT_FORMED]
        return [
            *self._conclude(self.sweep.settled),
            *(swept(self.sweep, trial) for trial in formed),
        ]

    def on_suggested(self, event: on.Suggested) -> Commands:
        """The sampler has answered."""
        return self._conclude(self.sweep.add(event))

    def on_answered(self, event: on.QuestionAnswered) -> Commands:
        """The sampler has answered a member, which may be lost meanwhile: the trial keeps its parameters."""
        recorded = self.sweep.answered(event)
        if self._gang_of(event.agent, event.member) is None:
            return []
        answer = m.AnswerMember(event.member, event.number, event.answer, event.problem)
        return [do.Send(event.agent, answer, durable=recorded)]

    def _conclude(self, trials: list[Trial]) -> Commands:
        return [do.ConcludeTrial(trial.id, self.sweep.cases.is_partial(trial.id)) for trial in trials]

    def stop(self, reason: str, ending: Ending, kill_at: float) -> Commands:
        """Start nothing new, advise members to stop, and end at `kill_at` what still runs."""
        self.sweep.request_stop(reason, ending, kill_at)
        advice = [command for gang in self.sweep.gangs.values() for command in self._advice(gang)]
        return [*self._conclude(self.sweep.clear_queue()), *advice]

    def on_trial_stop(self, event: on.TrialStopAsked) -> Commands:
        """The user stops one trial; `advance` advises the members of one that runs."""
        return self._conclude(self.sweep.stop_trial(event.trial, event.reason))

    def on_drain(self, event: on.DrainAsked) -> Commands:
        """The user drains a host or an agent: the members there pause where they can."""
        self._draining.decide(event)
        return self._draining.advance(event.at)

    def on_notice(self, agent: AgentState, at: float) -> Commands:
        """Something has announced that the agent leaves: as `on_drain`, for this agent."""
        self._draining.announce(agent)
        return self._draining.advance(at)

    def _advice(self, gang: Gang) -> Commands:
        return [do.Send(agent, m.Advise(member)) for agent, member in gang.live()]

    def _stop_trial(self, trial: Trial, at: float) -> Commands:
        """A rule or the user has stopped or paused the trial before its end. One that waits for a gang meets its pause
        once it runs."""
        gang = self.sweep.gangs.get(trial.id)
        if gang is not None:
            return self._advise(gang, at)
        if trial.pruning is None or trial.status.final:
            return []
        self.sweep.prune(trial)
        return self._conclude([trial])

    def _advise(self, gang: Gang, at: float) -> Commands:
        """The gang's trial is pruned: its members may return what they have."""
        if gang.stop.by is not None or gang.status is GangStatus.ENDED:
            return []
        gang.stop.advised_until = at + TIMEOUT_GRACE_S
        return self._advice(gang)

    def _take_over(self, trial: Trial, at: float) -> Commands:
        """The trial continues from another one's checkpoint once its gang has ended; its own are not needed."""
        doomed = tuple(self.sweep.exploits.unused(trial.takeover.dropped))
        trial.takeover.dropped = []
        deleted: Commands = [do.DeleteCheckpoints(trial.id, doomed)] if doomed else []
        return [*self._advise(self.sweep.gangs[trial.id], at), *deleted]

    def advance(self, at: float) -> Commands:
        """What follows from the state as it is now: gangs to form, trials to ask for, the end."""
        commands: Commands = []
        if self.sweep.kill_at is not None and at >= self.sweep.kill_at:
            for gang in list(self.sweep.gangs.values()):
                reason = self.sweep.stop.reason if self.sweep.stop else "stopped"
                gang.fail(Failure(FailureKind.STOPPED, f"ended: {reason}"), at)
                commands += self._stop_members(gang, at)
        if self.sweep.awaited:
            commands += self._adopt(at)
        # Closed cases first: a trial that is closed here must not get a gang below.
        commands += self._conclude(self._case_closing.settle())
        for trial in self.sweep.pruned.take_running():
            commands += self._stop_trial(self.sweep.trials[trial], at)
        for trial in self.sweep.exploits.take_running():
            commands += self._take_over(self.sweep.trials[trial], at)
        self._pauses.promote()
        commands += self._conclude(self._pauses.resolve())
        if self.sweep.stop is None and (reached := self.sweep.goals.reached()) is not None:
            commands += self.stop(*reached, at + TIMEOUT_GRACE_S)
        if self.sweep.stop is None:
            commands += [*self._restarts.place(at), *self._form_gangs(at), *self._changes.on_event(at)]
        if self.sweep.over and not self._prepared.ending:
            commands.append(self.sweep.end(at))
        return commands

    # ---- deadlines

    def on_tick(self, at: float) -> Commands:
        """Time has passed."""
        commands: Commands = []
        for gang in self._rounds.due(self.sweep.gangs):
            commands += self._check_gang(gang, at)
        commands += [*self._handovers.check(at), *self._changes.on_tick(at)]
        for agent in self._prepared.overdue(at):
            reason = f"its process, which no gang needs, did not end within {timeouts.LEFT_S:g} s"
            commands += self._drop(agent, reason, at)
        return [*commands, *self._draining.advance(at), *self._check_run(at)]

    def _check_gang(self, gang: Gang, at: float) -> Commands:
        if gang.status is GangStatus.ENDED:
            return self._gang_over(gang, at)
        if gang.stop.by is not None:
            if at < gang.stop.by:
                return []
            reason = f"its member did not end within {timeouts.END_S:g} s of being stopped"
            return [command for agent, _ in gang.live() for command in self._drop(agent, reason, at)]
        if gang.stop.advised_until is not None and at >= gang.stop.advised_until:
            return self._stop_members(gang, at)
        if (hung := self._restarts.overdue(gang, at)) is not None:
            return self._drop(gang.agents[hung], f"its member hangs, and did not end within {timeouts.END_S:g} s", at)
        limit = self.sweep.spec.trial_timeout_s
        blamed = list[do.Command]()
        running_since = gang.attendance.running_since
        if running_since is not None and limit is not None and at >= running_since + limit:
            failure = Failure(FailureKind.TIMEOUT, f"ran longer than trial_timeout ({limit:g} s) and was stopped")
            gang.fail(failure, at)
        elif (late := not_joined(gang, self.sweep.limits.join_timeout_s, at)) is not None:
            failure, _, rank = late
            blamed = self._blame(gang, rank, failure, at) if gang.status is GangStatus.RESERVING else []
            gang.fail(*late)
        elif (stuck := hang(gang, self.sweep.spec, at)) is not None:
            if alone := self._restarts.hangs(gang, stuck):
                return alone
            gang.fail(*stuck)
        else:
            # A ring that lost its other end reports first, and the member that died a moment later: wait for the better
            # cause.
            gang.fault.settle(at, CAUSE_TIMEOUT_S)
        return [*blamed, *self._stop_members(gang, at)] if gang.fault.cause is not None else []

    def _check_run(self, at: float) -> Commands:
        timeout_s = self.sweep.spec.timeout_s
        if timeout_s is not None and self.sweep.stop is None and at >= self.sweep.started_at + timeout_s:
            reason = f"the run's timeout ({timeout_s:g} s) is over"
            return self.stop(reason, Ending.STOPPED, at + TIMEOUT_GRACE_S)
        spent = self.sweep.goals.spent(self.sweep.gangs.values(), at) if self.sweep.stop is None else None
        if spent is not None:
            return self.stop(*spent, at + TIMEOUT_GRACE_S)
        self.sweep.shortage.count(useful(self._agents, self.sweep), at)
        end = hopeless(self._agents, self.sweep, at)
        return self.stop(*end, at) if end is not None else []
