"""Connections to agents: their messages become events. No decisions.

One task serves each stream, from its `Join` to its end. An agent is a member of the pool only after three checks, in
this order: its versions are the driver's, no live agent has its GPUs, and neither its pool nor its batch is being
dismissed. From then on each message becomes one event for the state machine, except for those that no decision
depends on.

An agent ends as it came, by one event: `AgentGone` follows in every case, also where the stream breaks, so `send` may
drop what is for an agent that is gone. The deadlines here are those of a join and of a dismissal; the lease of an
agent that has joined is the state machine's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from sparktrain.base import formatting
from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, Member, RunId
from sparktrain.base.threads import aside
from sparktrain.cluster.executor_loss import UnexplainedLosses
from sparktrain.cluster.kubernetes_client import PodNodes
from sparktrain.config.versions import mismatch
from sparktrain.driver.gpu_claims import GpuClaims
from sparktrain.errors import ProtocolError
from sparktrain.protocol import messages as m
from sparktrain.protocol.certificates import CertificateKeeper
from sparktrain.protocol.transport import Link, LinkClosedError, Listener
from sparktrain.state import events as on
from sparktrain.state.agent_messages import StateInput
from sparktrain.store.hadoop.token_storage import merged

MOST_NAMED = 3
"""A text names this many absent agents; of the others it has the number."""
HEARTBEAT_S = 3.0
"""Interval of an agent's heartbeats."""
LEASE_S = 15.0
"""How long a heartbeat counts."""
JOIN_TIMEOUT_S = 20.0
"""Timeout from an agent's connection to its `Join`."""
DISMISS_TIMEOUT_S = 8.0
"""How long dismissed agents may take to end their members and their uploads."""
POLL_S = 0.01
CERTIFICATES_S = 60.0
"""Interval at which a pool checks whether to renew its certificates."""
COMPANY_S = 5.0
"""How long an agent with other versions waits for one with the right versions to join, before it ends the run."""

logger = logging.getLogger("sparktrain")


class _Stream(NamedTuple):
    link: Link
    batch: int


class Server:
    """The streams of all agents of a pool. All methods belong to the coordinator's event loop."""

    def __init__(
        self,
        listener: Listener,
        clock: Clock,
        versions: dict[str, str],
        preload: tuple[str, ...],
        certificates: CertificateKeeper | None = None,
        gpu_claims: GpuClaims | None = None,
    ) -> None:
        """`certificates` are those of the listener; None where it has none. No two agents share a GPU by default."""
        self.mismatch: str | None = None
        """Why no executor can be used."""
        self.joined: dict[str, str] | None = None
        """Versions that the newest agent reported; None before the first one."""
        self._refused: str | None = None
        self._dismissal: str | None = None
        """Why the pool dismisses all agents, while it does."""
        # Spark aborts a job when one slot has failed too often, and ends its healthy agents only 2 s later: a gang that
        # restarted on one of them was lost a second time.
        self._over: dict[int, str] = {}
        """Why batches have ended."""
        self.absences = Absences(clock)
        self.unexplained = UnexplainedLosses()
        self.notice_failures = NoticeFailures()
        self._listener = listener
        self._clock = clock
        self._versions = versions
        self._preload = preload
        self._keeper = certificates
        self._tokens: dict[RunId, m.Tokens] = {}
        """Those of each run, the newest last."""
        self._certificates: m.Certificates | None = None
        """Certificates that replace those of agents' tickets, once there are newer ones."""
        self._streams: dict[AgentId, _Stream] = {}
        self._gpu_claims = gpu_claims or GpuClaims(clock)
        self._feed: Callable[[on.Event], None] = lambda event: None
        self._stored: Callable[[AgentId, Member, str], None] = lambda agent, member, problem: None
        self.on_feed: Callable[[m.MemberFeed, Callable[[m.FeedEnded], None]], None] = lambda message, answer: None
        """Called with each message about a stream, and with what sends an answer from any thread."""
        self.pod_nodes: PodNodes | None = None
        """None where agents are in no pods, or name their nodes themselves."""
        self.settled: Callable[[AgentId], int] = lambda agent: 0
        """How many messages of an agent about members are settled: see `HeartbeatAck`."""

    async def open(
        self,
        feed: Callable[[on.Event], None],
        stored: Callable[[AgentId, Member, str], None],
        receive_upload: Callable[[m.UploadHeader, AsyncIterator[bytes]], Awaitable[m.UploadDone]],
    ) -> tuple[str, int]:
        """Listen, and pass the events of agents to `feed`; returns the address to connect to."""
        self._feed = feed
        self._stored = stored
        return await self._listener.start(self._serve, receive_upload)

    async def close(self) -> None:
        """Stop listening; streams that are open are cut."""
        await self._listener.close(1.0)

    def knows(self, agent: AgentId) -> bool:
        """The agent has joined, and its stream is open."""
        return agent in self._streams

    def send(self, agent: AgentId, message: m.ToAgent) -> None:
        """Post `message`; for an agent that is gone it is dropped, because the agent's end is an event of its own."""
        stream = self._streams.get(agent)
        if stream is not None:
            with suppress(LinkClosedError):
                stream.link.post(message)

    def _send_soon(self, loop: asyncio.AbstractEventLoop, agent: AgentId, message: m.ToAgent) -> None:
        """As `send`, for other threads."""
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self.send, agent, message)

    def hand_out(self, run: RunId, tokens: m.Tokens) -> None:
        """Send `tokens` to all agents, and to those that join later, in place of earlier ones of the run.

        Those of other runs stay: their stores may be on other clusters.
        """
        self._tokens.pop(run, None)
        self._tokens[run] = tokens
        # Tokens that Spark renews reach the executors' JVMs alone, and a Python client keeps those of its container's
        # start, which expire: so they travel over the agents' own streams.
        self._send_all(self._all_tokens())

    def forget_tokens(self, run: RunId) -> None:
        """The run is over: what is sent from now on has its tokens no more."""
        self._tokens.pop(run, None)

    def _all_tokens(self) -> m.Tokens:
        contents = [tokens.content for tokens in self._tokens.values()]
        return m.Tokens(merged(contents) if len(contents) > 1 else contents[0])

    async def keep_certificates(self) -> None:
        """Renew the certificates of the port and the agents before they expire. Never returns."""
        while True:
            await self._clock.sleep(CERTIFICATES_S)
            if self._keeper is not None and self._keeper.renew():
                logger.info("the certificates of this pool are renewed")
                self._listener.renew(self._keeper.server)
                self._certificates = m.Certificates(self._keeper.agent)
                self._send_all(self._certificates)

    def _send_all(self, message: m.ToAgent) -> None:
        for agent in self._streams:
            self.send(agent, message)

    async def drop(self, agent: AgentId, reason: str) -> None:
        """Close the stream of an agent that is lost."""
        stream = self._streams.pop(agent, None)
        if stream is not None:
            logger.warning("agent %s is dropped: %s", agent, reason)
            await stream.link.close(reason)

    async def dismiss(self, reason: str) -> None:
        """Have all agents end their members and leave; returns when they have, or after a deadline.

        An agent that joins meanwhile, such as the replacement of a lost one, is refused.
        """
        # A replacement of a lost agent that joins after the dismissal was sent never gets it, and the pool would wait
        # for it until the deadline.
        self._dismissal = reason
        try:
            await self._dismiss(reason, None)
        finally:
            self._dismissal = None
        self.absences.clear()

    async def end_batch(self, batch: int, reason: str) -> None:
        """As `dismiss`, for the agents of one batch. One that joins later is refused too."""
        self._over[batch] = reason
        await self._dismiss(reason, batch)

    async def _dismiss(self, reason: str, batch: int | None) -> None:
        def remaining_agents() -> list[AgentId]:
            return [agent for agent, stream in self._streams.items() if batch in (None, stream.batch)]

        for agent in remaining_agents():
            self.send(agent, m.Dismiss(reason))
        deadline = self._clock.now() + DISMISS_TIMEOUT_S
        while remaining_agents() and self._clock.now() < deadline:
            await self._clock.sleep(POLL_S)
        for agent in remaining_agents():
            await self.drop(agent, reason)

    # ---- one agent

    async def _serve(self, link: Link) -> None:
        """One agent's stream, from its `Join` to its end. Runs as a task of its own."""
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            join = await link.receive()
        if not isinstance(join, m.Join):
            raise ProtocolError(f"the first message of {link.peer} is {type(join).__name__}, not Join")
        if self.pod_nodes is not None:
            node = await aside(partial(self.pod_nodes, join.host), "sparktrain-nodes")
            join = replace(join, host=node)
        if reason := mismatch(self._versions, join.versions, join.host):
            self._refused = reason
            await self._refuse(link, join, reason)
            # One wrong host among many costs that host alone, so wait for an agent with the right versions before the
            # run ends.
            await self._clock.sleep(COMPANY_S)
            if self.joined is None:
                self._give_up(reason)
            return
        # A discovery script that lists all GPUs of a host gives each of its executors the same ones, and two members
        # would share a device without any error.
        if reason := await self._gpu_claims.take(join):
            await self._refuse(link, join, reason)
            self._give_up(reason)
            return
        if (dismissal := self._dismissal or self._over.get(join.batch)) is not None:
            # A task that Spark starts just before it gives a job up joins after the agents of that job have left.
            self._gpu_claims.free(join.agent)
            await self._end(link, dismissal)
            return
        self.absences.remove(join.slot)
        if join.away.reason:
            logger.info("agent %s of host %s has rejoined: %s", join.agent, join.host, join.away.reason)
        logger.info("agent %s has joined from %s on host %s", join.agent, join.address, join.host)
        self._streams[join.agent] = _Stream(link, join.batch)
        self.joined = join.versions
        self.unexplained.joined(join.agent, join.task)
        link.post(m.Welcome(HEARTBEAT_S, LEASE_S, self._preload))
        for update in filter(None, (self._all_tokens() if self._tokens else None, self._certificates)):
            link.post(update)
        gpus = len(join.devices)
        held = join.away.held
        self._feed(on.AgentJoined(self._clock.now(), join.agent, join.slot, join.host, join.address, gpus, held))
        reason = "its stream ended"
        try:
            while not isinstance(message := await link.receive(), m.Leave):
                self._gpu_claims.heard(join.agent)
                self._on_message(join.agent, link, message)
            reason = message.reason
            self.unexplained.departed(join.agent)
        # A stream ends in the same way after a preemption, a lost node and a process that ate its memory: the cause
        # comes from Spark's status store, later, by `unexplained`.
        except LinkClosedError as error:
            reason = str(error)
        finally:
            self._streams.pop(join.agent, None)
            self._gpu_claims.free(join.agent)
            self.absences.add(join.slot, join.host, reason)
            self.unexplained.lost(join.agent, self._clock.now())
            self._feed(on.AgentGone(self._clock.now(), join.agent, reason))

    async def _refuse(self, link: Link, join: m.Join, reason: str) -> None:
        logger.warning("agent %s is refused: %s", join.agent, reason)
        self.absences.add(join.slot, join.host, reason)
        await self._end(link, reason)

    async def _end(self, link: Link, reason: str) -> None:
        """End the stream of an agent that does not join."""
        with suppress(LinkClosedError):
            link.post(m.Refuse(reason))
        await link.close(reason)

    @property
    def refused(self) -> str | None:
        """Why agents were refused for their versions, as long as none with the driver's versions has joined."""
        return self._refused if self.joined is None else None

    def _give_up(self, reason: str) -> None:
        """No executor can be used: the run, if any, is over."""
        self.mismatch = reason
        self._feed(on.AgentsUnavailable(self._clock.now(), reason))

    def _on_message(self, agent: AgentId, link: Link, message: m.Message) -> None:
        """Answer what needs no decision; every other message is for the state machine."""
        match message:
            case m.MemberStored(member=member, problem=problem):
                self._stored(agent, member, problem)
                return
            case m.MemberFeed():
                self.on_feed(message, partial(self._send_soon, asyncio.get_running_loop(), agent))
                return
            case m.NoticeUnreadable(address=address, looks=looks, problem=problem):
                self.notice_failures.add(agent, link.peer, address, looks, problem)
                return
            case m.Heartbeat():
                with suppress(LinkClosedError):
                    link.post(m.HeartbeatAck(self.settled(agent)))
            case m.Ready(failed_imports=failed) if failed:
                logger.info("agent %s could not preload: %s", agent, failed)
        if not isinstance(message, StateInput):
            raise ProtocolError(f"agent {agent} sent {type(message).__name__} in the middle of its stream")
        self._feed(on.AgentSent(self._clock.now(), agent, message))


@dataclass(frozen=True)
class _Absence:
    host: str
    reason: str
    since: float


class Absences:
    """Slots without an agent since theirs was lost, left or was refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._absent: dict[int, _Absence] = {}

    def add(self, slot: int, host: str, reason: str) -> None:
        """The agent of `slot` on `host` is gone because of `reason`."""
        self._absent[slot] = _Absence(host, reason, self._clock.now())

    def remove(self, slot: int) -> None:
        """An agent of `slot` has joined."""
        self._absent.pop(slot, None)

    def clear(self) -> None:
        """All agents are gone because the pool dismissed them."""
        self._absent.clear()

    def summary(self) -> str:
        """One line: the newest absences first, with their causes; empty when there are none."""
        newest = sorted(self._absent.items(), key=lambda entry: -entry[1].since)
        lines = [
            f"agent {slot} on {absence.host} is gone since {self._clock.now() - absence.since:.0f} s ({absence.reason})"
            for slot, absence in newest[:MOST_NAMED]
        ]
        unnamed_count = len(newest) - MOST_NAMED
        return "; ".join([*lines, *([f"{unnamed_count} more are gone"] if unnamed_count > 0 else [])])


@dataclass
class _FailedLooks:
    problem: str
    by_agent: dict[AgentId, int] = field(default_factory=dict)


class NoticeFailures:
    """The failed looks of the agents of a pool, by address. All methods belong to the coordinator's event loop."""

    def __init__(self) -> None:
        self._failed: dict[str, _FailedLooks] = {}

    def clear(self, address: str | None) -> None:
        """A run starts that names this address, and no other one does."""
        if address is not None:
            self._failed.pop(address, None)

    def add(self, agent: AgentId, host: str, address: str, looks: int, problem: str) -> None:
        """An agent has failed to look so often; the first one is logged."""
        failed = self._failed.get(address)
        if failed is None:
            failed = self._failed[address] = _FailedLooks(f"on {host}: {formatting.plain(problem)}")
            logger.warning("notice cannot be read %s; this is ignored, and the run continues", failed.problem)
        failed.by_agent[agent] = max(looks, failed.by_agent.get(agent, 0))

    def report(self, address: str | None) -> None:
        """Log how many looks at the address of a run that ends have failed."""
        if address is not None and (failed := self._failed.get(address)) is not None:
            agents = formatting.count(len(failed.by_agent), "agent")
            looks = formatting.count(sum(failed.by_agent.values()), "look")
            logger.warning(
                "notice %s could not be read by %s, at least %s in all; the first was %s",
                address, agents, looks, failed.problem,
            )  # fmt: skip
