"""The contracts of what sends rows to members: by Spark jobs (`feed_job`), or while calls last (`pushed_feed`)."""

from abc import ABC, abstractmethod


class FeedingJob(ABC):
    """What feeds one epoch of a stream."""

    @abstractmethod
    def start(self) -> None:
        """Submit it; returns at once."""

    @abstractmethod
    def cancel(self) -> None:
        """End its tasks; waits some seconds for that."""

    def finish(self) -> None:
        """No member needs more rows: as `cancel`, unless a class knows better."""
        self.cancel()


class SendingJob(ABC):
    """A Spark job that sends the rows of one call."""

    error: Exception | None
    """Why it failed, a StreamError where it has lost its members; None while it runs, and when it is done."""

    @abstractmethod
    def start(self) -> None:
        """Submit it; returns at once."""

    @abstractmethod
    def join(self, timeout_s: float) -> bool:
        """Wait for its end; returns whether it has ended."""

    @abstractmethod
    def cancel(self) -> None:
        """End its tasks; waits some seconds for that."""
