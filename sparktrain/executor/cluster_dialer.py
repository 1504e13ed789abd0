"""Finds the coordinator that an agent of the same call has started, and starts one where there is none.

No process outside of the cluster takes part. The agent looks into the folder of its call in the run directory
(`rundir/coordinator_folder`) for the newest address, and dials it. Where nothing answers there, it puts the next claim
and starts a coordinator as a process beside itself. Of agents that see the same loss, the one of the lowest slot goes
first, because each waits a little for every slot before its own; put-if-absent makes sure that only one wins.

A coordinator counts as dead as soon as its host refuses connections, and after `SILENT_S` where its host does not
answer: a host that is cut off must not take over from a coordinator that serves all others, so the successor first
asks the old one, and where that answers, it stands back (`driver/clustered`). A claim without an address is void after
`START_S`, or as soon as its process has ended, when it is the agent's own.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import aside
from sparktrain.executor.spark_task import Placement, executor_hosts
from sparktrain.executor.zygote_process import agent_environment
from sparktrain.protocol.coordinator_office import CoordinatorOffice
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.messages import UploadDone, UploadHeader
from sparktrain.protocol.ticket import AgentTicket, CoordinatorHome
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError, Unreachable
from sparktrain.rundir.coordinator_folder import (
    CoordinatorAddress,
    CoordinatorClaim,
    CoordinatorFolder,
    CoordinatorLookout,
)
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.url import open_store

END_TIMEOUT_S = 60.0
"""How long a coordinator may take to write the result once its agents are dismissed, before it is ended."""


class CoordinatorProcess:
    """One coordinator. All methods belong to the main thread of the agent's process."""

    def __init__(self, scratch: Path) -> None:
        """`scratch` is a folder of the agent, in which the process works."""
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def lives(self) -> bool:
        """It has started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, office: CoordinatorOffice) -> None:
        """Start the process, which ends with this one. Blocks for fork and exec alone; raises OSError.

        Its output goes where that of the agent goes, into the log of the executor.
        """
        self._scratch.mkdir(parents=True, exist_ok=True)
        # No session of its own: the agent takes children in other sessions for orphans of its zygote. And from the
        # main thread: the kernel ends the process when the thread that started it ends.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sparktrain.driver.clustered", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            cwd=self._scratch,
            env=agent_environment(),
        )
        assert self._process.stdin is not None
        # The secrets travel in this pipe alone: they are in no argument, variable or file.
        with self._process.stdin as pipe:
            pipe.write(msgspec.msgpack.encode(office))

    def close(self, patience_s: float = END_TIMEOUT_S) -> None:
        """Let it write the result of the run for `patience_s`, and end it then. Blocks."""
        if self._process is None:
            return
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


LOOK_S = 0.25
"""Interval at which an agent without a coordinator looks into the run directory."""
TRY_S = 1.5
"""How long one attempt to reach a published address may take."""
SILENT_S = 20.0
"""How long a host may not answer before its coordinator counts as dead."""
START_S = 60.0
"""How long a coordinator may take from its claim until it listens."""
FIRST_TURN_S = 5.0
"""How long the other agents wait for that of slot 0 to start the first coordinator."""
TURN_S = 0.2
"""How long an agent waits for each slot before its own, before it takes over."""
LONGEST_TURN_S = 3.0
HOLD_S = 60.0
"""How long an agent holds its member without a coordinator. A takeover takes about 5 s, and 25 s where the host of the
coordinator is silent; a member that no coordinator adopts holds the GPU of its slot meanwhile."""
JOIN_S = 120.0
"""How long a fresh agent looks for a coordinator, without a run that has ended."""
OVER = "the run has ended"
MOST_FAILURES = 5
"""After so many coordinators in a row that never listened, agents give up."""
MOST_CLAIMS = 200
"""A call has no more coordinators than this."""

StartCoordinator = Callable[[CoordinatorOffice], None]


@dataclass
class _Absence:
    """Since when the newest coordinator does not answer, by the agent's clock."""

    number: int
    since: float
    refused: bool = False


class ClusterDialer(Dialer):
    """See base class and module. All methods belong to one event loop, in the main thread of the agent's process."""

    def __init__(
        self,
        ticket: AgentTicket,
        home: CoordinatorHome,
        place: Placement,
        process: CoordinatorProcess,
        sys_path: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._ticket = ticket
        self._home = home
        self._place = place
        self._process = process
        self._sys_path = sys_path
        self._clock = clock or SystemClock()
        self._folder: CoordinatorFolder | None = None
        self._dialer: GrpcDialer | None = None
        self._mine = 0
        """The number of the newest coordinator that this agent has started."""
        self._absence: _Absence | None = None
        self._has_noted = False

    async def attend(self, deadline_s: float) -> Link:
        """See base class. Raises Unreachable with `refused` once the run has ended."""
        until = self._clock.now() + deadline_s
        problem = "no agent has started one yet"
        while True:
            try:
                await aside(self._note_operation)
                lookout = await aside(self._look)
            except OSError as error:
                problem = f"the run directory cannot be read: {error}"
            else:
                if lookout.end is not None:
                    raise Unreachable(OVER, refused=True)
                link = await self._reach(lookout)
                if link is not None:
                    return link
                problem = self._problem(lookout)
            if self._clock.now() >= until:
                raise Unreachable(f"the coordinator of run {self._home.run} was not reached: {problem}")
            await self._clock.sleep(LOOK_S)

    async def _reach(self, lookout: CoordinatorLookout) -> Link | None:
        """A link to the newest coordinator, if it answers; where none is left, this agent may start one."""
        if lookout.address is not None and lookout.number == lookout.claims:
            try:
                link = await self._dial(lookout.address)
            except Unreachable as error:
                self._note_absence(lookout.claims, refused=error.refused)
            else:
                self._absence = None
                return link
        else:
            self._note_absence(lookout.claims)
        if self._has_turn(lookout):
            await self._start(lookout)
        return None

    async def _dial(self, address: CoordinatorAddress) -> Link:
        if address.fingerprint != self._home.fingerprint:  # another program's file
            raise Unreachable("the address is of no coordinator of this call")
        await self._hang_up()
        self._dialer = GrpcDialer(replace(self._ticket, hosts=address.hosts, port=address.port), clock=self._clock)
        return await self._dialer.attend(TRY_S)

    def _note_absence(self, number: int, *, refused: bool = False) -> None:
        if self._absence is None or self._absence.number != number:
            self._absence = _Absence(number, self._clock.now(), refused)
        self._absence.refused = refused

    def _has_turn(self, lookout: CoordinatorLookout) -> bool:
        """Whether this agent starts the next coordinator now."""
        absence = self._absence
        assert absence is not None
        gone_s = self._clock.now() - absence.since
        turn_s = min(TURN_S * self._place.slot, LONGEST_TURN_S)
        if lookout.claims == 0:
            return self._place.slot == 0 or gone_s >= FIRST_TURN_S + turn_s
        if lookout.number == lookout.claims:  # it has listened, and does not answer
            return gone_s >= (turn_s if absence.refused else SILENT_S + turn_s)
        if self._mine == lookout.claims and not self._process.lives:
            return True
        return gone_s >= START_S + turn_s

    async def _start(self, lookout: CoordinatorLookout) -> None:
        """Start the next coordinator here, unless another agent does. Raises Unreachable where it would fail as the
        others did."""
        failures = lookout.claims - lookout.number
        if failures >= MOST_FAILURES or lookout.claims >= MOST_CLAIMS:
            lost = f"{failures} coordinators in a row never listened" if failures else f"{lookout.claims} were lost"
            raise Unreachable(f"{lost}: see the stderr of the executors", refused=True)
        number = lookout.claims + 1
        place = self._place
        claim = CoordinatorClaim(place.slot, place.host, place.pid, self._clock.wall())
        if self._process.lives or not await aside(partial(self._opened.claim, number, claim)):
            return
        self._mine = number
        home = self._home
        self._process.start(
            CoordinatorOffice(
                store=home.store,
                run=home.run,
                call=home.call,
                number=number,
                hosts=executor_hosts(place.jvm),
                secrets=home.secrets,
                tokens=home.tokens,
                sys_path=self._sys_path,
            )
        )

    def _problem(self, lookout: CoordinatorLookout) -> str:
        if lookout.address is None:
            return "none listens yet" if lookout.claims else "no agent has started one yet"
        return f"{lookout.address.hosts[0]}:{lookout.address.port} does not answer"

    def _note_operation(self) -> None:
        """Let the coordinator know what it has to keep alive: only a task knows the operation that runs it."""
        if self._place.operation is not None and not self._has_noted:
            self._opened.note_operation(self._place.operation)
            self._has_noted = True

    def _look(self) -> CoordinatorLookout:
        return self._opened.look()

    @property
    def _opened(self) -> CoordinatorFolder:
        if self._folder is None:
            self._folder = CoordinatorFolder(
                open_store(self._home.store), RunLayout(self._home.run).coordinator(self._home.call)
            )
        return self._folder

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class. Nothing to do: every coordinator of the call has the certificates of its tickets."""

    async def upload(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """See base class."""
        if self._dialer is None:
            raise LinkClosedError("the coordinator cannot take an upload: not connected to it")
        return await self._dialer.upload(header, chunks)

    async def close(self) -> None:
        """See base class. A coordinator that this agent has started stays: it has the result to write."""
        await self._hang_up()

    async def _hang_up(self) -> None:
        if self._dialer is not None:
            await self._dialer.close()
