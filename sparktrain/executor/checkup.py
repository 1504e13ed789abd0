"""What a slot tells about its host, and whom it reaches: `sparktrain doctor` on the executor's side.

It does what a member of a gang does before it trains, with the same messages: it joins, is given the store, holds a
port, is told where the others are, and connects to them. Nothing is read from those connections or written to them.
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

from sparktrain.clock import Clock, SystemClock
from sparktrain.config.versions import installed_versions
from sparktrain.errors import ProtocolError, SparktrainError
from sparktrain.executor.scratch import held
from sparktrain.executor.spark_task import Placement, placement, spark_version
from sparktrain.executor.zygote_process import scratch_root
from sparktrain.ids import AgentId
from sparktrain.protocol import messages as m
from sparktrain.protocol.checkup_report import CLOCK, MARKER, PACKAGES, Peer, SlotTold, member, to_json
from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError, Unreachable
from sparktrain.state.topology import MemberAddress
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.url import open_store
from sparktrain.threads import aside

VISIT_S = 30.0
"""How long a slot stays with the coordinator at most, once it has reached it."""
STORE_S = 15.0
CONNECT_S = 3.0
"""How long it tries to connect to another slot."""
PEERS = 16
"""It connects to so many others, those that follow it: in a large session each pair would be too many."""
_TIMES = 3
"""How often it asks for the time; the fastest answer counts."""


def check_up(slot: int, ticket: AgentTicket) -> str:
    """Tell about this slot of a Spark job, as JSON. Blocks, for a minute at most."""
    place = placement(slot, ticket)
    return to_json(asyncio.run(visit(observed(place), GrpcDialer(ticket), ticket.connect_s)))


def observed(place: Placement) -> SlotTold:
    """What can be told without asking anybody; nothing heavy is imported."""
    memory = psutil.virtual_memory()
    return SlotTold(
        slot=place.slot,
        host=place.host,
        address=place.address,
        python=platform.python_version(),
        executable=sys.executable,
        spark=spark_version(),
        java=java_version(),
        versions=installed_versions(PACKAGES),
        executor=place.executor,
        gpus=place.gpus,
        devices=place.devices,
        memory_bytes=memory.total,
        free_bytes=memory.available,
    )


def java_version() -> str:
    """Of the Java that this process descends from, as its `release` file has it; empty when there is none."""
    try:
        homes = [Path(each.exe()).parents[1] for each in psutil.Process().parents() if each.name() == "java"]
        lines = [line for home in homes[:1] for line in (home / "release").read_text().splitlines()]
    except (OSError, psutil.Error):
        return ""
    versions = (line.partition("=")[2].strip('"') for line in lines if line.startswith("JAVA_VERSION="))
    return next(versions, "")


async def visit(
    told: SlotTold, dialer: Dialer, connect_s: float, *, visit_s: float = VISIT_S, store_s: float = STORE_S
) -> SlotTold:
    """`told`, with what a visit to the coordinator found."""
    try:
        link = await dialer.attend(connect_s)
    except Unreachable as error:
        return replace(told, problem=str(error))
    with held(scratch_root()) as scratch:
        tokens = TokenFile(scratch)
        visitor = Visitor(told, link, SystemClock(), tokens, store_s)
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
    return visitor.told


class Visitor:
    """One visit. All methods belong to its event loop."""

    def __init__(self, told: SlotTold, link: Link, clock: Clock, tokens: TokenFile, store_s: float = STORE_S) -> None:
        self.told = told
        self._tokens = tokens
        self._member = member(told.slot)
        self._link = link
        self._clock = clock
        self._store_s = store_s

    async def run(self) -> None:
        """From `Join` to `Leave`. Raises LinkClosedError, or ProtocolError for what nobody says here."""
        told = self.told
        agent = AgentId(f"doctor-{told.slot}")
        self._link.post(
            m.Join(agent, told.slot, told.host, os.getpid(), told.versions, told.devices, told.executor, told.address)
        )
        await self._hear(m.Welcome)
        for _ in range(_TIMES):
            await self._ask_time()
        self._link.post(m.Ready())
        begun = await self._hear(m.StartMember, m.Tokens, m.Dismiss)
        if isinstance(begun, m.Tokens):
            await asyncio.to_thread(self._tokens.keep, begun.content)
            begun = await self._hear(m.StartMember)
        if isinstance(begun, m.StartMember):
            await self._take_part(begun)
        else:
            self.note(late=True)
        self._link.post(m.Leave("told"))

    def note(self, **found: object) -> None:
        """Keep what was found."""
        self.told = replace(self.told, **found)

    async def _take_part(self, begun: m.StartMember) -> None:
        await self._try_store(begun)
        family = socket.AF_INET6 if ":" in self.told.address else socket.AF_INET
        with socket.create_server((self.told.address, 0), family=family, backlog=PEERS) as held:
            port = held.getsockname()[1]
            self._link.post(m.MemberReserved(self._member, port))
            formed = await self._hear(m.FormGang, m.Dismiss)
            if isinstance(formed, m.FormGang):
                others = following(formed.places, self.told.address, port)
                self.note(peers=tuple(await asyncio.gather(*map(_connect, others))))
                self._link.post(m.MemberStarted(self._member, os.getpid()))
                await self._hear(m.Dismiss)  # until the others have connected to this one

    async def _ask_time(self) -> None:
        sent = self._clock.now()
        self._link.post(m.MemberShared(self._member, CLOCK, b""))
        answer = await self._hear(m.PeerShared)
        margin_s = (self._clock.now() - sent) / 2
        if self.told.ahead_s is None or margin_s < self.told.margin_s:
            ahead_s = self._clock.wall() - margin_s - float(answer.value)
            self.note(ahead_s=ahead_s, margin_s=margin_s)

    async def _try_store(self, begun: m.StartMember) -> None:
        """As the agent of a member does, from a thread: it may block for longer than anybody waits."""
        if not begun.store.url:
            return

        def look() -> bool:
            store = open_store(begun.store)
            store.probe()
            return store.exists(str(begun.params[MARKER]))

        try:
            async with asyncio.timeout(self._store_s):
                self.note(shared=await aside(look))
        except TimeoutError:
            self.note(
                store=f"{begun.store.url} did not answer within {self._store_s:g} s; see that this host reaches it"
            )
        except (SparktrainError, OSError, ImportError) as error:
            self.note(store=str(error))

    async def _hear(self, *kinds: type[m.Message]) -> Any:
        """The next message, which is one of `kinds`."""
        message = await self._link.receive()
        if isinstance(message, m.Refuse):
            raise ProtocolError(message.reason)
        if not isinstance(message, kinds):
            raise ProtocolError(f"{type(message).__name__} was not expected")
        return message


def following(places: tuple[MemberAddress, ...], address: str, port: int) -> list[MemberAddress]:
    """The places to connect to: `PEERS` at most of those that follow one's own."""
    mine = next((i for i, place in enumerate(places) if (place.address, place.port) == (address, port)), 0)
    return [*places[mine + 1 :], *places[:mine]][:PEERS]


async def _connect(place: MemberAddress) -> Peer:
    """Whether its host answers there."""
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
