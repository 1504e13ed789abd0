"""The rows of one feed between the exchanges that bring them and the thread that trains, each row once.

A partition has one feeder at a time. What the trainer may see of it is recorded under the lock under which rows enter
the queue, so a retried attempt continues exactly after it. No socket and no Flight is in it.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from sparktrain.clock import Clock, SystemClock
from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import FEED_LEASE_S
from sparktrain.training.notices import notice

MOST_BATCHES = 8
MOST_BYTES = 64 * 2**20
"""The most that waits in a queue, whichever comes first; one batch is always accepted."""
MOST_FEEDING = 8
"""Partitions that feed at the same time; others wait, and send nothing, so that memory is bounded."""
LOOK_S = 1.0
"""How often a waiting exchange checks whether its peer is gone. All else wakes it."""


class PartitionKey(NamedTuple):
    """One partition of one epoch, or of one micro-batch."""

    epoch: int
    micro_batch: int
    partition: int


@dataclass(frozen=True)
class PartitionProgress:
    """What the trainer has of a partition, in its queue or taken."""

    rows: int = 0
    batches: int = 0
    checksum: int = 0
    complete: bool = False


@dataclass(eq=False)
class Feeder:
    """An exchange as the queue sees it."""

    gone: Callable[[], bool]
    """Whether the peer has closed the exchange."""
    peer: str = "an unknown address"
    heard_at: float = 0.0
    listening: bool = True
    """The exchange waits for its peer. While it waits for room in the queue instead, silence means nothing."""

    def lost(self, now: float, lease_s: float) -> bool:
        """Whether its peer is gone, by all that is known."""
        return self.gone() or (self.listening and now - self.heard_at > lease_s)


@dataclass(eq=False)
class _Claim:
    """An exchange that waits for its turn."""

    feeder: Feeder
    key: PartitionKey
    decided: threading.Condition
    """It has its turn, or needs none any more."""


class FeedQueue:
    """The queue of one feed. Exchanges and the training thread call it; waits end with the peer or the epoch.

    Each event wakes the one thread that it concerns: up to 32 exchanges wait, and to wake them all for each batch
    would take longer than to hand over the batch.
    """

    def __init__(self, name: str, lease_s: float = FEED_LEASE_S, clock: Clock | None = None) -> None:
        self.name = name
        self._lease_s = lease_s
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._rows = threading.Condition(self._lock)
        """The trainer has something to take, or the epoch has ended."""
        self._room = threading.Condition(self._lock)
        """The queue has room for a batch. A feeder that wakes here wakes the next one while there is more."""
        self._claims: list[_Claim] = []
        """In the order in which they get their turns."""
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._progress: dict[PartitionKey, PartitionProgress] = {}
        self._feeders: dict[PartitionKey, Feeder] = {}
        self._epoch = 0
        self._micro_batch = 0
        self._open = False
        """The epoch takes more rows."""
        self._problem = ""

    # ---- the training thread, and the driver's word

    def start(self, epoch: int) -> None:
        """Accept the rows of `epoch`, which follows the earlier ones. Drops what is left of those."""
        with self._lock:
            self._epoch, self._micro_batch, self._open, self._problem = epoch, 0, True, ""
            self._progress.clear()
            self._drop()

    def end(self, epoch: int, problem: str = "") -> None:
        """The driver has ended the feeding job of `epoch`: no more rows come. `problem` is why it failed."""
        with self._lock:
            if epoch == self._epoch:
                self._open = False
                self._problem = self._problem or problem
                self._wake_all()

    def stop(self, epoch: int) -> bool:
        """The trainer needs no more rows of `epoch`; returns whether feeders might still have sent some."""
        with self._lock:
            if epoch != self._epoch:
                return False
            was_open, self._open = self._open, False
            self._drop()
            return was_open

    def take(self, timeout_s: float | None = None) -> pa.RecordBatch | None:
        """The next batch; None at the end of the epoch. Blocks as long as feeders may send rows.

        Raises StreamError when the feeding job failed, TimeoutError when nothing came within `timeout_s`.
        """
        until = None if timeout_s is None else self._clock.now() + timeout_s
        with self._lock:
            while not self._waiting and self._open and not self._problem:
                left = None if until is None else until - self._clock.now()
                if left is not None and left <= 0:
                    raise TimeoutError(f"stream {self.name!r} gave no rows for {timeout_s:g} s")
                self._rows.wait(left)
            if self._problem:
                raise StreamError(f"stream {self.name!r} broke off in epoch {self._epoch}: {self._problem}")
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            self._bytes -= batch.nbytes
            self._room.notify()
            return batch

    def close(self) -> None:
        """Take no rows of any epoch any more."""
        with self._lock:
            self._open = False
            self._drop()

    @property
    def waiting(self) -> bool:
        """Whether `take` would return at once."""
        return bool(self._waiting) or not self._open

    def progress(self, key: PartitionKey) -> PartitionProgress:
        """What the trainer has of a partition."""
        with self._lock:
            return self._known(key)

    # ---- exchanges

    def claim(self, feeder: Feeder, key: PartitionKey) -> PartitionProgress | None:
        """Let `feeder` feed the partition; returns what the trainer has of it, None when it needs no more.

        Waits while another attempt feeds the partition, and while enough partitions feed; turns come in the order of
        claims. Raises StreamError for an epoch that this member has not asked for, and when the peer is gone. The
        caller releases the feeder in each case.
        """
        with self._lock:
            feeder.listening = False
            claim = _Claim(feeder, key, threading.Condition(self._lock))
            self._claims.append(claim)
            try:
                while True:
                    if key.epoch > self._epoch:
                        raise StreamError(f"stream {self.name!r}: epoch {key.epoch} has not been asked for")
                    if not self._takes(key):
                        return None
                    self._advance(key.micro_batch)
                    if (progress := self._known(key)).complete:
                        return progress
                    if feeder.gone():
                        raise StreamError(f"stream {self.name!r}: the feeder of partition {key.partition} is gone")
                    self._give_turns()
                    if self._feeders.get(key) is feeder:
                        self._listen(feeder)
                        return progress
                    claim.decided.wait(LOOK_S)
            finally:
                self._claims.remove(claim)

    def put(self, feeder: Feeder, key: PartitionKey, batch: pa.RecordBatch, first_row: int, checksum: int) -> bool:
        """Append a batch of the partition; waits for room. Returns False when the trainer needs no more.

        Raises StreamError for a batch that does not follow the last one, and for a feeder that has lost its turn.
        """
        with self._lock:
            feeder.listening = False
            try:
                while self._takes(key) and not self._fits(batch.nbytes):
                    self._check(feeder, key)
                    self._room.wait(LOOK_S)
                return self._takes(key) and self._append(feeder, key, batch, first_row, checksum)
            finally:
                if self._fits(0):  # for one more, or this one did not use it
                    self._room.notify()

    def _append(self, feeder: Feeder, key: PartitionKey, batch: pa.RecordBatch, first_row: int, checksum: int) -> bool:
        self._check(feeder, key)
        had = self._known(key)
        if first_row != had.rows:
            raise StreamError(
                f"stream {self.name!r}: partition {key.partition} continues at row {first_row}, and {had.rows} is "
                "expected"
            )
        self._progress[key] = PartitionProgress(had.rows + batch.num_rows, had.batches + 1, checksum)
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self._listen(feeder)
        self._rows.notify()
        return True

    def complete(self, feeder: Feeder, key: PartitionKey, rows: int) -> PartitionProgress | None:
        """The partition ends after `rows`; returns what the trainer has of it, None when it needs no more.

        Raises StreamError for another number of rows, and for a feeder that has lost its turn.
        """
        with self._lock:
            if not self._takes(key):
                return None
            self._check(feeder, key)
            had = self._known(key)
            if rows != had.rows:
                raise StreamError(
                    f"stream {self.name!r}: partition {key.partition} ends after {rows} rows, the member has {had.rows}"
                )
            self._progress[key] = PartitionProgress(had.rows, had.batches, had.checksum, complete=True)
            for claim in self._claims:
                if claim.key == key:
                    claim.decided.notify()
            return self._progress[key]

    def look(self) -> None:
        """Take the turns of feeders that are gone or silent, and give them to others. Does not block."""
        with self._lock:
            self._give_turns()

    def wants(self, key: PartitionKey) -> bool:
        """Whether the trainer may need more rows of the partition."""
        with self._lock:
            return self._takes(key)

    def heard(self, feeder: Feeder) -> None:
        """The peer has sent something."""
        feeder.heard_at = self._clock.now()

    def release(self, feeder: Feeder) -> None:
        """The exchange has ended: another may feed its partition."""
        with self._lock:
            for key in [key for key, each in self._feeders.items() if each is feeder]:
                del self._feeders[key]
            self._give_turns()

    # ---- internal; the caller holds the lock

    def _drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self._wake_all()

    def _wake_all(self) -> None:
        self._rows.notify_all()
        self._room.notify_all()
        for claim in self._claims:
            claim.decided.notify()

    def _give_turns(self) -> None:
        """Let those who have waited longest feed, as many as may at a time."""
        self._expire()
        for claim in self._claims:
            if len(self._feeders) >= MOST_FEEDING:
                return
            if claim.key not in self._feeders:
                self._feeders[claim.key] = claim.feeder
                self._listen(claim.feeder)
                claim.decided.notify()

    def _known(self, key: PartitionKey) -> PartitionProgress:
        if key.epoch == self._epoch and key.micro_batch < self._micro_batch:
            return PartitionProgress(complete=True)
        return self._progress.get(key, PartitionProgress())

    def _advance(self, micro_batch: int) -> None:
        """Forget the partitions of earlier micro-batches: Spark starts one when that before it has been delivered."""
        if micro_batch > self._micro_batch:
            self._micro_batch = micro_batch
            self._progress = {key: each for key, each in self._progress.items() if key.micro_batch >= micro_batch}

    def _takes(self, key: PartitionKey) -> bool:
        return self._open and key.epoch == self._epoch

    def _fits(self, size: int) -> bool:
        return not self._waiting or (len(self._waiting) < MOST_BATCHES and self._bytes + size <= MOST_BYTES)

    def _check(self, feeder: Feeder, key: PartitionKey) -> None:
        if feeder.gone():
            raise StreamError(f"stream {self.name!r}: the feeder of partition {key.partition} is gone")
        if self._feeders.get(key) is not feeder:
            now = f"another attempt feeds partition {key.partition}" if key in self._feeders else "others feed now"
            raise StreamError(
                f"stream {self.name!r}: {now}, for this attempt of partition {key.partition} gave no heartbeat for "
                f"{self._lease_s:g} s"
            )

    def _expire(self) -> None:
        now = self._clock.now()
        for key, feeder in [(key, each) for key, each in self._feeders.items() if each.lost(now, self._lease_s)]:
            del self._feeders[key]
            if not feeder.gone():
                notice(
                    f"stream {self.name!r}: the feeder of partition {key.partition} at {feeder.peer} gave no heartbeat "
                    f"for {self._lease_s:g} s: its process is stopped, or its network is down; another attempt of its "
                    "task continues after the rows that are here"
                )

    def _listen(self, feeder: Feeder) -> None:
        feeder.heard_at = self._clock.now()
        feeder.listening = True
