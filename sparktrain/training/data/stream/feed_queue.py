"""The rows of one feed between the exchanges that bring them and the thread that trains, each row once.

A partition has one feeder at a time. What the trainer may see of it is recorded under the lock under which rows enter
the queue, so a retried attempt continues exactly after it. No socket and no Flight is in it.

An exchange claims its partition, and waits for its turn: 8 partitions feed at a time, in the order of their claims,
and another attempt of the same partition never does. It then learns what the trainer has, and puts batches that
follow that, each with the row that it starts with; a batch waits while 8 batches or 64 MiB are here. `complete` ends
the partition, and `await_use`, where a job wants it, waits until the function has come back for more rows. The
trainer takes batches in the order in which they came.

The invariant: `_progress` counts a row exactly when it is in the queue or was taken, in this epoch. So a feeder that
dies, or that Spark runs twice, loses no row and repeats none. A feeder that is silent for its lease loses its turn,
unless it waits for room here: then silence means nothing. A new epoch, or the driver's end of one, wakes all that
wait.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pyarrow as pa

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import FEED_LEASE_S
from sparktrain.training.data.stream.answer_queue import AnsweredExchange, AnswerQueue
from sparktrain.training.data.stream.partition_use import PartitionKey, PartitionUse
from sparktrain.training.notices import notice

MOST_BATCHES = 8
MOST_BYTES = 64 * 2**20
"""The most that waits in a queue, whichever comes first; one batch is always accepted."""
MOST_FEEDING = 8
"""Partitions that feed at the same time; others wait, and send nothing, so that memory is bounded."""
LOOK_S = 1.0
"""How often a waiting exchange checks whether its peer is gone. All else wakes it."""

_NO_ANSWERS = (
    "the training function reads this feed without results: cluster.inference() wants one that calls next_batch() and "
    "batch_results() of a DataFeed"
)


class TakenBatch(NamedTuple):
    """A batch that has left the queue."""

    batch: pa.RecordBatch
    key: PartitionKey


class Pause(Enum):
    """Why the function that wants rows gets no more now."""

    END = "the epoch has ended"
    SHORT = "no more rows may join those that it holds"


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

    is_closed: Callable[[], bool]
    """Whether the peer has closed the exchange."""
    peer: str = "an unknown address"
    heard_at: float = 0.0
    listening: bool = True
    """The exchange waits for its peer. While it waits for room in the queue instead, silence means nothing."""

    def lost(self, now: float, lease_s: float) -> bool:
        """Whether its peer is gone, by all that is known."""
        return self.is_closed() or (self.listening and now - self.heard_at > lease_s)


@dataclass(eq=False)
class _Claim:
    """An exchange that waits: for its turn, or until the rows of its partition are used."""

    feeder: Feeder
    key: PartitionKey
    decided: threading.Condition
    """It has what it waits for, or needs it no more."""


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
        self._delivered: list[_Claim] = []
        """Those that wait until their rows are used. They have no turn, so any number may wait."""
        self.answers = AnswerQueue(name, self._lock, self._rows, self._clock, lease_s)
        """The rows that wait for results; they share the lock and the thread that trains."""
        self._waiting: deque[TakenBatch] = deque()
        self._bytes = 0
        self._progress: dict[PartitionKey, PartitionProgress] = {}
        self._use = PartitionUse()
        self._feeders: dict[PartitionKey, Feeder] = {}
        self._epoch = 0
        self._micro_batch = 0
        self._open = False
        """The epoch takes more rows."""
        self._problem = ""
        self._over = threading.Condition(self._lock)
        """The driver has ended the epoch."""
        self._is_over = False

    # ---- the training thread, and the driver's word

    def start(self, epoch: int, answers: bool = False) -> None:
        """Accept the rows of `epoch`, which follows the earlier ones. Drops what is left of those.

        `answers`: the function may answer rows, for it asks for them by `take_for`.
        """
        with self._lock:
            self._epoch = epoch
            self._micro_batch = 0
            self._open = True
            self._problem = ""
            self._is_over = False
            self._progress.clear()
            self._use.clear()
            self._drop()
            self.answers.close("" if answers else _NO_ANSWERS)
            if answers:
                self.answers.open()

    def end(self, epoch: int, problem: str = "") -> None:
        """The driver has ended the feeding job of `epoch`: no more rows come. `problem` is why it failed."""
        with self._lock:
            if epoch == self._epoch:
                self._open = False
                self._problem = self._problem or problem
                self._is_over = True
                self._over.notify_all()
                self.answers.close()
                self._wake_all()

    def wait_until_over(self) -> None:
        """Block until the driver has ended the epoch; feeders learn meanwhile that no more rows are wanted."""
        with self._lock:
            while not self._is_over:
                self._over.wait()

    def stop(self, epoch: int, refusal: str = "") -> bool:
        """The trainer needs no more rows of `epoch`; returns whether feeders might still have sent some.

        `refusal` is what tasks that wait for results are refused with; without it they look for another gang.
        """
        with self._lock:
            if epoch != self._epoch:
                return False
            was_open = self._open
            self._open = False
            self.answers.close(refusal)
            self._drop()
            return was_open

    def take(self, timeout_s: float | None = None) -> pa.RecordBatch | None:
        """The next batch; None at the end of the epoch. Blocks as long as feeders may send rows.

        Raises StreamError when the feeding job failed, TimeoutError when nothing came within `timeout_s`.
        """
        until = None if timeout_s is None else self._clock.now() + timeout_s
        with self._lock:
            while not self._ready():
                remaining_s = None if until is None else until - self._clock.now()
                if remaining_s is not None and remaining_s <= 0:
                    raise TimeoutError(f"stream {self.name!r} gave no rows for {timeout_s:g} s")
                self._await_rows(remaining_s)
            return self._pop().batch if self._waiting else None

    def take_for(self, count: int, held: PartitionKey | None, is_whole: bool) -> TakenBatch | AnsweredExchange | Pause:
        """What serves a function that wants `count` more rows beside those of the partition `held`, if any.

        Rows that wait for results are served when the function holds none. `is_whole`: a partition's rows have no
        others beside them. Blocks as long as feeders may send rows. Raises StreamError when the feeding job failed.
        """
        with self._lock:
            while not self._ready():
                if (exchange := self.answers.ready(count)) is not None:
                    return exchange if held is None else Pause.SHORT
                if is_whole and held is not None and self._all_taken(held):
                    return Pause.SHORT
                self._await_rows(None)
            return self._pop() if self._waiting else Pause.END

    def used(self, number: int) -> None:
        """The function has used the first `number` batches that it took of the epoch: it has come back for more."""
        with self._lock:
            self._confirm(self._use.use(number))

    def close(self) -> None:
        """Take no rows of any epoch any more."""
        with self._lock:
            self._open = False
            self.answers.close()
            self._drop()

    @property
    def waiting(self) -> bool:
        """Whether `take` would return at once."""
        return bool(self._waiting) or not self._open

    def progress(self, key: PartitionKey) -> PartitionProgress:
        """What the trainer has of a partition."""
        with self._lock:
            return self._progress_of(key)

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
                    # Spark may run a task twice (speculation, a lost answer): the second attempt has nothing to do.
                    if (progress := self._progress_of(key)).complete:
                        return progress
                    if feeder.is_closed():
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
        progress = self._progress_of(key)
        # Rows that repeat, or skip some, would be trained on without any sign: fail the attempt, and the next one
        # continues after what is here.
        if first_row != progress.rows:
            raise StreamError(
                f"stream {self.name!r}: partition {key.partition} continues at row {first_row}, and {progress.rows} is "
                "expected"
            )
        self._progress[key] = PartitionProgress(progress.rows + batch.num_rows, progress.batches + 1, checksum)
        self._waiting.append(TakenBatch(batch, key))
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
            progress = self._progress_of(key)
            if rows != progress.rows:
                raise StreamError(
                    f"stream {self.name!r}: partition {key.partition} ends after {rows} rows, the member has "
                    f"{progress.rows}"
                )
            self._progress[key] = PartitionProgress(progress.rows, progress.batches, progress.checksum, complete=True)
            for claim in self._claims:
                if claim.key == key:
                    claim.decided.notify()
            self._rows.notify()  # the function may hold its last rows
            return self._progress[key]

    def await_use(self, feeder: Feeder, key: PartitionKey) -> bool:
        """Wait until all rows of a complete partition are used; False when the trainer needs no more of the epoch.

        They are used when the function has come back for more, or waits for rows. The feeder loses its turn. Raises
        StreamError when the peer is gone.
        """
        with self._lock:
            self._forget(feeder)
            claim = _Claim(feeder, key, threading.Condition(self._lock))
            self._delivered.append(claim)
            try:
                while self._takes(key) and not self._is_used(key):
                    if feeder.is_closed():
                        raise StreamError(f"stream {self.name!r}: the feeder of partition {key.partition} is gone")
                    claim.decided.wait(LOOK_S)
                return self._is_used(key)
            finally:
                self._delivered.remove(claim)

    def look(self) -> None:
        """Take the turns of feeders that are gone or silent, and give them to others. Does not block."""
        with self._lock:
            self._give_turns()
            self.answers.look()

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
            self._forget(feeder)

    # ---- internal; the caller holds the lock

    def _ready(self) -> bool:
        """Whether there is a batch, or the end of the epoch. Raises StreamError when the feeding job failed."""
        if self._problem:
            raise StreamError(f"stream {self.name!r} broke off in epoch {self._epoch}: {self._problem}")
        return bool(self._waiting) or not self._open

    def _await_rows(self, timeout_s: float | None) -> None:
        """Wait. A function that waits has used what it took: else its partitions would wait for more rows with it."""
        self._confirm(self._use.use())
        self._rows.wait(timeout_s)

    def _pop(self) -> TakenBatch:
        entry = self._waiting.popleft()
        self._bytes -= entry.batch.nbytes
        self._use.take(entry.key)
        self._room.notify()
        return entry

    def _confirm(self, used: set[PartitionKey]) -> None:
        for claim in self._delivered:
            if claim.key in used and self._is_used(claim.key):
                claim.decided.notify()

    def _is_used(self, key: PartitionKey) -> bool:
        progress = self._progress_of(key)
        return progress.complete and self._use.used(key) >= progress.batches

    def _all_taken(self, key: PartitionKey) -> bool:
        progress = self._progress_of(key)
        return progress.complete and self._use.batches_taken(key) >= progress.batches

    def _forget(self, feeder: Feeder) -> None:
        for key in [key for key, owner in self._feeders.items() if owner is feeder]:
            del self._feeders[key]
        self._give_turns()

    def _drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self._wake_all()

    def _wake_all(self) -> None:
        self._rows.notify_all()
        self._room.notify_all()
        for claim in self._claims + self._delivered:
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

    def _progress_of(self, key: PartitionKey) -> PartitionProgress:
        if key.epoch == self._epoch and key.micro_batch < self._micro_batch:
            return PartitionProgress(complete=True)
        return self._progress.get(key, PartitionProgress())

    def _advance(self, micro_batch: int) -> None:
        """Forget the partitions of earlier micro-batches: Spark starts one when that before it has been delivered."""
        if micro_batch > self._micro_batch:
            self._micro_batch = micro_batch
            self._progress = {key: state for key, state in self._progress.items() if key.micro_batch >= micro_batch}
            self._use.forget(micro_batch)

    def _takes(self, key: PartitionKey) -> bool:
        return self._open and key.epoch == self._epoch

    def _fits(self, size: int) -> bool:
        return not self._waiting or (len(self._waiting) < MOST_BATCHES and self._bytes + size <= MOST_BYTES)

    def _check(self, feeder: Feeder, key: PartitionKey) -> None:
        if feeder.is_closed():
            raise StreamError(f"stream {self.name!r}: the feeder of partition {key.partition} is gone")
        # A stopped process may continue after its turn went to another attempt.
        if self._feeders.get(key) is not feeder:
            now = f"another attempt feeds partition {key.partition}" if key in self._feeders else "others feed now"
            raise StreamError(
                f"stream {self.name!r}: {now}, for this attempt of partition {key.partition} gave no heartbeat for "
                f"{self._lease_s:g} s"
            )

    def _expire(self) -> None:
        now = self._clock.now()
        for key, feeder in [(key, owner) for key, owner in self._feeders.items() if owner.lost(now, self._lease_s)]:
            del self._feeders[key]
            if not feeder.is_closed():
                notice(
                    f"stream {self.name!r}: the feeder of partition {key.partition} at {feeder.peer} gave no heartbeat "
                    f"for {self._lease_s:g} s: its process is stopped, or its network is down; another attempt of its "
                    "task continues after the rows that are here"
                )

    def _listen(self, feeder: Feeder) -> None:
        feeder.heard_at = self._clock.now()
        feeder.listening = True
