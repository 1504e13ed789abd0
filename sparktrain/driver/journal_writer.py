"""Writes the journal beside the coordinator's loop: records in groups, and the commands that depend on them wait.

`take` gets what the state machine decided, in its order. A record joins the pending ones. A command with
`waits_for_records` is held back until every record taken before it is durable; so is each later command to the same
agent, because messages to an agent must not overtake each other. All other commands are performed at once. While one
group is in the store, records gather for the next, so that a slow store makes groups larger and not the queue longer.

The invariant: no agent acts on a decision that a successor of this driver could not read. The journal's `append`
looks for the term of another driver after each write, so a driver that was replaced performs nothing of its last
group. A failed write is final: later events would not be recorded, so the run ends, and the commands that would have
waited for them are never performed.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId
from sparktrain.base.threads import aside
from sparktrain.errors import DeposedError
from sparktrain.rundir.journal.writer import Compaction
from sparktrain.state import commands as do
from sparktrain.state.records import AnyRecord
from sparktrain.state.recovery import compacted

MOST_RECORDS = 1000
"""Limit of the records in one group."""
COMPACT_AFTER = 2000
"""Records after which the journal is compacted at the earliest."""
GROWTH = 3
"""A journal that is this many times as long as the last compaction left it is compacted again."""
CHECK_S = 5.0
"""A driver that has nothing to write checks at this interval whether another one has taken over. The first time it
writes an empty batch, which confirms that the one before is complete."""

logger = logging.getLogger("sparktrain")


class JournalPort(Protocol):
    """What a journal writer needs of `Journal`. Its methods block, and are called by one thread at a time."""

    def append(self, records: Sequence[AnyRecord]) -> None:
        """Write records that follow those before; they are durable when it returns."""
        ...

    def compaction(self) -> Compaction:
        """A compaction of everything appended so far, beside `append`, in another thread."""
        ...

    def settle(self) -> None:
        """Write a batch that follows the newest records, so that their loss can be detected."""
        ...

    def check(self) -> None:
        """Raises DeposedError when another driver has taken over."""
        ...


class JournalWriter:
    """Writes the records of one run. All methods belong to the coordinator's event loop.

    A command that depends on records is held back until they are written; so is every later command to
    the same agent. Records that come while others are written form the next group: a group takes the
    store as long as one record.
    """

    def __init__(
        self,
        journal: JournalPort,
        records: Sequence[AnyRecord],
        perform: Callable[[do.Command], None],
        clock: Clock,
        background: Callable[[Coroutine[None, None, None]], object],
        compact_after: int = COMPACT_AFTER,
    ) -> None:
        """`records` are those that the journal has already; `background` runs a task beside the others. A compaction
        follows the one before it by `compact_after` records at least."""
        self.failed: Exception | None = None
        """Why the journal can no longer be written: another driver has taken over, or the store is gone."""
        self._journal = journal
        self._perform = perform
        self._clock = clock
        self._written: list[AnyRecord] = list(records)
        self._background = background
        self._compact_after = compact_after
        self._compact_at = next_compaction(len(compacted(self._written)), compact_after)
        self._compacting = False
        self._pending: deque[AnyRecord] = deque()
        self._accepted = self._done = 0
        """Records that were taken, and that are durable."""
        self._held: deque[tuple[int, do.Command]] = deque()
        """Commands, each with the number of records that must be durable first."""
        self._held_for = Counter[AgentId]()
        """How many of them each agent has."""
        self._waiting_since: float | None = None
        # A driver that was stopped, replaced and continued would otherwise learn of its successor at its next record,
        # which may be an hour away.
        self._check_at = self._exists_until = clock.now() + CHECK_S
        self._newest = False
        """Records were written, and no batch after them."""
        self._settling = False
        """A batch after them failed, and must be retried before anything else is written."""

    def take(self, command: do.Command) -> None:
        """Perform the command, or write it down, or hold it back."""
        if isinstance(command, do.WriteRecord):
            if self.failed is None:
                self._pending.append(command.record)
                self._accepted += 1
        elif self.failed is not None and command.waits_for_records and not isinstance(command, do.EndRun):
            return  # it depends on records that no driver will ever read
        elif self._must_wait(command):
            self._held.append((self._accepted, command))
            if (agent := _agent_of(command)) is not None:
                self._held_for[agent] += 1
        else:
            self._perform(command)

    @property
    def progress(self) -> tuple[int, int]:
        """How many records it has taken, and how many of them are durable."""
        return self._accepted, self._done

    @property
    def idle(self) -> bool:
        """There is nothing to write or to check, or the store is busy with it."""
        return self._waiting_since is not None or not (self._pending or self._unsure)

    @property
    def _unsure(self) -> bool:
        """This driver's ownership was last confirmed some time ago."""
        return self.failed is None and self._clock.now() >= self._check_at

    @property
    def behind_s(self) -> float:
        """How long the store has been busy with the current group; 0 when there is none."""
        return 0.0 if self._waiting_since is None else self._clock.now() - self._waiting_since

    async def write(self, on_failure: Callable[[Exception, list[do.Command]], None]) -> None:
        """Write what was taken and what comes meanwhile; returns when nothing is left. Checks the ownership.

        When the journal fails, `on_failure` gets the error and the commands that will never be performed.
        """
        if self._waiting_since is not None:
            return
        try:
            while (self._pending or self._unsure) and self.failed is None:
                self._waiting_since = self._clock.now()
                await (self._write_group() if self._pending else self._check())
                self._check_at = self._clock.now() + CHECK_S
        # Members must still be stopped when the journal fails, so what waits only for its order is performed.
        except Exception as error:  # of the store, or of a record that cannot be written: the run is over either way
            self.failed = error
            on_failure(error, self._let_go())
        finally:
            self._waiting_since = None

    def _let_go(self) -> list[do.Command]:
        """Perform commands held back for their order alone, such as the end of a member; returns the others."""
        held = [command for _, command in self._held]
        self._pending.clear()
        self._held.clear()
        self._held_for.clear()
        for command in held:
            if not command.waits_for_records:
                self._perform(command)
        return [command for command in held if command.waits_for_records]

    async def _check(self) -> None:
        try:
            await (self._settle() if self._newest else aside(self._journal.check))
        except OSError as error:  # it matters once there is something to write
            logger.info("the store does not show which driver owns the run: %s", error)

    async def _settle(self) -> None:
        self._settling = True
        await aside(self._journal.settle)
        self._settling = self._newest = False

    async def _write_group(self) -> None:
        # A batch may be in the store although its write failed: until that is known, no other may have its number.
        if self._settling:
            await self._settle()
        group = [self._pending.popleft() for _ in range(min(len(self._pending), MOST_RECORDS))]
        await aside(lambda: self._journal.append(group))
        self._newest = True
        self._written += group
        self._done += len(group)
        # Held commands are in the order of their records, so the first that must still wait ends the loop.
        while self._held and self._held[0][0] <= self._done:
            self._perform(self._release())
        if self._clock.now() >= self._exists_until:  # a driver that writes all the time never comes to `_check`
            await aside(self._journal.check)
            self._exists_until = self._clock.now() + CHECK_S
        if len(self._written) >= self._compact_at and not self._compacting:
            # Beside the loop: sorting out some ten thousand records once held up the messages of all agents.
            self._compacting = True
            self._background(self._compact(self._journal.compaction(), list(self._written)))

    async def _compact(self, compaction: Compaction, records: list[AnyRecord]) -> None:
        """Compact the first records, while others are appended."""
        try:
            compacted_records = await aside(lambda: _rewritten(compaction, records))
            self._written[: len(records)] = compacted_records
            self._compact_at = next_compaction(len(compacted_records), self._compact_after)
        except (OSError, DeposedError) as error:  # a deposed driver learns it at the next record
            logger.warning("the journal was not compacted, and will be later: %s", error)
            self._compact_at = len(self._written) + self._compact_after
        finally:
            self._compacting = False

    def _release(self) -> do.Command:
        """The first command that is held back."""
        _, command = self._held.popleft()
        if (agent := _agent_of(command)) is not None:
            self._held_for[agent] -= 1
            if not self._held_for[agent]:
                del self._held_for[agent]
        return command

    def _must_wait(self, command: do.Command) -> bool:
        if self.failed is not None:
            return False
        if command.waits_for_records:
            return bool(self._held) or self._accepted > self._done
        return _agent_of(command) in self._held_for


def _rewritten(compaction: Compaction, records: list[AnyRecord]) -> list[AnyRecord]:
    """Compact and write the records; blocks, and takes a while for many of them."""
    compacted_records = list(compacted(records))
    compaction.write(compacted_records)
    return compacted_records


def next_compaction(record_count: int, compact_after: int = COMPACT_AFTER) -> int:
    """How many records a journal has at its next compaction, after one that leaves, or would leave, `record_count`.

    All compactions together thus write at most half as many records as there are, even if none become fewer. With
    the headers of its batches a journal writes less than three times the bytes of its records.
    """
    # With doubling, compactions alone wrote up to twice the records; a factor of three bounds all writes.
    return max(GROWTH * record_count, record_count + compact_after)


def _agent_of(command: do.Command) -> AgentId | None:
    return getattr(command, "agent", None)
