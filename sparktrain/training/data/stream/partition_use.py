"""Which partitions of a feed the training function has used: all their rows are handed out, and it wants more."""

from collections import Counter, deque
from typing import NamedTuple


class PartitionKey(NamedTuple):
    """One partition of one epoch, or of one micro-batch."""

    epoch: int
    micro_batch: int
    partition: int


class PartitionUse:
    """Batches by partition: taken from the queue, and used after that. The lock of the queue protects it."""

    def __init__(self) -> None:
        self._taken_counts: Counter[PartitionKey] = Counter()
        self._used: Counter[PartitionKey] = Counter()
        self._in_hand: deque[PartitionKey] = deque()
        """The partitions of batches that were taken and are not used yet, oldest first."""
        self._number = 0

    def take(self, key: PartitionKey) -> None:
        """A batch of the partition leaves the queue."""
        self._taken_counts[key] += 1
        self._in_hand.append(key)

    def use(self, number: int | None = None) -> set[PartitionKey]:
        """The first `number` batches taken since `clear`, or all, are used; returns the partitions of the new ones."""
        partitions = set()
        while self._in_hand and (number is None or self._number < number):
            self._used[key := self._in_hand.popleft()] += 1
            self._number += 1
            partitions.add(key)
        return partitions

    def batches_taken(self, key: PartitionKey) -> int:
        """How many batches of the partition have left the queue."""
        return self._taken_counts[key]

    def used(self, key: PartitionKey) -> int:
        """How many batches of the partition are used."""
        return self._used[key]

    def forget(self, micro_batch: int) -> None:
        """Drop the numbers of earlier micro-batches."""
        for counts in (self._taken_counts, self._used):
            for key in [key for key in counts if key.micro_batch < micro_batch]:
                del counts[key]

    def clear(self) -> None:
        """Another epoch starts."""
        self._taken_counts.clear()
        self._used.clear()
        self._in_hand.clear()
        self._number = 0
