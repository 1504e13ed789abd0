"""The jobs that feed the streams of a run: one for each epoch that all members of a gang have asked for."""

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from sparktrain.base.ids import Member
from sparktrain.base.threads import spawn
from sparktrain.config.data_sources import PushedSource, StreamSource
from sparktrain.datasets.columns import Column
from sparktrain.driver.feeds.feed_contract import FeedingJob
from sparktrain.driver.feeds.feeding_slots import ADVICE
from sparktrain.protocol import certificates
from sparktrain.protocol.feed_messages import FeedAddress, FeedTicket, MemberStreams
from sparktrain.protocol.messages import FeedEnded, MemberFeed
from sparktrain.protocol.pipe_messages import FeedOver

FIRST_BATCH_S = 30.0
"""Members that another one has waited for so long are reported; where slots are not known, a job without rows, too."""

Answer = Callable[[FeedEnded], None]

logger = logging.getLogger("sparktrain")


class FeedOpening(NamedTuple):
    """What all members of a gang have asked for: the rows of one epoch of one stream."""

    ticket: FeedTicket
    generation: int
    """That of the gang."""
    tag: str
    """A tag for the Spark jobs that feed it."""
    tasks: int | None
    """The most tasks of one job, which then all run at the same time; None: as many as there are partitions."""
    on_end: Callable[[str], None]
    """To call once, in any thread: with the problem that ended the feed, or an empty text."""


Launch = Callable[[StreamSource | PushedSource, FeedOpening], FeedingJob]
"""Makes what feeds a source."""


def _feeding(source: StreamSource | PushedSource, opening: FeedOpening) -> FeedingJob:
    if isinstance(source, PushedSource):
        job: FeedingJob = source.feed.opened(opening)
        return job
    from sparktrain.driver.feeds.feed_job import FeedJob  # a run on this machine alone needs no Spark

    return FeedJob(source, opening.ticket, opening.tag, opening.on_end)


@dataclass(frozen=True)
class FeedSettings:
    """How the feeding jobs of a run are launched."""

    tasks: int | None = None
    """The most tasks of one job, which then all run at the same time; None: as many as there are partitions."""
    warns: bool = False
    """Report a job without rows, which may lack slots: their number is not known."""
    first_batch_s: float = FIRST_BATCH_S
    launch: Launch = _feeding


@dataclass(kw_only=True)
class _Epoch:
    """One epoch of one stream, of one generation of a gang."""

    number: int
    generation: int
    requests: dict[int, tuple[Member, FeedAddress, Answer]] = field(default_factory=dict)
    """By rank."""
    enough: set[int] = field(default_factory=set)
    job: FeedingJob | None = None
    timer: threading.Timer | None = None
    flowing: bool = False
    over: bool = False

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class StreamFeeds:
    """Runs the feeding jobs of one run. Any thread may call it; nothing blocks but `close`."""

    def __init__(
        self,
        run: str,
        sources: Mapping[str, StreamSource | PushedSource],
        columns: Mapping[str, tuple[Column, ...]],
        size: int,
        settings: FeedSettings | None = None,
    ) -> None:
        """`size` is the number of members of a gang."""
        self._run = run
        self._sources = sources
        self._columns = columns
        self._size = size
        self._settings = settings or FeedSettings()
        self._lock = threading.Lock()
        self._epochs: dict[tuple[int, str], _Epoch] = {}
        """The newest, by trial and stream."""
        self._closed = False
        credentials = certificates.issue(f"{run} streams")
        self._feeder = credentials.agent
        self.keys = MemberStreams(dict(columns), credentials.server, secrets.token_urlsafe(32))
        """What members need to listen for feeders."""

    def on_feed(self, message: MemberFeed, answer: Answer) -> None:
        """Handle a member's message: start the job once all members want the epoch, cancel it when none needs more."""
        with self._lock:
            epoch = self._epoch_of(message)
            if epoch is None or self._closed:
                return
            rank = message.member.rank
            news = message.news
            match news.phase:
                case "asked" if news.address is not None:
                    epoch.requests[rank] = (message.member, news.address, answer)
                    if len(epoch.requests) == self._size and epoch.job is None:
                        self._start(message, epoch)
                    elif len(epoch.requests) == 1:
                        self._look_later(epoch, self._look_for_askers, news.feed)
                case "flowing":
                    epoch.flowing = True
                case "enough":
                    epoch.enough.add(rank)
                    if len(epoch.enough) == self._size and epoch.job is not None and not epoch.over:
                        spawn(epoch.job.finish, "sparktrain-feed-finish")

    def close(self) -> None:
        """Cancel all jobs. Blocks for some seconds at most."""
        with self._lock:
            self._closed = True
            for feed_epoch in self._epochs.values():
                feed_epoch.stop_timer()
            jobs = [epoch.job for epoch in self._epochs.values() if epoch.job is not None and not epoch.over]
        for job in jobs:
            job.cancel()

    # ---- internal; the caller holds the lock

    def _epoch_of(self, message: MemberFeed) -> _Epoch | None:
        """The epoch that the message is about; None for one that another has followed. Cancels what it replaces."""
        key = message.member.trial, message.news.feed
        generation = message.member.generation
        number = message.news.epoch
        epoch = self._epochs.get(key)
        # Messages of a gang that was replaced may arrive after those of its successor.
        if epoch is not None and (epoch.generation, epoch.number) > (generation, number):
            return None
        if epoch is None or (epoch.generation, epoch.number) < (generation, number):
            if epoch is not None:
                epoch.stop_timer()
                if epoch.job is not None and not epoch.over:
                    spawn(epoch.job.cancel, "sparktrain-feed-cancel")
            self._epochs[key] = _Epoch(number=number, generation=generation)
        return self._epochs[key]

    def _start(self, message: MemberFeed, epoch: _Epoch) -> None:
        feed = message.news.feed
        rank_order = sorted(epoch.requests)
        addresses = tuple(epoch.requests[rank][1] for rank in rank_order)
        columns = self._columns.get(feed, ())
        ticket = FeedTicket(
            feed=feed,
            addresses=addresses,
            certificates=self._feeder,
            token=self.keys.token,
            columns=columns,
            epoch=epoch.number,
        )
        tag = f"sparktrain-feed-{secrets.token_hex(8)}"
        source = self._sources[feed]
        if isinstance(source, StreamSource) and source.checkpoint is not None:
            source = replace(source, checkpoint=f"{source.checkpoint}/trial-{message.member.trial}/{feed}")
        if isinstance(source, StreamSource) and self._settings.tasks is not None:
            source = replace(source, frame=source.frame.coalesce(self._settings.tasks))
        on_end = partial(self._ended, feed, epoch)
        opening = FeedOpening(
            ticket=ticket, generation=epoch.generation, tag=tag, tasks=self._settings.tasks, on_end=on_end
        )
        epoch.job = self._settings.launch(source, opening)
        epoch.job.start()
        epoch.stop_timer()
        if self._settings.warns:
            self._look_later(epoch, self._look_for_rows, feed)

    def _look_later(self, epoch: _Epoch, look: Callable[[str, _Epoch], None], feed: str) -> None:
        epoch.timer = threading.Timer(self._settings.first_batch_s, look, (feed, epoch))
        epoch.timer.daemon = True
        epoch.timer.start()

    def _look_for_askers(self, feed: str, epoch: _Epoch) -> None:
        """Report members that have not asked for an epoch that others wait for."""
        with self._lock:
            missing = [str(rank) for rank in range(self._size) if rank not in epoch.requests]
        if missing and not self._closed:
            logger.warning(
                "%s: a member waits for epoch %d of data[%r], and rank %s has not asked for it for %g s: every member "
                "of a gang must read a stream",
                self._run,
                epoch.number,
                feed,
                ", ".join(missing),
                self._settings.first_batch_s,
            )

    def _ended(self, feed: str, epoch: _Epoch, problem: str) -> None:
        """Called in the job's thread."""
        with self._lock:
            epoch.over = True
            epoch.stop_timer()
            requests = list(epoch.requests.values())
        if problem:
            logger.warning("%s: the job that feeds data[%r] has failed: %s", self._run, feed, problem)
        for member, _, answer in requests:
            answer(FeedEnded(member, FeedOver(feed, epoch.number, problem)))

    def _look_for_rows(self, feed: str, epoch: _Epoch) -> None:
        """Report a job that has fed nothing yet."""
        if not (epoch.flowing or epoch.over or self._closed):
            logger.warning(
                "%s: data[%r] has given no rows for %g s: either it computes for long, or its tasks lack slots beside "
                "the agents of a session that does not show its number of slots; %s",
                self._run,
                feed,
                self._settings.first_batch_s,
                ADVICE,
            )
