"""A slot's report about its host, for `sparktrain doctor`; as JSON it is a row of a Spark job."""

from typing import Any

from msgspec import Struct, json, to_builtins

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId

CLOCK = "clock"
"""Key of `MemberShared` that asks for the coordinator's time, and of `PeerShared`, which has it as text."""
MARKER = "marker"
"""Parameter of `StartMember` that names a file that the driver has put into the store."""

PACKAGES = ("sparktrain", "tensorflow", "keras", "horovod")
"""Packages that a slot reports the versions of."""


class Peer(Struct, frozen=True):
    """Another slot that this one has tried to connect to."""

    host: str
    address: str
    port: int
    problem: str = ""
    """Why it could not; empty when it could."""


class SlotSoftware(Struct, frozen=True, kw_only=True):
    """What a slot's process runs on."""

    python: str
    """Full version."""
    executable: str
    spark: str
    """Version of PySpark."""
    java: str
    """Version of the executor's Java; empty when it cannot be found."""
    versions: dict[str, str]
    """Versions of Python, to the minor version, and of the installed ones of `PACKAGES`."""


class SlotVisit(Struct, frozen=True, kw_only=True):
    """What a slot's visit to the coordinator has found."""

    problem: str = ""
    """Why the driver was not reached, or the visit was cut off; empty when neither."""
    late: bool = False
    """It started after the others had connected: the slots do not run at the same time."""
    ahead_s: float | None = None
    """How much the host's clock is ahead of the driver's; None when the driver was not reached."""
    margin_s: float = 0.0
    """By how much `ahead_s` may be wrong."""
    store: str = ""
    """Why the store cannot be used from here; empty when it can, or was not tried."""
    shared: bool | None = None
    """Whether it sees a file that the driver has written there; None when that was not tried."""
    dns: str | None = None
    """Why a name that each Kubernetes cluster has is not resolved, empty where it is; None outside of a pod."""
    peers: tuple[Peer, ...] = ()
    """Slots that were tried; empty where the slots did not connect."""


class SlotReport(Struct, frozen=True, kw_only=True):
    """One slot of a session."""

    slot: int
    host: str
    address: str
    """IP address of the host, as the other slots get it."""
    software: SlotSoftware
    executor: int
    """Spark's process that all slots of the executor share."""
    gpus: tuple[str, ...]
    """Addresses that Spark gave."""
    devices: tuple[str, ...]
    """The same GPUs by names that differ between all GPUs of the host."""
    memory_bytes: int
    """Of the whole host, or of its container where that has less."""
    free_bytes: int
    """Memory of the same that is available to new processes."""
    shared_memory_bytes: int
    """The size of the file system by which processes share memory; 0 where there is none."""
    visit: SlotVisit = SlotVisit()

    def document(self) -> dict[str, Any]:
        """The slot in the document of `sparktrain doctor --json`."""
        flat: dict[str, Any] = {}
        for name, value in to_builtins(self).items():
            flat |= value if isinstance(getattr(self, name), Struct) else {name: value}
        return flat


def member(slot: int) -> Member:
    """A slot, as if it were a member of a gang of all slots."""
    return Member(RunId("doctor"), TrialId(0), Generation(1), Rank(slot))


def to_json(report: SlotReport) -> str:
    """One line of JSON."""
    return json.encode(report).decode()


def from_json(written: str) -> SlotReport:
    """What `to_json` wrote. Raises msgspec.MsgspecError for anything else."""
    return json.decode(written, type=SlotReport)
