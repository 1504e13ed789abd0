"""A stream with rows that calls in the driver send, one Spark job for each call, while its members train."""

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace

from sparktrain.base.threads import spawn
from sparktrain.driver.feeds.feed_contract import FeedingJob, SendingJob
from sparktrain.driver.feeds.stream_jobs import FeedOpening
from sparktrain.errors import StreamError
from sparktrain.protocol.feed_directory import publish_addresses
from sparktrain.protocol.feed_messages import FeedAddresses, FeedDirectory, FeedTicket
from sparktrain.store.base import Store

RESTART_S = 120.0
"""How long a call without members waits for the next generation of the gang."""
LOOK_S = 0.5
"""How often a call looks whether the job that it waits for has ended. All else wakes it."""

logger = logging.getLogger("sparktrain")

Send = Callable[[FeedTicket, str, int | None], SendingJob]
"""Makes the Spark job that sends rows by a ticket, under a tag, by so many tasks at most."""


class PushedFeed:
    """The rows of one stream. Any thread may use it; calls of `push` take turns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._opening: FeedOpening | None = None
        """What the members of the newest generation wait for; None while there are none."""
        self._directory: tuple[Store, str] | None = None
        self._jobs = 0
        """Jobs that were sent, over all generations: in each, the partitions count from 0."""
        self._finished = False
        """Members need no more rows, or the feed was ended."""
        self._closed: BaseException | None = None

    # ---- the run

    def place(self, store: Store, path: str) -> None:
        """Publish the addresses of the members in the folder `path`, for the tasks of `inference`."""
        self._directory = store, path

    def opened(self, opening: FeedOpening) -> FeedingJob:
        """What feeds the members of one generation."""
        return _OpenedFeed(self, opening)

    def close(self, error: BaseException | None) -> None:
        """The run has ended, by `error` or well: calls raise it, or return. Blocks on the store."""
        with self._changed:
            self._closed = error
            self._finished = True
            self._opening = None
            self._changed.notify_all()
        if self._directory is not None:
            store, path = self._directory
            why = str(error).strip().partition("\n")[0] if error is not None else "its members have returned"
            try:
                publish_addresses(store, path, FeedAddresses(0, 0, ended=why or type(error).__name__))
            except OSError as problem:  # tasks that wait find out by their deadline
                logger.warning(
                    "the end of feed %r could not be stored at %s: %s", self.name, store.where(path), problem
                )

    # ---- calls

    @property
    def directory(self) -> FeedDirectory:
        """Where tasks find the addresses of the members."""
        assert self._directory is not None
        store, path = self._directory
        return FeedDirectory(store.address, path)

    def ticket(self, timeout_s: float) -> FeedTicket | None:
        """The ticket of the newest generation; None when members need no rows. Blocks until all members wait for rows.

        Raises StreamError when they do not within `timeout_s`, and the error that ended the run.
        """
        opening = self._wait(None, timeout_s)
        return None if opening is None else opening.ticket

    def push(self, send: Send, timeout_s: float) -> bool:
        """Send rows by one job; returns when members have taken all, or False when they need no more.

        Where the gang restarts meanwhile, the job starts again. `timeout_s` limits the wait for members that have never
        asked for rows. Raises StreamError for these, the error of the job, and the one that ended the run.
        """
        with self._turn:
            self._jobs += 1
            number = self._jobs
            last_opening = None
            limit_s = timeout_s
            # The job that was cut off is sent to the next generation as a whole: its number lets members skip what they
            # have counted.
            while (opening := self._wait(last_opening, limit_s)) is not None:
                ticket = replace(opening.ticket, micro_batch=number, until_taken=True)
                error = self._perform(send(ticket, f"{opening.tag}-{secrets.token_hex(4)}", opening.tasks), opening)
                if error is None:
                    return not self._finished
                if not self._is_gone(opening, error):
                    raise error
                last_opening = opening
                limit_s = RESTART_S
            return False

    def end(self) -> None:
        """No more rows come: `should_stop` is True in members once they have taken what is there. Does not block."""
        with self._changed:
            self._finished = True
            opening = self._opening
            self._opening = None
            self._changed.notify_all()
        if opening is not None:
            opening.on_end("")

    # ---- internal

    def _wait(self, before: FeedOpening | None, timeout_s: float) -> FeedOpening | None:
        """An opening after `before`; None when no more rows are wanted."""
        with self._changed:
            has_news = self._changed.wait_for(lambda: self._finished or self._opening not in (None, before), timeout_s)
            if self._closed is not None:
                raise self._closed
            if not has_news:
                raise StreamError(self._late(before is not None, timeout_s))
            return None if self._finished else self._opening

    def _late(self, restarted: bool, timeout_s: float) -> str:
        if restarted:
            return (
                f"feed {self.name!r}: its members are gone, and no gang has asked for its rows again within "
                f"{timeout_s:g} s: see the lines of the run about agents that it waits for"
            )
        return (
            f"feed {self.name!r}: members have not asked for rows within {timeout_s:g} s: each worker calls "
            f"ctx.get_data_feed(qname_in={self.name!r}).next_batch(n), and what it does before that takes longer; "
            "raise feed_timeout, or look into the members' logs"
        )

    def _perform(self, job: SendingJob, opening: FeedOpening) -> Exception | None:
        """Run a job to its end, or until its members are gone or need no more; returns its error."""
        job.start()
        try:
            while not job.join(LOOK_S):
                if self._opening is not opening:
                    job.cancel()
                    return StreamError("the members are gone")
        except BaseException:
            job.cancel()
            raise
        return job.error

    def _is_gone(self, opening: FeedOpening, error: Exception) -> bool:
        """Whether a job failed because its members are gone: they may be before the run has heard of it."""
        if self._opening is not opening:
            return True
        is_stream_error = isinstance(error, StreamError)  # of a feeder, and not of Spark or of the user's rows
        with self._changed:
            # A feeder notices the loss of its member first. The run learns of it by a lease, so wait for that before
            # the error counts.
            return is_stream_error and self._changed.wait_for(lambda: self._opening is not opening, RESTART_S)

    def _publish(self, opening: FeedOpening) -> None:
        """Make an opening known to calls and tasks. Blocks on the store."""
        if self._directory is not None:
            store, path = self._directory
            addresses = FeedAddresses(opening.generation, opening.ticket.epoch, opening.ticket.addresses)
            publish_addresses(store, path, addresses)
        with self._changed:
            if not self._finished:
                self._opening = opening
                self._changed.notify_all()
                return
        opening.on_end("")  # a generation that starts after the end has nothing to take

    def _dismiss(self, opening: FeedOpening, *, finished: bool) -> None:
        with self._changed:
            if self._opening is opening:
                self._opening = None
            self._finished = self._finished or finished
            self._changed.notify_all()


class _OpenedFeed(FeedingJob):
    """One generation of the members of a feed."""

    def __init__(self, feed: PushedFeed, opening: FeedOpening) -> None:
        self._feed = feed
        self._opening = opening

    def start(self) -> None:
        """See base class."""
        spawn(self._start, "sparktrain-feed-open")

    def finish(self) -> None:
        """See base class."""
        self._feed._dismiss(self._opening, finished=True)
        self._opening.on_end("")

    def cancel(self) -> None:
        """See base class."""
        self._feed._dismiss(self._opening, finished=False)

    def _start(self) -> None:
        try:
            self._feed._publish(self._opening)
        except OSError as error:
            self._opening.on_end(f"the addresses of the members cannot be stored: {error}")
