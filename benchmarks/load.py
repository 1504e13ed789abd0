"""A coordinator under load: it counts, and its agents are simulated over any transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, Member
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import Coordinator
from sparktrain.driver.run_request import RunRequest
from sparktrain.errors import InfraError
from sparktrain.protocol import messages as m
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import grid
from sparktrain.state import events as on
from sparktrain.state.outcome import Outcome, Report
from sparktrain.store.localfs import LocalStore
from tests.support.run_stages import plain_request

REPORTS = 2
"""Reports of each trial."""
CONNECT_S = 60.0


class CountingCoordinator(Coordinator):
    """Counts the events that it folds, and waits for a number of agents."""

    def __init__(self, server: Server, clock: Clock, agents: int) -> None:
        super().__init__(server, clock)
        self.events = 0
        self.complete = asyncio.Event()
        """Return once that many agents have joined."""
        self._agents = agents

    def feed(self, event: on.Event) -> None:
        self.events += 1
        super().feed(event)
        if self.agents_alive >= self._agents:
            self.complete.set()


def work_of(place: str | LocalStore, trials: int, agents: int) -> RunRequest:
    """A run with a number of trials, in a folder or a store."""
    store, layout = LocalStore(place) if isinstance(place, str) else place, RunLayout("load")
    journal, _ = Journal.claim(
        store, layout.journal, DriverIdentity(host="benchmark", pid=0, started=0.0, sparktrain="")
    )
    space = grid(x=list(range(trials)))
    return plain_request(SweepSpec(name="load", metric="accuracy"), space, SpaceSampler(space), store, journal, agents)


@dataclass
class Tally:
    """The observations of an agent."""

    messages: int = 0
    """Of runs, in both directions."""
    dismissed: bool = False
    """Whether its stream lasted until the coordinator ended it."""


class SimulatedAgent:
    """Answers each start at once: with a few reports, a result and, where there is a `log`, its upload."""

    def __init__(self, dialer: Dialer, slot: int, clock: Clock, log: bytes = b"") -> None:
        self._tally = Tally()
        self._id = AgentId(f"simulated-{slot}")
        self._dialer = dialer
        self._slot = slot
        self._clock = clock
        self._log = log
        self._storing: list[asyncio.Task[None]] = []

    async def run(self) -> Tally:
        """Join, and attend until dismissed."""
        link = await self._dialer.attend(CONNECT_S)
        link.post(m.Join(agent=self._id, slot=self._slot, host=f"host-{self._slot}", pid=self._slot, versions={}))
        welcome = await link.receive()
        assert isinstance(welcome, m.Welcome)
        link.post(m.Ready())
        beating = asyncio.create_task(self._heartbeat(link, welcome.heartbeat_s))
        with suppress(LinkClosedError):
            while not self._tally.dismissed:
                self._obey(link, await link.receive())
        beating.cancel()
        await asyncio.gather(*self._storing)
        await self._dialer.close()
        return self._tally

    def _obey(self, link: Link, message: m.Message) -> None:
        match message:
            case m.Prepare(run=run):
                self._answer(link, m.Ready(run))
            case m.StartMember(member=member):
                self._train(link, member)
            case m.Dismiss(reason=reason):
                self._tally.dismissed = True
                link.post(m.Leave(reason))
                return
        self._tally.messages += 1

    def _train(self, link: Link, member: Member) -> None:
        self._answer(link, m.MemberStarted(member, self._slot))
        for step in range(REPORTS):
            self._answer(link, m.MemberReported(member, (Report(step, {"loss": 1.0 / (step + 1)}),)))
        self._answer(link, m.MemberEnded(member, Outcome(0.0, metrics={"accuracy": 0.5})))
        if self._log:
            self._storing.append(asyncio.create_task(self._store(link, member)))
        else:
            self._answer(link, m.MemberStored(member))

    async def _store(self, link: Link, member: Member) -> None:
        problem = ""
        try:
            await self._dialer.upload(m.UploadHeader(self._id, member, "log.txt"), _whole(self._log))
        except InfraError as error:
            problem = str(error)
        self._answer(link, m.MemberStored(member, problem))

    def _answer(self, link: Link, message: m.FromAgent) -> None:
        self._tally.messages += 1
        link.post(message)

    async def _heartbeat(self, link: Link, heartbeat_s: float) -> None:
        with suppress(LinkClosedError):
            while True:
                await self._clock.sleep(heartbeat_s)
                self._answer(link, m.Heartbeat())


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
