"""Queries each slot of a session about its host in one Spark job, over the connection that agents use."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from sparktrain.base import formatting
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.cluster.import_failures import advice
from sparktrain.cluster.spark_facts import Facts
from sparktrain.cluster.token_renewer import tokens_for
from sparktrain.config.gang_spec import Role
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.agent_server import HEARTBEAT_S, LEASE_S
from sparktrain.driver.event_loop import call
from sparktrain.driver.pool import CONNECT_S, OPEN_TIMEOUT_S
from sparktrain.errors import ProtocolError
from sparktrain.ops.doctor.slots import Roll
from sparktrain.protocol import messages as m
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.checkup_report import CLOCK, MARKER, SlotReport, from_json, member
from sparktrain.protocol.grpc import GrpcListener
from sparktrain.protocol.member_call import MemberCall, MemberGang
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Link, LinkClosedError, Listener
from sparktrain.state.topology import MemberAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORM_S = 20.0
"""How long the slots may take to connect and try the store, from the first one that connects; those that have done so
then connect to each other."""
CONNECTED_S = 5.0
"""How long slots may take to connect to each other."""
JOB_TIMEOUT_S = 32.0
"""How long the whole job may take."""
CLOSE_S = 10.0


@dataclass(frozen=True)
class Shared:
    """The store that slots try, and a file in it that the driver has written. An empty address: no store."""

    address: StoreAddress = field(default_factory=lambda: StoreAddress(""))
    marker: str = ""
    tokens: m.Tokens | None = None
    """Delegation tokens by which slots use the store, where it needs them."""
    created_folders: tuple[str, ...] = ()
    """Folders of this machine that did not exist before, the outermost last."""


def call_roll(
    spark: "SparkSession",
    facts: Facts,
    slots: int,
    shared: Shared,
    *,
    form_s: float = FORM_S,
    job_timeout_s: float = JOB_TIMEOUT_S,
) -> Roll:
    """Query this many slots. Blocks for `job_timeout_s` and some seconds.

    Raises SessionError when this machine has no address for executors, ListenError when it cannot listen there.
    """
    from sparktrain.driver.spark_job import CheckupJob  # Spark alone has slots to call, and a machine may lack it

    address = facts.address
    name = f"doctor-{uuid.uuid4().hex[:12]}"
    certificates = issue(name)
    listener = GrpcListener(address.bind, (address.port,), certificates.server)
    keeper = tokens_for(spark, shared.address)
    shared = replace(shared, tokens=keeper.tokens if keeper is not None else None)
    survey = SlotSurvey(slots, shared, SystemClock(), form_s, CONNECTED_S, job_timeout_s)
    port = call(survey.open(listener), OPEN_TIMEOUT_S)
    job = CheckupJob(spark, AgentTicket(name, address.hosts, port, certificates.agent, CONNECT_S), slots)
    try:
        job.start()
        if not job.join(job_timeout_s):
            problem = (
                f"{formatting.count(survey.connected, 'slot')} connected, and the job did not end within "
                f"{job_timeout_s:.0f} s"
            )
            lacking = job.lacking()
            return Roll(slots, error=advice(lacking) if lacking is not None else problem)
        return roll_of(slots, job.reports, advice(job.missing) if job.missing is not None else job.error or "")
    finally:
        job.cancel()
        call(survey.close(), CLOSE_S)


def roll_of(slots: int, rows: tuple[str, ...], error: str) -> Roll:
    """The answers that the job returned, and the error that ended it, if any."""
    answers: list[SlotReport] = []
    for row in rows:
        try:
            answers.append(from_json(row))
        except msgspec.MsgspecError as problem:
            error = f"a slot sent an answer that this version does not understand ({problem})"
    return Roll(slots, tuple(sorted(answers, key=lambda report: report.slot)), error)


async def _refuse(header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
    raise ProtocolError(f"{header.name} refused: the doctor takes no files")


class SlotSurvey:
    """The doctor's counterpart of the coordinator: slots connect to it. All methods belong to the event loop."""

    def __init__(
        self, slots: int, shared: Shared, clock: Clock, form_s: float, connected_s: float, whole_s: float
    ) -> None:
        self.connected = 0
        """How many slots have connected so far, including those that left."""
        self._slots = slots
        self._shared = shared
        self._clock = clock
        self._form_s = form_s
        self._connected_s = connected_s
        self._latest = clock.now() + max(0.0, whole_s - connected_s)
        """When slots connect to each other at the latest: what follows has to end within `whole_s`."""
        self._listener: Listener | None = None
        self._leading: asyncio.Task[None] | None = None
        self._links: dict[int, Link] = {}
        self._places: dict[int, MemberAddress] = {}
        """The address of each slot that has reserved a port."""
        self._finished: set[int] = set()
        """Slots that have connected to the others, or left."""
        self._any_connected = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._all_connected = asyncio.Event()
        self._formed = False

    async def open(self, listener: Listener) -> int:
        """Accept slots and lead them through the checks; returns the port. Raises ListenError."""
        self._listener = listener
        _, port = await listener.start(self.serve, _refuse)
        self._leading = asyncio.create_task(self._lead())
        return port

    async def close(self) -> None:
        """Close the connections of all slots."""
        if self._leading is not None:
            self._leading.cancel()
        if self._listener is not None:
            await self._listener.close(1.0)

    async def serve(self, link: Link) -> None:
        """Serve one slot until it leaves, in a task of its own. Raises LinkClosedError when the connection breaks."""
        join = await link.receive()
        if not isinstance(join, m.Join):
            raise ProtocolError(f"the first message of {link.peer} is {type(join).__name__}, not Join")
        self.connected += 1
        self._any_connected.set()
        self._links[join.slot] = link
        link.post(m.Welcome(HEARTBEAT_S, LEASE_S, ()))
        try:
            while not isinstance(message := await link.receive(), m.Leave):
                self._answer(join, link, message)
        finally:
            self._links.pop(join.slot, None)
            self._finished.add(join.slot)
            self._check_progress()

    def _answer(self, join: m.Join, link: Link, message: m.Message) -> None:
        agent = member(join.slot)
        match message:
            case m.MemberShared(key=key) if key == CLOCK:
                link.post(m.PeerShared(agent, CLOCK, repr(self._clock.wall()).encode()))
            case m.Ready() if not self._formed:
                params = {MARKER: self._shared.marker}
                store = self._shared.address
                # Before the member, which uses the store at once.
                if self._shared.tokens is not None:
                    link.post(self._shared.tokens)
                member_call = MemberCall(params=params, seed=0, gang=MemberGang(size=self._slots))
                link.post(m.StartMember(member=agent, call=member_call, store=store))
            case m.MemberStands(standing=m.Standing(port=port)) if not self._formed:
                self._places[join.slot] = MemberAddress(join.host, join.address, port, Role.WORKER)
            case m.Ready() | m.MemberStands():
                link.post(m.Dismiss("the other slots have started without this one"))
            case m.MemberStarted():
                self._finished.add(join.slot)
            case _:
                raise ProtocolError(f"slot {join.slot} sent {type(message).__name__} to the doctor")
        self._check_progress()

    def _check_progress(self) -> None:
        if len(self._places) == self._slots:
            self._all_ready.set()
        if self._formed and self._places.keys() <= self._finished:
            self._all_connected.set()

    async def _lead(self) -> None:
        # The time to form starts with the first slot: on a busy host executors may need longer than that to start, and
        # were reported as late though they ran side by side.
        await self._wait(self._any_connected, self._left_s)
        await self._wait(self._all_ready, min(self._form_s, self._left_s))
        self._formed = True
        ready = {slot: link for slot, link in self._links.items() if slot in self._places}
        places = tuple(self._places[slot] for slot in sorted(ready))
        for slot, link in ready.items():
            _post(link, m.Seating(member=member(slot), places=places))
        await self._wait(self._all_connected, self._connected_s)
        for link in ready.values():
            _post(link, m.Dismiss("all slots have connected, or their time is over"))

    @property
    def _left_s(self) -> float:
        return max(0.0, self._latest - self._clock.now())

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait until `event` is set, for at most `seconds`."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()


def _post(link: Link, message: m.ToAgent) -> None:
    with suppress(LinkClosedError):  # the slot's own task notices
        link.post(message)
