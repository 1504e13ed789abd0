"""The executor's side of `sparktrain doctor`: a slot reports about its host and the slots that it reaches.

It does what a member of a gang does before it trains, with the same messages: it joins, gets the store, holds a port,
gets the addresses of the others, and connects to them, without reading from those connections or writing to them.
"""

import asyncio
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.control_groups import available_memory
from sparktrain.base.ids import AgentId
from sparktrain.base.threads import aside
from sparktrain.config.versions import installed_versions
from sparktrain.errors import ProtocolError, SparktrainError
from sparktrain.executor.spark_task import Placement, in_pod, placement, spark_version
from sparktrain.executor.zygote_process import scratch_root
from sparktrain.protocol import messages as m
from sparktrain.protocol.checkup_report import (
    CLOCK,
    MARKER,
    PACKAGES,
    Peer,
    SlotReport,
    SlotSoftware,
    SlotVisit,
    member,
    to_json,
)
from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError, Unreachable
from sparktrain.state.topology import MemberAddress
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

VISIT_S = 30.0
"""How long a visit to the coordinator may take, once a slot has reached it."""
STORE_S = 15.0
CONNECT_S = 3.0
"""How long a slot tries to connect to another one."""
DNS_S = 4.0
KUBERNETES_NAME = "kubernetes.default.svc"
"""The name of the API server, which each pod resolves where its cluster has a DNS."""
PEERS = 16
"""To how many following slots a slot connects: in a large session all pairs would be too many."""
_TIMES = 3
"""How often a slot asks for the time; the fastest answer counts."""


def check_up(slot: int, ticket: AgentTicket) -> str:
    """The report about this slot of a Spark job, as JSON. Blocks, for a minute at most."""
    place = placement(slot, ticket)
    return to_json(asyncio.run(visit(observed(place), GrpcDialer(ticket), ticket.connect_s)))


def observed(place: Placement) -> SlotReport:
    """The facts that this process knows itself; imports nothing heavy."""
    memory = available_memory()
    return SlotReport(
        slot=place.slot,
        host=place.host,
        address=place.address,
        software=SlotSoftware(
            python=platform.python_version(),
            executable=sys.executable,
            spark=spark_version(),
            java=java_version(),
            versions=installed_versions(PACKAGES),
        ),
        executor=place.executor,
        gpus=place.gpus,
        devices=tuple(device.name for device in place.devices),
        memory_bytes=memory.total_bytes,
        free_bytes=memory.free_bytes,
        shared_memory_bytes=shared_memory_bytes(),
    )


def shared_memory_bytes(root: str = "/dev/shm") -> int:
    """The size of shared memory on this host, or in this container; 0 where there is none."""
    try:
        stats = os.statvfs(root)
    except OSError:
        return 0
    return stats.f_frsize * stats.f_blocks


def java_version() -> str:
    """The version of the Java above this process, from its `release` file; empty without one."""
    try:
        homes = [Path(parent.exe()).parents[1] for parent in psutil.Process().parents() if parent.name() == "java"]
        lines = [line for home in homes[:1] for line in (home / "release").read_text().splitlines()]
    except (OSError, psutil.Error):
        return ""
    versions = (line.partition("=")[2].strip('"') for line in lines if line.startswith("JAVA_VERSION="))
    return next(versions, "")


async def visit(
    report: SlotReport, dialer: Dialer, connect_s: float, *, visit_s: float = VISIT_S, store_s: float = STORE_S
) -> SlotReport:
    """`report`, with what a visit to the coordinator found."""
    try:
        link = await dialer.attend(connect_s)
    except Unreachable as error:
        return replace(report, visit=SlotVisit(problem=str(error)))
    with held("agent-held", scratch_root()) as scratch:
        tokens = TokenFile(scratch)
        visitor = Visitor(report, link, SystemClock(), tokens, store_s)
        try:
            async with asyncio.timeout(visit_s):
                await visitor.run()
        except TimeoutError:
            visitor.note(problem=f"the visit did not end within {visit_s:g} s")
        except (LinkClosedError, ProtocolError) as error:
            visitor.note(problem=f"the visit was cut off: {error}")
        finally:
            tokens.close()
            await dialer.close()
    return visitor.report


class Visitor:
    """One visit. All methods belong to its event loop."""

    def __init__(
        self, report: SlotReport, link: Link, clock: Clock, tokens: TokenFile, store_s: float = STORE_S
    ) -> None:
        self.report = report
        self._tokens = tokens
        self._member = member(report.slot)
        self._link = link
        self._clock = clock
        self._store_s = store_s

    async def run(self) -> None:
        """From `Join` to `Leave`. Raises LinkClosedError, or ProtocolError for an unexpected message."""
        report = self.report
        agent = AgentId(f"doctor-{report.slot}")
        self._link.post(
            m.Join(
                agent=agent,
                slot=report.slot,
                host=report.host,
                pid=os.getpid(),
                versions=report.software.versions,
                devices=report.devices,
                executor=report.executor,
                address=report.address,
            )
        )
        await self._receive(m.Welcome)
        for _ in range(_TIMES):
            await self._ask_time()
        self._link.post(m.Ready())
        started = await self._receive(m.StartMember, m.Tokens, m.Dismiss)
        if isinstance(started, m.Tokens):
            await asyncio.to_thread(self._tokens.keep, started.content)
            started = await self._receive(m.StartMember)
        if isinstance(started, m.StartMember):
            await self._take_part(started)
        else:
            self.note(late=True)
        self._link.post(m.Leave("the visit is over"))

    def note(self, **findings: object) -> None:
        """Add a finding to the report."""
        self.report = replace(self.report, visit=replace(self.report.visit, **findings))

    async def _take_part(self, started: m.StartMember) -> None:
        await asyncio.gather(self._try_store(started), self._try_dns())
        family = socket.AF_INET6 if ":" in self.report.address else socket.AF_INET
        with socket.create_server((self.report.address, 0), family=family, backlog=PEERS) as held:
            port = held.getsockname()[1]
            self._link.post(m.MemberStands(self._member, m.Standing(port=port)))
            formed = await self._receive(m.Seating, m.Dismiss)
            if isinstance(formed, m.Seating):
                followers = following(formed.places, self.report.address, port)
                self.note(peers=tuple(await asyncio.gather(*map(_connect, followers))))
                self._link.post(m.MemberStarted(self._member, os.getpid()))
                await self._receive(m.Dismiss)  # until the others have connected to this one

    async def _ask_time(self) -> None:
        sent = self._clock.now()
        self._link.post(m.MemberShared(self._member, CLOCK, b""))
        answer = await self._receive(m.PeerShared)
        margin_s = (self._clock.now() - sent) / 2
        # The clocks differ by the answer less half of its way; the fastest answer has the smallest error.
        if self.report.visit.ahead_s is None or margin_s < self.report.visit.margin_s:
            ahead_s = self._clock.wall() - margin_s - float(answer.value)
            self.note(ahead_s=ahead_s, margin_s=margin_s)

    async def _try_store(self, started: m.StartMember) -> None:
        """Look for the marker in the store as an agent does, in a thread: it may block for longer than the timeout."""
        if not started.store.url:
            return

        def look() -> bool:
            store = open_store(started.store)
            store.probe()
            return store.exists(str(started.call.params[MARKER]))

        try:
            async with asyncio.timeout(self._store_s):
                self.note(shared=await aside(look))
        except TimeoutError:
            self.note(
                store=f"{started.store.url} did not answer within {self._store_s:g} s; see that this host reaches it"
            )
        except (SparktrainError, OSError, ImportError) as error:
            self.note(store=str(error))

    async def _try_dns(self) -> None:
        """Resolve a name in a pod, in a thread: without a server of names it may block for longer than the timeout."""
        if not in_pod():
            return
        try:
            async with asyncio.timeout(DNS_S):
                await aside(lambda: socket.getaddrinfo(KUBERNETES_NAME, None))
            self.note(dns="")
        except TimeoutError:
            self.note(dns=f"no answer within {DNS_S:g} s")
        except OSError as error:
            self.note(dns=error.strerror or str(error))

    async def _receive(self, *kinds: type[m.Message]) -> Any:
        """The next message, which is one of `kinds`."""
        message = await self._link.receive()
        if isinstance(message, m.Refuse):
            raise ProtocolError(message.reason)
        if not isinstance(message, kinds):
            raise ProtocolError(f"{type(message).__name__} was not expected")
        return message


def following(places: tuple[MemberAddress, ...], address: str, port: int) -> list[MemberAddress]:
    """The addresses to connect to: at most `PEERS` of those that follow this slot's own."""
    mine = next((i for i, place in enumerate(places) if (place.address, place.port) == (address, port)), 0)
    return [*places[mine + 1 :], *places[:mine]][:PEERS]


async def _connect(place: MemberAddress) -> Peer:
    """Try to connect to `place`, and report the result."""
    problem = ""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(place.address, place.port)
        writer.close()
    except TimeoutError:
        problem = f"no answer within {CONNECT_S:g} s"
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
    return Peer(place.host, place.address, place.port, problem)
