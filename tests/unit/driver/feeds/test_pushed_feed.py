"""What calls of the driver send to members that wait, leave, restart, or need no more."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparktrain.driver.feeds.pushed_feed import PushedFeed
from sparktrain.driver.feeds.stream_jobs import FeedOpening
from sparktrain.errors import DataError, StreamError
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.feed_messages import FeedAddress, FeedTicket

LIMIT_S = 10.0


class Job:
    """A Spark job that the test ends."""

    def __init__(self, ticket: FeedTicket, tag: str, tasks: int | None) -> None:
        self.ticket = ticket
        self.tag = tag
        self.tasks = tasks
        self.error: Exception | None = None
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        self.started.set()

    def join(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def cancel(self) -> None:
        self.cancelled.set()
        self._ended.set()

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self._ended.set()


class Cluster:
    """One feed, the jobs of its calls, and what its members heard."""

    def __init__(self) -> None:
        self.feed = PushedFeed("input")
        self.jobs: list[Job] = []
        self.ends: list[tuple[int, str]] = []
        self._made = threading.Condition()

    def send(self, ticket: FeedTicket, tag: str, tasks: int | None) -> Job:
        with self._made:
            self.jobs.append(Job(ticket, tag, tasks))
            self._made.notify_all()
            return self.jobs[-1]

    def job(self, number: int) -> Job:
        """The job with this number, once it has started."""
        with self._made:
            assert self._made.wait_for(lambda: len(self.jobs) >= number, LIMIT_S)
        assert self.jobs[number - 1].started.wait(LIMIT_S)
        return self.jobs[number - 1]

    def gang(self, generation: int = 1) -> "Gang":
        """All members of this generation ask for rows."""
        address = FeedAddress(f"host-{generation}", 1000, "x")
        ticket = FeedTicket("input", (address,), CertificateBundle(b"", b"", b""), "token")

        def on_end(problem: str) -> None:
            self.ends.append((generation, problem))

        opened = self.feed.opened(
            FeedOpening(ticket=ticket, generation=generation, tag=f"tag-{generation}", tasks=3, on_end=on_end)
        )
        opened.start()
        return Gang(opened.finish, opened.cancel)


class Gang:
    """What the run reports about one generation."""

    def __init__(self, finish: Callable[[], None], cancel: Callable[[], None]) -> None:
        self.needs_no_more = finish
        self.is_replaced = cancel


class Call:
    """One call of `push`, in a thread."""

    def __init__(self, cluster: Cluster, timeout_s: float = LIMIT_S) -> None:
        self.taken: bool | None = None
        self.error: BaseException | None = None

        def work() -> None:
            try:
                self.taken = cluster.feed.push(cluster.send, timeout_s)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def result(self) -> bool | None:
        """What it returned, or raises what it raised."""
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.taken


@contextmanager
def call(cluster: Cluster) -> Iterator[Call]:
    """A call that has ended when the context does."""
    made = Call(cluster)
    yield made
    made.thread.join(LIMIT_S)
    assert not made.thread.is_alive()


def test_a_call_waits_for_the_members_and_returns_when_its_job_has() -> None:
    cluster = Cluster()
    with call(cluster) as first:
        cluster.gang()
        job = cluster.job(1)
        assert (job.ticket.micro_batch, job.ticket.until_taken, job.tasks) == (1, True, 3)
        assert job.tag.startswith("tag-1-")
        job.end()
        assert first.result() is True
    with call(cluster) as second:
        cluster.job(2).end()
        assert second.result() is True
    assert cluster.jobs[1].ticket.micro_batch == 2
    assert cluster.ends == []


def test_the_members_of_a_new_generation_get_the_rows_of_the_call_again() -> None:
    cluster = Cluster()
    gang = cluster.gang()
    with call(cluster) as pushing:
        lost = cluster.job(1)
        gang.is_replaced()
        assert lost.cancelled.wait(LIMIT_S)
        cluster.gang(2)
        again = cluster.job(2)
        assert (again.ticket.micro_batch, again.ticket.addresses[0].host) == (1, "host-2")
        again.end()
        assert pushing.result() is True


def test_a_job_that_loses_its_members_first_waits_for_the_next_generation() -> None:
    cluster = Cluster()
    gang = cluster.gang()
    with call(cluster) as pushing:
        cluster.job(1).end(StreamError("feed 'input': host-1:1000 is gone"))
        gang.is_replaced()
        cluster.gang(2)
        cluster.job(2).end()
        assert pushing.result() is True


def test_an_error_of_the_rows_is_raised_and_the_cluster_goes_on() -> None:
    cluster = Cluster()
    cluster.gang()
    with call(cluster) as pushing:
        cluster.job(1).end(DataError("a row cannot be pickled"))
        with pytest.raises(DataError, match="cannot be pickled"):
            pushing.result()
    with call(cluster) as pushing:
        cluster.job(2).end()
        assert pushing.result() is True


def test_members_that_need_no_more_end_the_job_and_later_calls_at_once() -> None:
    cluster = Cluster()
    gang = cluster.gang()
    with call(cluster) as pushing:
        job = cluster.job(1)
        gang.needs_no_more()
        assert job.cancelled.wait(LIMIT_S)
        assert pushing.result() is False
    assert Call(cluster).result() is False
    assert cluster.ends == [(1, "")], "members that wait for the end of the feed are informed"


def test_the_end_of_the_feed_reaches_members_that_ask_later_too() -> None:
    cluster = Cluster()
    cluster.feed.end()
    cluster.gang()
    informed = threading.Event()

    def wait() -> None:
        while not cluster.ends:
            threading.Event().wait(0.01)
        informed.set()

    threading.Thread(target=wait, daemon=True).start()
    assert informed.wait(LIMIT_S)
    assert cluster.ends == [(1, "")]
    assert Call(cluster).result() is False


def test_a_call_raises_the_error_that_ended_the_run() -> None:
    cluster = Cluster()
    with call(cluster) as waiting:
        cluster.feed.close(RuntimeError("rank 1 failed"))
        with pytest.raises(RuntimeError, match="rank 1 failed"):
            waiting.result()
    with pytest.raises(RuntimeError, match="rank 1 failed"):
        cluster.feed.ticket(1)


def test_members_that_never_ask_are_an_error_that_names_the_feed_and_the_limit() -> None:
    with pytest.raises(StreamError, match=r"feed 'input': members have not asked for rows within 0\.01 s"):
        Call(Cluster(), timeout_s=0.01).result()
