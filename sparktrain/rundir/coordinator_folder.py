"""The files of a run directory by which agents find the coordinator that one of them has started.

Every file is put if absent, under numbers without a gap, as the terms of a journal are. The agent that puts claim N
starts coordinator N as a process on its host; the coordinator puts address N once it listens. So an agent that loses
its stream looks for the newest address, and where that one is dead, the agents race for the next claim. These files
decide nothing about the run: a coordinator owns it once it has the next term of the journal, and an older one that
still lives is fenced there.
"""

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.config.connect_server import ConnectOperation
from sparktrain.rundir.layout import CoordinatorLayout
from sparktrain.store.base import Store

T = TypeVar("T")

_NUMBERED = re.compile(r"(claim|address)-(\d{4,})\.json")
_CLIENT = re.compile(r"client-(\d{8,})\.json")


class CoordinatorClaim(Struct, frozen=True):
    """An agent starts a coordinator."""

    slot: int
    host: str
    pid: int
    at: float
    """When, in seconds since 1970 by the clock of its host."""


class CoordinatorAddress(Struct, frozen=True):
    """Where a coordinator listens."""

    hosts: tuple[str, ...]
    """The likeliest first."""
    port: int
    fingerprint: str
    """Of its key."""


class CoordinatorHeartbeat(Struct, frozen=True):
    """A heartbeat of a coordinator, for processes that cannot reach it."""

    at: float
    """When, in seconds since 1970 by the clock of its host: for people."""
    fingerprint: str
    home: str = ""
    """Where its process is, as `this_home` has it; empty in those of an older sparktrain."""
    pid: int = 0


class CallEnd(Struct, frozen=True):
    """How a call has ended: `results.json` has the result where it raises nothing."""

    error: str = ""
    """The name of the error that the call raises, of a class of `sparktrain.errors`."""
    message: str = ""


class CoordinatorLookout(Struct, frozen=True):
    """What a look at the folder has shown."""

    claims: int = 0
    """The number of the newest claim; 0 before the first."""
    number: int = 0
    """The number of the newest coordinator that has listened."""
    address: CoordinatorAddress | None = None
    """Where that one listens."""
    end: CallEnd | None = None


class ClientTrace(Struct, frozen=True):
    """What the client of a call leaves there for the process that stands in for it."""

    heartbeats: int = 0
    """The number of its newest heartbeat; 0 before the first."""
    operations: frozenset[ConnectOperation] = frozenset()
    """The operations of a Connect server that run, or ran, the agents of the call."""


class CoordinatorFolder:
    """The folder of one call. Each method blocks on the store, and raises OSError when it fails; any thread."""

    def __init__(self, store: Store, layout: CoordinatorLayout) -> None:
        self._store = store
        self._layout = layout

    def look(self) -> CoordinatorLookout:
        """The newest claim and the newest address; only the end, once there is one."""
        names = [path.rpartition("/")[2] for path in self._store.list(self._layout.path)]
        if "end.json" in names and (end := self._read(self._layout.end, CallEnd)) is not None:
            return CoordinatorLookout(end=end)
        newest = {"claim": 0, "address": 0}
        for match in filter(None, map(_NUMBERED.fullmatch, names)):
            newest[match[1]] = max(newest[match[1]], int(match[2]))
        number = newest["address"]
        address = self._read(self._layout.address(number), CoordinatorAddress) if number else None
        return CoordinatorLookout(claims=max(newest.values()), number=number, address=address)

    def claim(self, number: int, claim: CoordinatorClaim) -> bool:
        """Whether this agent, and no other one, starts the coordinator of this number."""
        return self._store.put_if_absent(self._layout.claim(number), msgspec.json.encode(claim))

    def publish(self, number: int, address: CoordinatorAddress) -> None:
        """Let agents know where this coordinator listens."""
        self._store.put_if_absent(self._layout.address(number), msgspec.json.encode(address))

    def heartbeat(self, number: int, count: int, heartbeat: CoordinatorHeartbeat) -> None:
        """Show that coordinator `number` lives, for the `count`th time: the sign before is deleted."""
        self._store.put_if_absent(self._layout.heartbeat(number, count), msgspec.json.encode(heartbeat))
        if count > 1:
            self._store.delete(self._layout.heartbeat(number, count - 1))

    def note_operation(self, operation: ConnectOperation) -> None:
        """Let coordinators know which operation of a Connect server runs an agent of the call."""
        self._store.put_if_absent(self._layout.operation(operation.operation), msgspec.json.encode(operation))

    def client_heartbeat(self, count: int) -> None:
        """Show that the client lives, for the `count`th time: the heartbeat before is deleted."""
        self._store.put_if_absent(self._layout.client_heartbeat(count), b"{}")
        if count > 1:
            self._store.delete(self._layout.client_heartbeat(count - 1))

    def client_trace(self) -> ClientTrace:
        """What the client has left so far."""
        paths = [(path, path.rpartition("/")[2]) for path in self._store.list(self._layout.path)]
        counts = [int(match[1]) for _, name in paths if (match := _CLIENT.fullmatch(name))]
        operations = [self._read(path, ConnectOperation) for path, name in paths if name.startswith("operation-")]
        return ClientTrace(max(counts, default=0), frozenset(filter(None, operations)))

    def finish(self, end: CallEnd) -> None:
        """The call is over; the first end counts."""
        self._store.put_if_absent(self._layout.end, msgspec.json.encode(end))

    def _read(self, path: str, kind: type[T]) -> T | None:
        """The content of a file; None for one that another program has put there."""
        try:
            return from_json(self._store.read(path), kind)
        except (msgspec.MsgspecError, FileNotFoundError):
            return None


def newest_heartbeat(store: Store, folder: str, fingerprint: str) -> tuple[str, CoordinatorHeartbeat] | None:
    """Path and content of the newest heartbeat below `folder` of coordinators with that key, by their numbers.

    Blocks; raises OSError.
    """
    heartbeats: dict[str, CoordinatorHeartbeat] = {}
    for path in store.list(folder):
        if path.rpartition("/")[2].startswith("heartbeat-"):
            try:
                heartbeats[path] = from_json(store.read(path), CoordinatorHeartbeat)
            except (msgspec.MsgspecError, FileNotFoundError):  # of another program, or replaced meanwhile
                continue
    paths = [path for path, heartbeat in heartbeats.items() if heartbeat.fingerprint == fingerprint]
    newest = max(paths, key=lambda path: path.rpartition("/")[2], default=None)
    return None if newest is None else (newest, heartbeats[newest])


def this_home() -> str:
    """The boot of this host and its namespace of processes: within one, numbers of processes are comparable."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def newest_error(store: Store, folder: str) -> CallEnd | None:
    """The end of a call below `folder` that has raised an error; None where none has. Blocks; raises OSError."""
    for path in store.list(folder):
        if path.rpartition("/")[2] == "end.json":
            try:
                end = from_json(store.read(path), CallEnd)
            except (msgspec.MsgspecError, FileNotFoundError):
                continue
            if end.error:
                return end
    return None
