"""Every message between a feeder, which is a Spark task, and the member that it feeds, and the ticket of a feeder.

The feeder opens one exchange of Arrow Flight for each attempt of its task. Messages travel as metadata of that
exchange, in both directions; a `Chunk` accompanies a batch of rows. The last answer of a member travels in the status
of the call.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.columns import Column
from sparktrain.protocol.credentials import NO_CERTIFICATES, CertificateBundle
from sparktrain.state.message import Message

HEARTBEAT_S = 2.0
"""Interval at which both sides send a heartbeat, also while rows wait."""
FEED_LEASE_S = 15.0
"""A side that has sent nothing for so long is gone."""
NEXT_GENERATION_S = 120.0
"""A gang that has not opened its feed again for so long after the loss of a member will not."""
PICKLED = "pickled"
"""The only column of an RDD's rows: each value is the pickle of a list of rows."""
AUTHORIZATION = "authorization"
"""The header with the token."""


@dataclass(frozen=True)
class FeedAddress:
    """Where one member listens for feeders."""

    host: str
    port: int
    server: str
    """Random name of the process: another process behind the same port refuses the exchange."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class MemberStreams(Struct, frozen=True):
    """The streams of a run, and what a member needs to listen for their feeders. Secret: never shown or logged."""

    feeds: dict[str, tuple[Column, ...]] = {}
    """The columns of each; none for Python objects of an RDD."""
    certificates: CertificateBundle = NO_CERTIFICATES
    """With it, the member proves itself, and verifies feeders."""
    token: str = ""

    def __repr__(self) -> str:
        return f"MemberStreams({', '.join(self.feeds)})"


@dataclass(frozen=True)
class FeedTicket:
    """Pickled by Spark into every feeder's task; it holds a key and a token, which its repr does not show.

    Never put it into argv, environment, Spark configuration or a file.
    """

    feed: str
    """The name of the stream in `data=`."""
    addresses: tuple[FeedAddress, ...]
    """Those of all members, by rank: partition p feeds member p modulo their number."""
    certificates: CertificateBundle = field(repr=False)
    token: str = field(repr=False)
    columns: tuple[Column, ...] = ()
    """Those of a DataFrame, which its tasks check; none for the Python objects of an RDD."""
    epoch: int = 1
    micro_batch: int = 0
    """The id of a micro-batch of Structured Streaming; 0 for other streams."""
    connect_s: float = 15.0
    """How long a feeder tries to connect to its member before its task fails."""
    lease_s: float = FEED_LEASE_S
    """A member that has sent no heartbeat for so long is gone."""
    until_taken: bool = False
    """A partition is delivered when the training function has taken its rows, and not when they are in the queue."""


@dataclass(frozen=True)
class FeedDirectory:
    """Where the driver publishes the addresses of a feed's members, each time a gang opens the feed.

    Pickled by Spark into tasks, as a ticket is.
    """

    store: StoreAddress = field(repr=False)
    """Its settings may include secrets."""
    path: str
    """A folder of the store."""
    wait_s: float = NEXT_GENERATION_S
    """How long a task that has lost its member waits for the addresses of a newer generation."""


class FeedAddresses(Struct, frozen=True):
    """Where the members of one generation of a gang listen: a file of a `FeedDirectory`. Holds no secrets."""

    generation: int
    epoch: int
    addresses: tuple[FeedAddress, ...] = ()
    """Those of all members, by rank."""
    ended: str = ""
    """Why no member takes rows of the feed any more; empty while members do."""


# ---- feeder -> member


class OpenFeed(Message, frozen=True, tag=True):
    """The command of an exchange: which rows follow. Answered by a `FeedAnswer`, perhaps after heartbeats."""

    server: str
    feed: str
    epoch: int
    micro_batch: int
    partition: int
    attempt: int
    """The attempt of the task, as Spark counts it."""
    task: int
    """Spark's id of this attempt, unique in the application."""
    until_taken: bool = False
    """`Delivered` waits until the training function has taken all rows of the partition, and wants more."""
    answers: bool = False
    """The member answers each batch of rows with `Results`, which stay on this exchange."""


class Chunk(Message, frozen=True, tag=True):
    """Beside a batch of rows."""

    first_row: int
    """The number of rows of the partition before this batch."""
    checksum: int
    """CRC-32C of all batches of the partition up to this one, in Arrow's IPC format."""


class AskedRows(Message, frozen=True, tag=True):
    """Beside a batch of rows of an answered exchange: one value of `PICKLED`, the pickle of a list. Answered by
    `Results` with the same numbers."""

    first_row: int
    """The number of rows of the partition before this batch."""
    rows: int
    """The length of the list."""


class PartitionEnd(Message, frozen=True, tag=True):
    """The partition has no more rows. Answered by `Delivered`; not at all on an answered exchange, which the feeder
    closes once it has all results."""

    rows: int


class FeederHeartbeat(Message, frozen=True, tag=True):
    """The feeder is alive, and computes rows."""


FromFeeder = Chunk | AskedRows | PartitionEnd | FeederHeartbeat


# ---- member -> feeder


class SendFrom(Message, frozen=True, tag=True):
    """Answer to `OpenFeed`: send the rows after the first `rows`, which the member has from an earlier attempt."""

    rows: int
    batches: int
    """In how many batches it got them."""
    checksum: int
    """CRC-32C of those batches."""


class Results(Message, frozen=True, tag=True):
    """Beside a batch of results, in the order of rows: values of `PICKLED`, each the pickle of a list."""

    first_row: int
    """The number of rows of the partition before those that are answered."""
    rows: int


class Delivered(Message, frozen=True, tag=True):
    """The member has all rows of the partition, from this attempt or another one."""

    rows: int
    batches: int


class Enough(Message, frozen=True, tag=True):
    """The member needs no more rows of this epoch: the feeder returns."""


class Busy(Message, frozen=True, tag=True):
    """The member has as many exchanges as it allows: open another one later."""

    streams: int


class FeedRefused(Message, frozen=True, tag=True):
    """The member does not accept what the feeder sent; another attempt may."""

    reason: str


class MemberHeartbeat(Message, frozen=True, tag=True):
    """The member is alive, and perhaps slow."""


LastAnswer = Delivered | Enough | Busy | FeedRefused
"""Ends an exchange, as the extra information of the call's status.

As a message it might be lost: when a feeder's write fails, because the member has ended the exchange in that moment,
Flight drops all messages that the feeder has not read yet.
"""
FeedAnswer = SendFrom | LastAnswer
FromFedMember = SendFrom | Results | MemberHeartbeat
