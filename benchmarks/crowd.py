"""Thousands of agents in one task, for benchmarks of one coordinator: bytes in, bytes out, and their own CPU counted.

The coordinator's side of each link is the product's: it decodes, checks and queues. The agents' side is one loop over
all agents. Its CPU time is kept apart, so that what is left of the process is the coordinator's.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from sparktrain.base.ids import AgentId, Member
from sparktrain.protocol import codec
from sparktrain.protocol import messages as m
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.link_rules import AGENT_SPEECH, COORDINATOR_SPEECH
from sparktrain.protocol.member_call import MemberCall, MemberGang
from sparktrain.protocol.transport import Limits, Listener, OnLink, OnUpload, QueuedLink, serve
from sparktrain.state.outcome import Outcome, Report

REPORTS = 2
"""Reports of each trial, unless asked for others."""
HEARTBEAT_S = 3.0
"""As agents of the product send them."""
SHARES = 30
"""Parts of the agents that send heartbeats together."""
TURN = 500
"""Messages that the agents handle before they let the coordinator run."""


class CrowdLink(QueuedLink):
    """The coordinator's side of a link to one agent of a crowd."""

    def __init__(self, crowd: "Crowd", slot: int) -> None:
        super().__init__(f"agent-{slot}", AGENT_SPEECH, Limits())
        self._crowd = crowd
        self._slot = slot

    def _send(self, data: bytes) -> bool:
        self._crowd.sent(self._slot, data)
        return True

    def _finish(self, goodbye: bytes | None) -> None:
        """The crowd ends with the benchmark."""

    async def _finished(self) -> None:
        await asyncio.sleep(0)


class Crowd(Listener):
    """All agents, and the listener that they connect to."""

    def __init__(self, agents: int, per_host: int = 1, reports: int = REPORTS, hold_s: float = 0.0) -> None:
        """`hold_s`: how long a trial takes; agents answer at once where it is 0."""
        self.cpu_s = 0.0
        """CPU seconds of the agents' side."""
        self.started_all = asyncio.Event()
        """Each agent has got a member."""
        self.slowest_answer_s = 0.0
        """The longest time from a heartbeat to its answer."""
        self.waits: list[float] = []
        """Seconds from the end of a member to the start of the next one on its agent."""
        self._ended: dict[int, float] = {}
        """When the newest member of an agent has ended."""
        self._per_host = per_host
        self._reports = reports
        self._hold_s = hold_s
        self._on_link: OnLink | None = None
        self._links = [CrowdLink(self, slot) for slot in range(agents)]
        self._serving: list[asyncio.Task[None]] = []
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._outbox: deque[tuple[CrowdLink, bytes]] = deque()
        self._woken = asyncio.Event()
        self._fresh = set(range(agents))
        self._joined = 0
        """Agents that have sent their `Join`."""
        self._heartbeats: defaultdict[int, deque[float]] = defaultdict(deque)
        """When each agent has sent those that are not answered yet."""

    # ---- as a listener

    async def start(self, on_link: OnLink, on_upload: OnUpload) -> tuple[str, int]:
        """See base class."""
        self._on_link = on_link
        return "crowd", 0

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class; there are no certificates."""

    async def close(self, grace_s: float) -> None:
        """See base class."""
        for link in self._links:
            link.lose("the benchmark is over")
        await asyncio.gather(*self._serving, return_exceptions=True)

    # ---- as agents

    async def join(self) -> None:
        """Have all agents join and be ready."""
        assert self._on_link is not None
        for slot, link in enumerate(self._links):
            self._serving.append(asyncio.create_task(serve(link, self._on_link)))
            self._spend(lambda slot=slot: self._introduce(slot))  # type: ignore[misc]
            self._joined = slot + 1
            if slot % TURN == 0:
                await asyncio.sleep(0)

    def _introduce(self, slot: int) -> None:
        host = f"host-{slot // self._per_host}"
        join = m.Join(
            agent=AgentId(f"agent-{slot}"),
            slot=slot,
            host=host,
            pid=slot,
            versions={},
            devices=(f"gpu-{slot}",),
            executor=slot,
        )
        self._post(slot, join)
        self._post(slot, m.Ready())

    async def attend(self) -> None:
        """Answer the coordinator until cancelled."""
        while True:
            await self._woken.wait()
            self._spend(self._turn)
            await asyncio.sleep(0)

    async def heartbeat(self) -> None:
        """Send the heartbeats of all agents that have joined, spread over their interval, until cancelled."""
        clock = asyncio.get_running_loop().time
        started, sent = clock(), 0
        while True:
            due = int((clock() - started) / HEARTBEAT_S * SHARES)
            for share in range(sent, due):
                self._spend(lambda share=share: self._heartbeat(range(share % SHARES, self._joined, SHARES)))  # type: ignore[misc]
            sent = due
            await asyncio.sleep(HEARTBEAT_S / SHARES)

    def sent(self, slot: int, data: bytes) -> None:
        """The coordinator has sent `data` to an agent."""
        self._inbox.append((slot, data))
        self._woken.set()

    def _spend(self, work: Callable[[], None]) -> None:
        """Do the agents' `work`, then hand over their messages, which is the coordinator's time."""
        started = time.thread_time()
        work()
        self.cpu_s += time.thread_time() - started
        while self._outbox:
            link, data = self._outbox.popleft()
            link.hear(data)

    def _heartbeat(self, slots: Iterable[int]) -> None:
        now = time.perf_counter()
        for slot in slots:
            self._heartbeats[slot].append(now)
            self._post(slot, m.Heartbeat())

    def _turn(self) -> None:
        for _ in range(min(TURN, len(self._inbox))):
            slot, data = self._inbox.popleft()
            self._obey(slot, codec.decode(data, COORDINATOR_SPEECH.kind))
        if not self._inbox:
            self._woken.clear()

    def _obey(self, slot: int, message: m.Message) -> None:
        match message:
            case m.Prepare(run=run):
                self._post(slot, m.Ready(run))
            case m.StartMember(member=member, call=MemberCall(gang=MemberGang(size=1))):
                self._enter(slot, member)
                self._finish_later(slot, member)
            case m.StartMember(member=member):
                self._post(slot, m.MemberStands(member, m.Standing(port=4000)))
            case m.Seating(member=member):
                self._enter(slot, member)
                self._post(slot, m.SnapshotHeld(member, 1, "checksum"))
                self._finish_later(slot, member)
            case m.HeartbeatAck():
                taken = time.perf_counter() - self._heartbeats[slot].popleft()
                self.slowest_answer_s = max(self.slowest_answer_s, taken)
            case m.AskHeartbeat():
                self._heartbeat((slot,))
            case m.Dismiss(reason=reason):
                self._post(slot, m.Leave(reason))

    def _enter(self, slot: int, member: Member) -> None:
        self._post(slot, m.MemberStarted(member, slot))
        if slot in self._ended:
            self.waits.append(time.perf_counter() - self._ended.pop(slot))
        self._fresh.discard(slot)
        if not self._fresh:
            self.started_all.set()

    def _finish_later(self, slot: int, member: Member) -> None:
        if self._hold_s:
            asyncio.get_running_loop().call_later(self._hold_s, lambda: self._spend(lambda: self._end(slot, member)))
        else:
            self._end(slot, member)

    def _end(self, slot: int, member: Member) -> None:
        self._ended[slot] = time.perf_counter()
        for step in range(self._reports):
            self._post(slot, m.MemberReported(member, (Report(step, {"loss": 1.0 / (step + 1)}),)))
        self._post(slot, m.MemberEnded(member, Outcome(0.0, metrics={"accuracy": 0.5})))
        self._post(slot, m.MemberStored(member))

    def _post(self, slot: int, message: m.FromAgent) -> None:
        self._outbox.append((self._links[slot], codec.encode(message)))
