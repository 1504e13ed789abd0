"""The Spark job that feeds one epoch of a stream to the members of a gang."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparktrain.cluster import spark_facts
from sparktrain.cluster.dataframes.feeder import FEED_SCHEMA, feed_rdd_task, feed_task
from sparktrain.config.data_sources import StreamSource
from sparktrain.datasets.spark_names import map_in_arrow
from sparktrain.driver.feeds.feed_contract import FeedingJob, SendingJob
from sparktrain.driver.spark_job import SlotJob, first_line
from sparktrain.errors import DataError, StreamError
from sparktrain.protocol.feed_messages import FeedTicket

_CAUSE = re.compile(r"^(?:\S*\.)?((?:Data|Stream|UnreachableMember)Error: .+)", re.MULTILINE)
_ENOUGH = "members need no more rows of this micro-batch, which the next query repeats"
QUERY_LOOK_S = 0.5
"""How often a query of Structured Streaming is asked whether it has ended."""


class FeedJob(SlotJob, FeedingJob):
    """Feeds one epoch. Any thread may use it."""

    def __init__(self, source: StreamSource, ticket: FeedTicket, tag: str, on_end: Callable[[str], None]) -> None:
        """`on_end` is called once, in the job's thread, with the problem that ended the job, or an empty text."""
        super().__init__(_session(source.frame), tag, range(1))
        self._source = source.frame
        self._checkpoint = source.checkpoint
        self._ticket = ticket
        self._on_end = on_end
        self._query: Any = None
        self._cancelled = False

    def cancel(self) -> None:
        """See base class."""
        self._cancelled = True
        if self._query is not None:
            with suppress(Exception):  # Spark's own errors have no common base class; the query may have ended
                self._query.stop()
        super().cancel()

    def _work(self) -> None:
        problem = ""
        try:
            self._add_tag()
            self._feed()
        except BaseException as error:  # whatever Spark, Py4J or gRPC raise: it is the end of the feed
            problem = cause_of(error)
        self._on_end("" if self._cancelled or problem.endswith(_ENOUGH) else problem)

    def _feed(self) -> None:
        if getattr(self._source, "isStreaming", False):
            self._follow()
        else:
            send_all(self._source, self._ticket)

    def _follow(self) -> None:
        """Feed the micro-batches of a streaming DataFrame, each once, until its query ends."""
        has_checkpoint = self._checkpoint is not None
        writer = self._source.writeStream.foreachBatch(
            partial(feed_micro_batch, ticket=self._ticket, has_checkpoint=has_checkpoint)
        )
        writer = writer.option("checkpointLocation", self._checkpoint) if has_checkpoint else writer
        self._query = writer.start()
        while not self._query.awaitTermination(QUERY_LOOK_S):
            if self._cancelled:
                self._query.stop()


class PushJob(SlotJob, SendingJob):
    """Sends the rows of one RDD or DataFrame to the members of a ticket."""

    def __init__(self, source: Any, ticket: FeedTicket, tag: str, tasks: int | None) -> None:
        super().__init__(_session(source), tag, range(1))
        self._source = source if tasks is None else source.coalesce(tasks)
        self._ticket = ticket
        self.error = None

    def _work(self) -> None:
        try:
            self._add_tag()
            send_all(self._source, self._ticket)
        except Exception as error:  # whatever Spark, Py4J or gRPC raise: it is the end of the job
            match = _CAUSE.search(str(error))
            kinds = {"DataError": DataError, "StreamError": StreamError, "UnreachableMemberError": StreamError}
            self.error = error if match is None else kinds[match[1].partition(":")[0]](match[1].partition(": ")[2])


def send_all(source: Any, ticket: FeedTicket) -> None:
    """Send the rows of an RDD or a DataFrame; blocks until members have them. Raises whatever Spark raises."""
    if hasattr(source, "mapInArrow"):
        map_in_arrow(source, partial(feed_task, ticket=ticket), FEED_SCHEMA).collect()
    else:
        source.mapPartitions(partial(feed_rdd_task, ticket=ticket)).collect()


def feed_micro_batch(frame: DataFrame, micro_batch: int, ticket: FeedTicket, has_checkpoint: bool) -> None:
    """Feed one micro-batch, for `foreachBatch`; returns when members have acknowledged all its partitions.

    A micro-batch that Spark repeats is skipped by the members as far as they have it. With `has_checkpoint`, raises
    StreamError when a member needs no more rows of it, so that Spark does not count it as done.
    """
    task = partial(feed_task, ticket=replace(ticket, micro_batch=micro_batch))
    fed = map_in_arrow(frame, task, FEED_SCHEMA).collect()
    if has_checkpoint and any(row.enough for row in fed):
        raise StreamError(_ENOUGH)


def cause_of(error: BaseException) -> str:
    """What a feeder raised, where Spark's error holds it; else the first line of that."""
    match = _CAUSE.search(str(error))
    return match[1].strip() if match is not None else first_line(error)


def slots_of(source: StreamSource) -> int | None:
    """How many tasks the session of a stream runs at a time; None where that is unknown. Raises SessionError."""
    return spark_facts.slots(spark_facts.read_facts(_session(source.frame), os.cpu_count() or 1))


def _session(source: Any) -> SparkSession:
    """The session that a DataFrame belongs to; an RDD's context has an active one."""
    if hasattr(source, "sparkSession"):
        session: SparkSession = source.sparkSession
        return session
    return SparkSession(source.ctx)
