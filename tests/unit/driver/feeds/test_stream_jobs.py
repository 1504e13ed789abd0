"""Which feeding job runs when: members ask, restart, stop early, or lack slots."""

import logging
import threading
from typing import Any

import pytest

from sparktrain.base.ids import Member, RunId, TrialId
from sparktrain.config.data_sources import StreamSource
from sparktrain.driver.feeds.stream_jobs import FeedOpening, FeedSettings, StreamFeeds
from sparktrain.protocol.feed_messages import FeedAddress
from sparktrain.protocol.messages import FeedEnded, MemberFeed
from sparktrain.protocol.pipe_messages import FeedOver, FeedPhase


class Job:
    """A job that the test ends."""

    def __init__(self, source: Any, opening: FeedOpening) -> None:
        self.source = source
        self.opening = opening
        self.ticket = opening.ticket
        self.end = opening.on_end
        self.started = False
        self.cancelled = threading.Event()

    def start(self) -> None:
        self.started = True

    def finish(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        self.cancelled.set()


class Frame:
    """A DataFrame of 100 partitions."""

    def __init__(self, partitions: int = 100) -> None:
        self.partitions = partitions

    def coalesce(self, most: int) -> "Frame":
        return Frame(min(most, self.partitions))


class Run:
    """The feeds of a run with one stream, its jobs and the answers to members."""

    def __init__(
        self,
        size: int,
        first_batch_s: float = 30.0,
        checkpoint: str | None = None,
        warns: bool = False,
        tasks: int | None = None,
    ) -> None:
        self.jobs: list[Job] = []
        self.answers: list[FeedEnded] = []
        sources = {"train": StreamSource(Frame(), checkpoint)}
        settings = FeedSettings(tasks, warns, first_batch_s, self._launch)
        self.feeds = StreamFeeds("run", sources, {"train": ()}, size, settings)

    def _launch(self, *arguments: Any) -> Job:
        self.jobs.append(Job(*arguments))
        return self.jobs[-1]

    def hear(self, rank: int, phase: Any, epoch: int = 1, generation: int = 1, trial: int = 0) -> Member:
        member = Member(RunId("run"), TrialId(trial), generation, rank)
        address = FeedAddress(f"host-{rank}", 1000 + rank, "x") if phase == "asked" else None
        self.feeds.on_feed(MemberFeed(member, FeedPhase("train", epoch, phase, address)), self.answers.append)
        return member


def test_a_job_starts_when_all_members_have_asked_and_its_end_reaches_all() -> None:
    run = Run(2)
    last = run.hear(1, "asked")
    assert run.jobs == []
    first = run.hear(0, "asked")
    [job] = run.jobs
    assert job.started
    assert [each.host for each in job.ticket.addresses] == ["host-0", "host-1"], "by rank"
    assert (job.ticket.epoch, job.ticket.token) == (1, run.feeds.keys.token)
    job.end("")
    over = FeedOver("train", 1)
    assert {(each.member, each.over) for each in run.answers} == {(first, over), (last, over)}
    run.hear(0, "asked", epoch=2)
    run.hear(1, "asked", epoch=2)
    assert [each.ticket.epoch for each in run.jobs] == [1, 2]


def test_a_job_is_cancelled_when_no_member_needs_more() -> None:
    run = Run(2)
    for rank in (0, 1):
        run.hear(rank, "asked")
    run.hear(0, "enough")
    assert not run.jobs[0].cancelled.wait(0.05)
    run.hear(1, "enough")
    assert run.jobs[0].cancelled.wait(5)


def test_a_restarted_gang_gets_a_job_of_its_own() -> None:
    run = Run(1)
    run.hear(0, "asked", epoch=3)
    run.hear(0, "asked", epoch=1, generation=2)
    assert run.jobs[0].cancelled.wait(5)
    assert [each.ticket.epoch for each in run.jobs] == [3, 1]
    run.hear(0, "asked", epoch=4, generation=1)
    assert len(run.jobs) == 2, "a message of the gang before comes late"


def test_trials_of_a_sweep_have_jobs_of_their_own() -> None:
    run = Run(1)
    run.hear(0, "asked", trial=0)
    run.hear(0, "asked", trial=1)
    assert len(run.jobs) == 2
    run.feeds.close()
    assert all(each.cancelled.is_set() for each in run.jobs)
    run.hear(0, "asked", trial=2)
    assert len(run.jobs) == 2


def wait_for_timers() -> None:
    for each in threading.enumerate():
        if isinstance(each, threading.Timer):
            each.join(5)


def test_a_member_that_does_not_ask_is_reported_to_those_who_wait_for_it(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(3, first_batch_s=0.01)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        run.hear(1, "asked", epoch=4)
        wait_for_timers()
    assert "waits for epoch 4 of data['train'], and rank 0, 2 has not asked for it" in caplog.text


def test_a_job_without_rows_is_reported_with_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(1, first_batch_s=0.01, warns=True)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        run.hear(0, "asked")
        wait_for_timers()
    assert "given no rows for 0.01 s" in caplog.text
    assert "start fewer workers" in caplog.text


def test_a_job_that_only_computes_for_long_is_not_reported_where_slots_are_known() -> None:
    run = Run(1)
    run.hear(0, "asked")
    assert not any(isinstance(each, threading.Timer) for each in threading.enumerate())


def test_each_trial_and_stream_has_a_checkpoint_of_its_own() -> None:
    run = Run(1, checkpoint="hdfs:///events")
    run.hear(0, "asked", trial=0)
    run.hear(0, "asked", trial=7)
    assert [each.source.checkpoint for each in run.jobs] == [
        "hdfs:///events/trial-0/train",
        "hdfs:///events/trial-7/train",
    ]


@pytest.mark.parametrize(("tasks", "partitions"), [(None, 100), (3, 3), (200, 100)])
def test_a_job_has_at_most_as_many_tasks_as_slots_for_it(tasks: int | None, partitions: int) -> None:
    run = Run(1, tasks=tasks)
    run.hear(0, "asked")
    assert run.jobs[0].source.frame.partitions == partitions


def test_secrets_are_not_shown() -> None:
    run = Run(1)
    run.hear(0, "asked")
    shown = f"{run.feeds.keys} {run.jobs[0].ticket}"
    assert run.feeds.keys.token not in shown
    assert "PRIVATE KEY" not in shown
