"""What a call that an application of its own performs needs beyond the run directory, and where that one has it."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.decoding import from_json
from sparktrain.config.store_address import StoreAddress
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.run_place import RunPlace
from sparktrain.store.base import Store

PACKET = "sparktrain-call"
"""The file with the packet, in the working directory of the driver's container."""
ATTEMPTS = 2
"""How many drivers an application has, where the session names no number: YARN's own default."""


class ApplicationPacket(Struct, frozen=True, kw_only=True):
    """What the driver of the application reads. Perhaps with secrets: never printed, and in no run directory."""

    store: StoreAddress
    run: str
    call: str
    """The name of the call's folder."""
    attempts: int = ATTEMPTS
    """How many drivers YARN may start, one after the other."""
    env: dict[str, str] = {}
    """Environment variables of trials."""
    callbacks: bytes = b""
    """The callbacks of the call, pickled."""

    def __repr__(self) -> str:
        return f"ApplicationPacket({self.run!r}, {self.call!r})"


class ApplicationRequest(Struct, frozen=True, kw_only=True):
    """What the process that submits the application reads from its standard input."""

    packet: ApplicationPacket
    tag: str
    """The tag that identifies the application."""
    spark_submit: str
    """The program."""
    settings: dict[str, str]
    """Spark's configuration of the application, perhaps with secrets."""

    def __repr__(self) -> str:
        return f"ApplicationRequest({self.packet!r}, {self.tag!r})"


class StoredApplication(Struct, frozen=True, kw_only=True):
    """The application of a call, as `application.json` in its folder names it."""

    tag: str
    at: float
    """When it was requested, in seconds since 1970 by the client's clock, and after the one before."""
    urls: tuple[str, ...] = ()
    """Of the ResourceManager, as the client knows them."""
    place: RunPlace = RunPlace()
    """Of the run that it performs."""


def write_application(store: Store, layout: RunLayout, call: str, application: StoredApplication) -> None:
    """Store which application performs a call: it is newer than all that the run has, although the clocks of hosts
    differ. Blocks; raises OSError."""
    if (newest := newest_application(store, layout)) is not None:
        application = replace(application, at=max(application.at, newest[1].at + 1.0))
    application = replace(application, place=RunPlace.of(store, layout.path))
    store.put_if_absent(layout.coordinator(call).application, msgspec.json.encode(application))


def newest_application(store: Store, layout: RunLayout) -> tuple[str, StoredApplication] | None:
    """The newest call of a run that an application of its own performs, and that one; None where none does.

    Those of a run that was copied do not count. Blocks; raises OSError.
    """
    now = RunPlace.of(store, layout.path)
    applications = []
    for path in store.list(layout.coordinators):
        folder, _, name = path.rpartition("/")
        if name == "application.json":
            try:
                application = from_json(store.read(path), StoredApplication)
            except (msgspec.MsgspecError, FileNotFoundError):  # of another version, or deleted meanwhile
                continue
            if not application.place.is_elsewhere(now):
                applications.append((folder.rpartition("/")[2], application))
    return max(applications, key=lambda entry: entry[1].at, default=None)
