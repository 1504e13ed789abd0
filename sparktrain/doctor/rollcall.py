"""Asking each slot of a session about its host: over the connection that agents use, in one Spark job."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
from pyspark.sql import SparkSession

from sparktrain import formatting
from sparktrain.clock import Clock, SystemClock
from sparktrain.cluster.driver_address import address_of
from sparktrain.cluster.import_failures import advice
from sparktrain.cluster.spark_facts import Facts
from sparktrain.cluster.token_renewer import tokens_for
from sparktrain.config.gang_spec import Role
from sparktrain.config.store_address import StoreAddress
from sparktrain.doctor.slots import Roll
from sparktrain.driver.agent_server import HEARTBEAT_S, LEASE_S
from sparktrain.driver.event_loop import call
from sparktrain.driver.pool import CONNECT_S, OPEN_TIMEOUT_S
from sparktrain.driver.spark_job import CheckupJob
from sparktrain.errors import ProtocolError
from sparktrain.protocol import messages as m
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.checkup_report import CLOCK, MARKER, SlotTold, from_json, member
from sparktrain.protocol.grpc import GrpcListener
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Link, LinkClosedError, Listener
from sparktrain.state.topology import MemberAddress

FORM_S = 20.0
"""How long the slots may take to come, and to try the store; those that are there then form."""
CONNECTED_S = 5.0
"""How long those that have formed may take to connect to each other."""
TOLD_S = 32.0
"""How long the whole job may take."""
CLOSE_S = 10.0


@dataclass(frozen=True)
class Shared:
    """The store, and a file in it that the driver has written; slots try no store without an address."""

    address: StoreAddress = field(default_factory=lambda: StoreAddress(""))
    marker: str = ""
    tokens: m.Tokens | None = None
    """By which slots use the store, where they need some."""
    made: tuple[str, ...] = ()
    """Folders of this machine that were not there before, the outermost last."""


def call_roll(spark: SparkSession, facts: Facts, slots: int, shared: Shared) -> Roll:
    """Ask so many slots. Blocks, for `TOLD_S` and some seconds.

    Raises SessionError when this machine has no address for executors, ListenError when it cannot listen there.
    """
    address, name = address_of(facts.conf), f"doctor-{uuid.uuid4().hex[:12]}"
    certificates = issue(name)
    listener = GrpcListener(address.bind, (address.port,), certificates.server)
    keeper = tokens_for(spark, shared.address)
    shared = replace(shared, tokens=keeper.tokens if keeper is not None else None)
    hall = SlotSurvey(slots, shared, SystemClock(), FORM_S, CONNECTED_S)
    port = call(hall.open(listener), OPEN_TIMEOUT_S)
    job = CheckupJob(spark, AgentTicket(name, address.hosts, port, certificates.agent, CONNECT_S), slots)
    try:
        job.start()
        if not job.join(TOLD_S):
            said = f"{formatting.count(hall.came, 'slot')} came, and its job did not end within {TOLD_S:g} s"
            lacking = job.lacking()
            return Roll(slots, error=advice(lacking) if lacking is not None else said)
        return roll_of(slots, job.told, advice(job.missing) if job.missing is not None else job.error or "")
    finally:
        job.cancel()
        call(hall.close(), CLOSE_S)


def roll_of(slots: int, rows: tuple[str, ...], error: str) -> Roll:
    """From what the job returned, or why it ended."""
    told: list[SlotTold] = []
    for row in rows:
        try:
            told.append(from_json(row))
        except msgspec.MsgspecError as problem:
            error = f"a slot told what this version does not understand ({problem})"
    return Roll(slots, tuple(sorted(told, key=lambda each: each.slot)), error)


async def _refuse(header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
    raise ProtocolError(f"{header.name} refused: the doctor takes no files")


class SlotSurvey:
    """Where the slots meet, as agents meet at the coordinator. All methods belong to the coordinators' loop."""

    def __init__(self, slots: int, shared: Shared, clock: Clock, form_s: float, connected_s: float) -> None:
        self.came = 0
        """Slots that have connected so far, whatever became of them."""
        self._slots = slots
        self._shared = shared
        self._clock = clock
        self._form_s = form_s
        self._connected_s = connected_s
        self._listener: Listener | None = None
        self._presiding: asyncio.Task[None] | None = None
        self._links: dict[int, Link] = {}
        self._places: dict[int, MemberAddress] = {}
        """Of each slot that holds a port."""
        self._connected: set[int] = set()
        self._all_here = asyncio.Event()
        self._all_connected = asyncio.Event()
        self._formed = False

    async def open(self, listener: Listener) -> int:
        """Let slots in, and lead them; the port. Raises ListenError."""
        self._listener = listener
        _, port = await listener.start(self.serve, _refuse)
        self._presiding = asyncio.create_task(self._preside())
        return port

    async def close(self) -> None:
        """Send everybody away."""
        if self._presiding is not None:
            self._presiding.cancel()
        if self._listener is not None:
            await self._listener.close(1.0)

    async def serve(self, link: Link) -> None:
        """One slot's visit. Runs as a task of its own. Raises LinkClosedError when it is cut off."""
        join = await link.receive()
        if not isinstance(join, m.Join):
            raise ProtocolError(f"the first message of {link.peer} is {type(join).__name__}, not Join")
        self.came += 1
        self._links[join.slot] = link
        link.post(m.Welcome(HEARTBEAT_S, LEASE_S, ()))
        try:
            while not isinstance(message := await link.receive(), m.Leave):
                self._answer(join, link, message)
        finally:
            self._links.pop(join.slot, None)
            self._connected.add(join.slot)  # nobody waits for it any more
            self._look_round()

    def _answer(self, join: m.Join, link: Link, message: m.Message) -> None:
        guest = member(join.slot)
        match message:
            case m.MemberShared(key=key) if key == CLOCK:
                link.post(m.PeerShared(guest, CLOCK, repr(self._clock.wall()).encode()))
            case m.Ready() if not self._formed:
                params, store = {MARKER: self._shared.marker}, self._shared.address
                if self._shared.tokens is not None:
                    link.post(self._shared.tokens)
                link.post(m.StartMember(guest, self._slots, params, 0, None, 0, store=store))
            case m.MemberReserved(port=port) if not self._formed:
                self._places[join.slot] = MemberAddress(join.host, join.address, port, Role.WORKER)
            case m.Ready() | m.MemberReserved():
                link.post(m.Dismiss("the others have formed already"))
            case m.MemberStarted():
                self._connected.add(join.slot)
            case _:
                raise ProtocolError(f"slot {join.slot} sent {type(message).__name__} to the doctor")
        self._look_round()

    def _look_round(self) -> None:
        if len(self._places) == self._slots:
            self._all_here.set()
        if self._formed and self._places.keys() <= self._connected:
            self._all_connected.set()

    async def _preside(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_here.wait(), self._form_s)
        self._formed = True
        guests = {slot: link for slot, link in self._links.items() if slot in self._places}
        places = tuple(self._places[slot] for slot in sorted(guests))
        for slot, link in guests.items():
            _post(link, m.FormGang(member(slot), places))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_connected.wait(), self._connected_s)
        for link in guests.values():
            _post(link, m.Dismiss("all have connected, or had the time to"))


def _post(link: Link, message: m.ToAgent) -> None:
    with suppress(LinkClosedError):  # its own task finds out
        link.post(message)
