"""The coordinator: one event loop that folds each event into `state/` and performs the commands that come out.

Events come from agents (`agent_server`), from the clock (a tick each 0.1 s), from the user, and from tasks beside the
loop such as the sampler's. `feed` folds them one at a time, in their order; the state machine decides, and answers
with commands. Commands go through the run's `journal_writer`, which performs a command only once the records before
it are durable. So a driver that takes over knows everything that any agent has acted on.

Any number of runs may be on at the same time. The machine names the run of each command; all else that a run has here
is in its `ActiveRun`: journal, uploads, sampler, display, error. An error in one run ends that run alone.

The coordinator decides nothing, and never blocks: what waits for a store, Spark or user code runs in a thread
(`aside`), and comes back as an event. Deadlines are the machine's, checked at each tick. An error in a decision ends
all runs and the coordinator, because the state may be half changed: the next driver starts from the journal. All
methods belong to the loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial

from msgspec.structs import replace

from sparktrain.base.boundary import message_of
from sparktrain.base.clock import Clock
from sparktrain.base.garbage import uncollected
from sparktrain.base.ids import AgentId, Member, RunId, TrialId
from sparktrain.base.spans import span
from sparktrain.base.threads import aside
from sparktrain.cluster.announced_losses import AnnouncedLosses
from sparktrain.cluster.executor_loss import explain_failure
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.driver.active_run import ActiveRun
from sparktrain.driver.agent_server import LEASE_S, Server
from sparktrain.driver.drain_events import AnnouncedDepartures, drain_event
from sparktrain.driver.progress_builder import Tally, progress_of
from sparktrain.driver.run_request import RunOutcome, RunRequest
from sparktrain.driver.sampler_thread import SETTLE_TIMEOUT_S
from sparktrain.driver.settled_messages import SettledMessages
from sparktrain.errors import (
    BugError,
    EnvironmentMismatchError,
    PoolError,
    ProtocolError,
    SamplerError,
    SparktrainError,
)
from sparktrain.protocol import messages as m
from sparktrain.rundir import checkpoints
from sparktrain.runs.additions.drain_requests import pending_drains
from sparktrain.runs.history import observation
from sparktrain.runs.trial_result import result_of
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.ending import Ending
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.run_machine import Commands
from sparktrain.state.trial import Trial
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.usercode.preload import shared

TICK_S = 0.1
"""Interval at which deadlines are checked and progress is shown."""

TOKENS_S = 0.5
"""Interval at which a run checks whether to renew its delegation tokens."""

DRAINS_S = 2.0
"""Interval at which a run looks for what users ask it to drain, in a folder, and for a while after a request."""
REMOTE_DRAINS_S = 10.0
"""The same in any other store, where each look is a request to a service that other runs use too."""
ATTENTIVE_S = 60.0
"""How long a run looks more often after a request: another one may follow, or its cancellation."""

OUTLOOK_S = 5.0
"""Interval at which the cluster is asked what agents wait for."""

WORDS_S = 1.0
"""Interval at which Spark is asked why agents were lost, until it reports a reason."""
LOSS_REASON_TIMEOUT_S = 20.0
"""How long Spark may take to report the reason before a trial is given up."""

STOPPED_SETTLE_S = 3.0
INTERRUPTED_SETTLE_S = 1.0
"""How long a run that was stopped waits for a sampler that is in one call; after Ctrl-C the user waits, too."""

logger = logging.getLogger("sparktrain")


class Coordinator:
    """Owns the state of one pool of agents and of its runs."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        outlook: Callable[[], str] = str,
        loss_reasons: TaskFailures | None = None,
        outlook_s: float = OUTLOOK_S,
        announcements: AnnouncedLosses | None = None,
    ) -> None:
        """`outlook` reports each `outlook_s` seconds why agents do not come, `loss_reasons` why they were lost, and
        `announcements` which will be, where that can be known; all may block, and are called in threads of their own.
        """
        self._announcements = announcements
        self._outlook_s = outlook_s
        self._server = server
        self._outlook = outlook
        self._loss_reasons = loss_reasons
        self._clock = clock
        self._machine = Machine(LEASE_S, 0.0 if loss_reasons is None else LOSS_REASON_TIMEOUT_S)
        self._inbox: deque[on.Event] = deque()
        self._folding = False
        self._runs: dict[RunId, ActiveRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled = SettledMessages()
        self._broken: BaseException | None = None
        """Why there are no more ticks or decisions, without which no run ends."""

    # ---- life

    async def open(self) -> tuple[str, int]:
        """Listen for agents; returns the address that they can connect to."""
        self._background(self._tick(), self._break)
        self._background(self._server.keep_certificates())
        if self._loss_reasons is not None:
            self._background(self._explain_losses(self._loss_reasons))
        if self._announcements is not None:
            departures = AnnouncedDepartures(self._announcements, self._server, self._clock, self.feed)
            self._background(departures.watch(self._machine.agents))
        self._server.on_feed = self._on_feed
        self._server.settled = self._settled.of
        return await self._server.open(self._receive, self._on_stored, self._on_upload)

    async def close(self, reason: str) -> None:
        """Stop all runs, dismiss every agent and stop listening; waits a few seconds for them to leave."""
        self.stop(reason, 0.0)  # or trials that dismissed agents end would count as lost
        await self._server.dismiss(reason)
        await self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def dismiss(self, reason: str) -> None:
        """Have all agents leave, and keep listening for others; waits a few seconds for them."""
        await self._server.dismiss(reason)

    async def end_batch(self, batch: int, reason: str) -> None:
        """Have the agents of a batch leave, and refuse those of it that still join; waits a few seconds for them."""
        await self._server.end_batch(batch, reason)

    @property
    def agents_alive(self) -> int:
        """Agents that have joined and are not lost."""
        return len(self._machine.agents)

    def entered(self, slots: Iterable[int]) -> int:
        """How often a member has entered the training function on agents of `slots`. In any thread."""
        return sum(self._machine.agents.entered[slot] for slot in slots)

    @property
    def joined(self) -> dict[str, str] | None:
        """Versions that the newest agent has; None before the first one. In any thread.

        Raises EnvironmentMismatchError when one with other versions came, and none with the driver's.
        """
        if self._server.joined is None and self._server.mismatch is not None:
            raise EnvironmentMismatchError(self._server.mismatch)
        return self._server.joined

    @property
    def refused(self) -> str | None:
        """Why agents were refused for their versions, as long as none with the driver's versions has joined. In any
        thread."""
        return self._server.refused

    @property
    def broken(self) -> bool:
        """Its ticks or its decisions have failed, and it can only close."""
        return self._broken is not None

    # ---- runs

    async def run(self, work: RunRequest) -> RunOutcome:
        """Run all trials of `work`; returns when each is final and its files are stored.

        Other runs may be on. Raises PoolError when one of this name is, or this coordinator is broken,
        EnvironmentMismatchError when an executor has other versions.
        """
        name = RunId(work.spec.name)
        if name in self._runs:
            raise PoolError(f"the pool is on run {name!r}: wait for its end, or give this one another name")
        if self._broken is not None:
            raise _broken(self._broken)
        if work.spec.notice not in self._notices():
            self._server.notice_failures.clear(work.spec.notice)
        run = ActiveRun(work, self._clock, self._server.knows, self._perform, self._background_of)
        self._runs[name] = run
        try:
            if (tokens := work.owned.run.tokens) is not None:
                self._hand_out(run, tokens)
                self._background(self._keep_tokens(run, tokens), run=run)
            records = work.owned.contents.records
            with uncollected():
                self.feed(on.RunStarted(run.started_at, run.id, work.limits(), records, work.driver_started))
            # Count the trials of earlier drivers once: with 10,000 of them, a look at all took 0.16 s, ten times a
            # second.
            run.tally = Tally(work.spec, () if run.sweep is None else run.sweep.trials.values())
            self._background(self._look_out(run), run=run)
            self._background(self._take_drains(run), run=run)
            end = await run.end
            self._server.notice_failures.report(work.spec.notice)
            # A result has the path of its log and its files, so they must be stored before the caller gets it.
            await run.uploads.settle()
            await self._settle_sampler(run, end)
            self._show_progress(run)
            if run.error is not None:
                raise run.error
            if end.ending is Ending.UNAVAILABLE and self._server.mismatch is not None:
                raise EnvironmentMismatchError(self._server.mismatch)
            trials = tuple(result_of(trial, work) for trial in run.trials.trials.values())
            return RunOutcome(trials, end, run.trials.ran_s, run.outlook, run.trials.times.wall_s)
        finally:
            run.sampling.close()
            del self._runs[name]
            self._server.forget_tokens(name)

    async def _settle_sampler(self, run: ActiveRun, end: do.EndRun) -> None:
        """Wait until the sampler has all results; not for one that hangs once the run is stopped, or out of time."""
        until = None if run.work.spec.timeout_s is None else run.started_at + run.work.spec.timeout_s

        def patience_s() -> float:
            if run.hurried:
                return INTERRUPTED_SETTLE_S
            late = until is not None and self._clock.now() > until
            return STOPPED_SETTLE_S if late or end.ending != Ending.COMPLETE else SETTLE_TIMEOUT_S

        if problem := await run.sampling.settle(patience_s):
            logger.warning("run %s ends without its sampler: %s; a resume gives it what it lacks", run.id, problem)

    def stop(self, reason: str, grace_s: float, ending: Ending = Ending.STOPPED, run: str | None = None) -> None:
        """Stop a run, or all of them: their trials are advised to stop, and ended `grace_s` later."""
        for active in list(self._runs.values()):
            if run in (None, active.id):
                active.hurried |= grace_s <= 0.0
                self.feed(on.StopAsked(self._clock.now(), active.id, reason, grace_s, ending))

    def stop_trial(self, run: str, trial: TrialId, reason: str) -> None:
        """Stop one trial of a run, if that is on: it is advised to stop, and ended a few seconds later."""
        self.feed(on.TrialStopAsked(self._clock.now(), RunId(run), trial, reason))

    def agents_unavailable(self, reason: str) -> None:
        """No more agents will join: all runs are over."""
        self.feed(on.AgentsUnavailable(self._clock.now(), reason))

    # ---- the loop

    def feed(self, event: on.Event) -> None:
        """Fold `event` and perform what follows, after the events that came before.

        It raises nothing: an error here is the driver's own, and must not end the link of the agent that sent the
        event.
        """
        if self.broken:
            return
        self._inbox.append(event)
        # A command may feed another event, as a message that cannot be sent does. It waits in the inbox: a decision
        # must never see a state that another one is still changing.
        if self._folding:
            return
        self._folding = True
        try:
            while self._inbox and not self.broken:
                self._fold(self._inbox.popleft())
        finally:
            self._folding = False

    def _fold(self, event: on.Event) -> None:
        try:
            with span("tick" if isinstance(event, on.Ticked) else "plan"):
                parts = self._machine.fold(event)
        except Exception as error:  # the state may be half changed: the next driver starts from the journal
            self._log(error)
            self._break(error)
            return
        if isinstance(event, on.RunStarted):
            self._runs[event.run].sweep = self._machine.last
        for part in parts:
            run = None if part.run is None else self._runs.get(part.run)
            try:
                self._take(run, part.commands)
            except Exception as error:
                self._log(error)
                self._fail(run, error)

    def _receive(self, event: on.Event) -> None:
        """Feed an event of an agent, and count it among those that may be settled."""
        self._feed_placed(event)
        if isinstance(event, on.AgentSent) and isinstance(event.message, m.MemberMessage):
            run = self._runs.get(event.message.member.run)
            self._settled.add(event.agent, None if run is None else run.writer, None if run is None else run.recorder)
        elif isinstance(event, on.AgentGone):
            self._settled.forget(event.agent)

    def _feed_placed(self, event: on.Event) -> None:
        """Feed an event of an agent. A checkpoint's path comes from the coordinator, whatever path the agent sent."""
        match event:
            # An agent that is compromised must not have files of another trial deleted or restored, so no path that it
            # sends is used.
            case on.AgentSent(message=m.CheckpointStored() as message) if message.member.run in self._runs:
                layout = self._runs[message.member.run].work.layout
                placed = checkpoints.placed(layout, message.member, message.checkpoint)
                if placed is None:
                    logger.warning("agent %s claims an impossible checkpoint: %s", event.agent, message.checkpoint)
                    return
                event = replace(event, message=replace(message, checkpoint=placed))
        self.feed(event)

    def _take(self, run: ActiveRun | None, commands: Commands) -> None:
        if run is None:
            for command in commands:
                self._perform_for_all(command)
            return
        # All commands pass the writer, also those that wait for nothing: commands for one agent must keep their order.
        for command in commands:
            run.writer.take(command)
        if not run.writer.idle:
            self._background(run.writer.write(partial(self._cannot_write, run)), run=run)

    def _cannot_write(self, run: ActiveRun, error: Exception, dropped: Commands) -> None:
        """The journal has failed: later events would not be recorded, so the run ends here."""
        run.error = run.error or error
        self.stop(f"the journal cannot be written: {error}", 0.0, run=run.id)
        for command in dropped:
            # The machine waits for the end of each member that it has placed. These were never started, so no agent
            # will report it.
            if isinstance(command, do.PlaceMember):
                never = Outcome(0.0, failure=Failure(FailureKind.STOPPED, "not started: the journal cannot be written"))
                self.feed(on.AgentSent(self._clock.now(), command.agent, m.MemberEnded(command.member, never)))
            elif isinstance(command, do.EndRun):
                self._perform(run, command)

    def _perform_for_all(self, command: do.Command) -> None:
        """Perform a command that is of no run."""
        match command:
            case do.DropAgent(agent=agent, reason=reason):
                self._background(self._server.drop(agent, reason))
            case do.Refused(agent=agent, reason=reason):
                logger.info("a message of agent %s was refused: %s", agent, reason)
            case _:
                raise BugError(f"no such command without a run: {type(command).__name__}")

    def _perform(self, run: ActiveRun, command: do.Command) -> None:
        """Perform a command of `run`, as its journal allows. Raises BugError for one that does not exist."""
        match command:
            case do.PlaceMember():
                self._place_member(run, command)
            case do.AdoptMember(agent=agent, member=member, params=params):
                run.uploads.adopt(agent, member)
                run.work.placed(member, params)
                self._server.send(agent, m.MemberAdopted(member))
            case do.Suggest():
                self._background(self._suggest(run, command), run=run)
            case do.AskSampler():
                self._background(self._ask(run, command), run=run)
            case do.ConcludeTrial(trial=trial, partial=partial_end):
                self._conclude(run, run.trials.trials[trial], partial_end)
            case do.PrepareAgent(agent=agent):
                definition = run.work.owned.definition
                preload = shared(definition.plan.preload)
                self._server.send(agent, m.Prepare(run.id, definition.code, preload, self._notices()))
            case do.RecordReports(member=member, reports=reports):
                run.recorder.record(member, reports)
            case do.Send(agent=agent, message=message):
                if isinstance(message, m.RenameMember):
                    run.uploads.rename(agent, message.member, message.successor)
                self._server.send(agent, message)
            case do.DeleteCheckpoints(checkpoints=doomed):
                self._background(self._delete(run.work.store, doomed), run=run)
            case do.SweepCheckpoints():
                self._background(self._sweep_checkpoints(run.work, command), run=run)
            case do.EndRun(run=name, ending=ending, reason=reason):
                if ending == Ending.FAILING:
                    logger.warning("run %s has ended early: %s", name, reason)
                run.end.set_result(command)
            case do.ExcludeAgent(agent=agent, reason=reason):
                logger.warning("agent %s gets no more trials of this run: %s", agent, reason)
            case do.DropAgent() | do.Refused():
                self._perform_for_all(command)
            case _:
                raise BugError(f"no such command: {type(command).__name__}")

    def _notices(self) -> tuple[str, ...]:
        """Where agents look for a notice of their loss: the host of one leaves for all runs that are on."""
        addresses = (run.work.spec.notice for run in self._runs.values())
        return tuple(dict.fromkeys(address for address in addresses if address))

    def _place_member(self, run: ActiveRun, start: do.PlaceMember) -> None:
        run.uploads.expect(start.agent, start.member)
        run.work.placed(start.member, start.params)
        self._server.send(start.agent, run.work.start_of(start))

    async def _delete(self, store: Store, doomed: tuple[Checkpoint, ...]) -> None:
        """Delete checkpoints that are no longer needed; files that cannot be deleted only take up space."""
        for checkpoint in doomed:
            try:
                await aside(partial(checkpoints.delete, store, checkpoint))
            # The state machine has no use for the outcome: `sparktrain gc` finds what is left.
            except OSError as error:
                logger.warning("checkpoint %s was not deleted: %s", checkpoint.manifest, error)

    async def _sweep_checkpoints(self, work: RunRequest, swept: do.SweepCheckpoints) -> None:
        """Delete what no gang will resume from; files that cannot be deleted only take up space."""
        survivors = swept.retained
        generation = swept.before
        try:
            await aside(
                lambda: checkpoints.collect_garbage(work.store, work.layout, swept.trial, survivors, generation)
            )
        except OSError as error:
            logger.warning("what trial %d left before its restart was not deleted: %s", swept.trial, error)

    async def _suggest(self, run: ActiveRun, command: do.Suggest) -> None:
        suggestion = await run.sampling.suggest(run.work.sampler, command.count)
        self.feed(
            on.Suggested(self._clock.now(), command.run, suggestion.cases, suggestion.exhausted, dict(suggestion.memo))
        )

    async def _ask(self, run: ActiveRun, command: do.AskSampler) -> None:
        reply = await run.sampling.answer(run.work.sampler, command.member.trial, command.question)
        answer_fields = (reply.answer, reply.problem, dict(reply.params), dict(reply.memo))
        self.feed(on.QuestionAnswered(self._clock.now(), command.agent, command.member, command.number, *answer_fields))

    def _conclude(self, run: ActiveRun, trial: Trial, partial_end: bool) -> None:
        work = run.work
        if trial.status.observed and not partial_end:
            end = observation(run.trials.cases.end(trial), work.spec.metric)
            self._background(run.sampling.observe(work.sampler, end), run=run)
        run.tally.add(trial)
        work.trial_ended(result_of(trial, work))

    # ---- beside the loop

    def _background(
        self,
        work: Coroutine[None, None, None],
        failed: Callable[[BaseException], None] | None = None,
        *,
        run: ActiveRun | None = None,
    ) -> None:
        """Run `work` as a task; its error ends `run`, which it is for, or goes to `failed`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, failed or partial(self._fail, run)))

    def _background_of(self, work: Coroutine[None, None, None], run: ActiveRun) -> None:
        self._background(work, run=run)

    def _done(self, failed: Callable[[BaseException], None], task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        # Look at every task's error: the future of a stop was once dropped with its error, and callers waited forever.
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._log(error)
        failed(error)

    def _log(self, error: BaseException) -> None:
        if isinstance(error, BugError) or not isinstance(error, SparktrainError):  # others are for the caller alone
            logger.error("an error in the driver: %s: %s", type(error).__name__, message_of(error), exc_info=error)

    def _fail(self, run: ActiveRun | None, error: BaseException) -> None:
        """End `run`, unless it is over; its caller gets the first error."""
        if run is None or not self._is_on(run):
            return
        run.error = run.error or (error if isinstance(error, Exception) else _broken(error))
        line = message_of(error).partition("\n")[0]
        self.stop(line if isinstance(error, SamplerError) else f"an error in the driver: {line}", 0.0, run=run.id)

    def _is_on(self, run: ActiveRun) -> bool:
        return self._runs.get(run.id) is run

    def _break(self, error: BaseException) -> None:
        """Ticks or decisions have failed: all runs would wait forever, and end at once, as does the coordinator."""
        self._broken = error
        for run in self._runs.values():
            if not run.end.done():
                run.end.set_exception(run.error or _broken(error))

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            self.feed(on.Ticked(self._clock.now()))
            for run in list(self._runs.values()):
                if run.pace.is_due(self._clock.now()):
                    try:
                        self._show_progress(run)
                    except Exception as error:
                        self._log(error)
                        self._fail(run, error)

    async def _look_out(self, run: ActiveRun) -> None:
        """Ask the cluster what agents wait for, as long as some are missing."""
        while self._is_on(run):
            # Ask only while agents are missing: each question is a request to the ResourceManager.
            missing = len(self._machine.agents) < run.work.agents
            outlook = await aside(self._outlook, "sparktrain-outlook") if missing else ""
            run.outlook = "; ".join(filter(None, (self._server.absences.summary() if missing else "", outlook)))
            await self._clock.sleep(self._outlook_s)

    async def _take_drains(self, run: ActiveRun) -> None:
        """Feed what users ask to drain, as long as the run lasts."""
        rare_s = DRAINS_S if isinstance(run.work.store, LocalStore) else REMOTE_DRAINS_S
        attentive_until = self._clock.now()
        while self._is_on(run):
            await self._clock.sleep(DRAINS_S if self._clock.now() < attentive_until else rare_s)
            answered = frozenset(run.trials.drains.answered)
            try:
                read = partial(pending_drains, run.work.store, run.work.layout, answered)
                requests = await aside(read, "sparktrain-drains")
            # A request can wait for the store; the run must not end because of it.
            except OSError as error:
                logger.debug("requests to drain cannot be read now: %s", error)
                continue
            if requests:
                attentive_until = self._clock.now() + ATTENTIVE_S
            for request in requests if self._is_on(run) else ():
                self.feed(drain_event(request, run.work, self._clock.now()))

    async def _explain_losses(self, loss_reasons: TaskFailures) -> None:
        """Ask Spark why agents were lost, as long as some loss has no reason."""
        unexplained = self._server.unexplained
        while True:
            await self._clock.sleep(WORDS_S)
            # Spark's status store has the reason seconds to minutes after the stream has ended.
            if tasks := unexplained.lost_tasks(self._clock.now()):
                failed = await aside(partial(loss_reasons, tasks), "sparktrain-loss_reasons")
                for agent, cause in unexplained.settle(failed):
                    logger.info("agent %s was lost: %s", agent, cause)
                    self.feed(on.LossExplained(self._clock.now(), agent, *explain_failure(cause)))

    async def _keep_tokens(self, run: ActiveRun, keeper: TokenKeeper) -> None:
        """Renew the agents' tokens before they expire, as long as the run lasts."""
        while self._is_on(run):
            if keeper.is_due and await aside(keeper.renew, "sparktrain-tokens"):
                self._hand_out(run, keeper)
            await self._clock.sleep(TOKENS_S)

    def _hand_out(self, run: ActiveRun, keeper: TokenKeeper) -> None:
        if keeper.tokens is not None and self._is_on(run):
            self._server.hand_out(run.id, keeper.tokens)

    def _show_progress(self, run: ActiveRun) -> None:
        now = self._clock.now()
        behind_s = run.writer.behind_s
        slow = run.sampling.note
        progress = progress_of(self._machine, run.work, now, behind_s, run.outlook, run.tally, slow, sweep=run.sweep)
        # With thousands of running trials progress itself is work: the pace limits it to 2 % of the time.
        run.pace.record(now, self._clock.now() - now, len(self._runs))
        run.work.display.update(progress)

    def _on_stored(self, agent: AgentId, member: Member, problem: str) -> None:
        if (run := self._runs.get(member.run)) is not None:
            run.uploads.stored(agent, member, problem)

    def _on_feed(self, message: m.MemberFeed, answer: Callable[[m.FeedEnded], None]) -> None:
        run = self._runs.get(message.member.run)
        if run is not None and run.work.streams is not None:
            run.work.streams.on_feed(message, answer)

    async def _on_upload(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        # Closing cancels the uploads that have started; one that arrives a moment later was once stored as if nothing
        # had happened, and then cut off without a reason.
        run = self._runs.get(header.member.run)
        if run is None:
            raise ProtocolError(f"{header.name!r} of {header.member} comes when its run is over")
        return await run.uploads.receive(header, chunks)


def _broken(error: BaseException) -> PoolError:
    error_of_pool = PoolError(
        f"the pool is broken by an error in the driver ({type(error).__name__}: {message_of(error)}): close it, open "
        "another one, and resume the run; please report the error; its traceback is in the log of the driver"
    )
    error_of_pool.__cause__ = error
    return error_of_pool
