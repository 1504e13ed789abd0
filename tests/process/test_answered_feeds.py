"""Tasks that wait for results, and the members that answer them, in processes: kills, retries, restarts, slow sides."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.dataframes.answered_feed import infer
from sparktrain.cluster.dataframes.feeder import TaskAttempt
from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol.certificates import RunCertificates, issue
from sparktrain.protocol.feed_directory import publish_addresses
from sparktrain.protocol.feed_messages import FeedAddresses, FeedDirectory
from sparktrain.store.url import open_store
from tests.support.answers import AnsweringMember, Function, InferringTask
from tests.support.feeds import LineProcess, closing_all, settled
from tests.support.processes import wait_until

LEASE_S = 4.0


@pytest.fixture(scope="module")
def certificates() -> RunCertificates:
    return issue("answers")


class Cluster:
    """Members of several generations, and the directory in which tasks find them."""

    def __init__(self, certificates: RunCertificates, folder: Path, started: list[LineProcess]) -> None:
        self._certificates = certificates
        self._store = open_store(folder)
        self._started = started
        self.directory = FeedDirectory(StoreAddress(str(folder)), "feeds/input", wait_s=30.0)

    def member(self, **function: Any) -> AnsweringMember:
        made = AnsweringMember(self._certificates, Function(**function), LEASE_S)
        self._started.append(made)
        return made

    def publish(self, generation: int, *members: AnsweringMember, ended: str = "") -> None:
        addresses = tuple(each.address for each in members)
        publish_addresses(self._store, self.directory.path, FeedAddresses(generation, 1, addresses, ended))

    def inferred(self, member: AnsweringMember, *partitions: tuple[int, int]) -> list[bool]:
        """Whether each of some partitions, given with its number of rows, has the right results; side by side."""

        def right(partition: int, rows: int) -> bool:
            numbers, this = ((partition, number, b"x" * 64) for number in range(rows)), TaskAttempt(partition, 0, 0)
            return list(infer(numbers, member.ticket(), self.directory, this)) == [each**2 for each in range(rows)]

        with ThreadPoolExecutor(len(partitions)) as threads:
            return list(threads.map(right, *zip(*partitions, strict=True)))

    def task(self, member: AnsweringMember, *arguments: Any, **options: Any) -> InferringTask:
        directory = options.pop("directory", self.directory)
        made = InferringTask(member.ticket(), directory, *arguments, **options)
        self._started.append(made)
        return made


@pytest.fixture
def cluster(certificates: RunCertificates, tmp_path: Path) -> Iterator[Cluster]:
    with closing_all() as started:
        yield Cluster(certificates, tmp_path, started)


@pytest.mark.parametrize("train_mode", [False, True])
def test_each_row_of_each_partition_has_one_result_in_order(cluster: Cluster, train_mode: bool) -> None:
    sizes = [2500, 0, 1, 7001]
    member = cluster.member(train_mode=train_mode)
    assert cluster.inferred(member, *enumerate(sizes)) == [True] * 4
    rows, batches, mixed = member.end()
    assert (rows, mixed) == (sum(sizes), 0)
    assert batches == 25 + 1 + 71, "as large as they can be"


@pytest.mark.all(case="a batch larger than what waits", covered_by="`unit/training/data/test_answer_queue`")
def test_a_batch_may_be_larger_than_what_waits_in_the_member(cluster: Cluster) -> None:
    """The function asks for more rows than the member buffers of one exchange, so it waits for them."""
    member = cluster.member(batch=60_000)
    assert cluster.inferred(member, (0, 100_000), (1, 100_000)) == [True] * 2
    assert member.end() == [200_000, 4, 0]


def test_the_successor_of_a_killed_member_answers_the_rest(cluster: Cluster) -> None:
    """The results that the task has had are neither repeated nor lost, and their rows are not sent again."""
    first = cluster.member(gated=True)
    cluster.publish(1, first)
    task = cluster.task(first, 0, 30_000, pause_at=3000)
    first.allow(80)
    assert task.answer() == "paused"
    task.send("continue")
    wait_until(lambda: first.ask("served") == 8000, 30, "the member has answered what it may")
    first.signal(signal.SIGKILL)
    second = cluster.member()
    cluster.publish(2, second)
    assert task.answer() == ["inferred", 30_000, True]
    rows, _, mixed = second.end()
    assert (rows <= 27_000, mixed) == (True, 0)


def test_the_end_of_a_feed_ends_tasks_that_look_for_a_successor(cluster: Cluster) -> None:
    member = cluster.member(gated=True)
    task = cluster.task(member, 0, 30_000)
    member.allow(10)
    wait_until(lambda: member.ask("served") == 1000, 30, "the member answers")
    member.signal(signal.SIGKILL)
    cluster.publish(1, ended="the run has failed: rank 0 was killed")
    kind, text = task.answer()
    assert (kind, text) == ("StreamError", "stream 'input' takes no more rows: the run has failed: rank 0 was killed")


def test_a_task_without_a_successor_names_the_deadline(cluster: Cluster) -> None:
    member = cluster.member()
    member.signal(signal.SIGKILL)
    directory = FeedDirectory(cluster.directory.store, cluster.directory.path, wait_s=1.0)
    kind, text = cluster.task(member, 3, 10, directory=directory).answer()
    assert kind == "StreamError"
    assert f"the member at {member.address} gave no results for partition 3" in text
    assert "no newer generation of its gang has opened the feed for 1 s" in text


@pytest.mark.all(
    case="an attempt that is killed",
    covered_by="a killed member, and its successor; `unit/training/data/test_answer_queue`",
)
def test_a_killed_attempt_leaves_nothing_to_the_next(cluster: Cluster) -> None:
    member = cluster.member(gated=True)
    broken = cluster.task(member, 0, 20_000)
    other = cluster.task(member, 1, 3000)
    member.allow(5)
    wait_until(lambda: member.ask("served") == 500, 30, "the function answers")
    broken.signal(signal.SIGKILL)
    wait_until(lambda: member.ask("streams") == 1, 10, "the member has noticed")
    again = cluster.task(member, 0, 20_000, attempt=1)
    member.allow(1000)
    assert other.answer() == ["inferred", 3000, True]
    assert again.answer() == ["inferred", 20_000, True]


@pytest.mark.all(
    case="an attempt that is repeated",
    covered_by="a killed member, and its successor; `unit/training/data/test_answer_queue`",
)
def test_both_attempts_of_a_partition_are_answered(cluster: Cluster) -> None:
    member = cluster.member()
    assert cluster.inferred(member, (0, 20_000), (0, 20_000)) == [True] * 2
    assert member.end()[0] == 40_000


@pytest.mark.all(
    case="tasks that take no results, or are stopped",
    covered_by="a killed member, and its successor; `unit/training/data/test_answer_queue`",
)
def test_tasks_that_take_no_results_or_are_stopped_hold_up_no_other(cluster: Cluster) -> None:
    """For longer than a lease, with more rows than all buffers hold together; then both continue."""
    member = cluster.member()
    slow, stopped = (cluster.task(member, number, 60_000, width=2048, pause_at=1) for number in range(2))
    assert [slow.answer(), stopped.answer()] == ["paused", "paused"]
    stopped.signal(signal.SIGSTOP)
    at = SystemClock().now()
    assert cluster.inferred(member, (2, 20_000)) == [True]
    wait_until(lambda: SystemClock().now() > at + LEASE_S + 1, LEASE_S + 5, "a lease is over")
    assert cluster.inferred(member, (3, 20_000)) == [True]
    stopped.signal(signal.SIGCONT)
    for each in (stopped, slow):
        each.send("continue")
    assert [slow.answer(), stopped.answer()] == [["inferred", 60_000, True]] * 2


@pytest.mark.all(case="a partition larger than what waits", covered_by="`unit/training/data/test_answer_queue`")
def test_a_partition_larger_than_memory_needs_little_of_it(cluster: Cluster) -> None:
    """200 MB of rows; the function stops answering after some."""
    member = cluster.member(gated=True, batch=1000)
    before = member.ask("memory")
    task = cluster.task(member, 0, 100_000, width=2048)
    member.allow(20)
    wait_until(lambda: member.ask("served") == 20_000, 60, "the function answers")
    wait_until(lambda: settled(task), 60, "the task waits")
    held = psutil.Process(task.process.pid).memory_info().rss
    assert member.ask("memory") - before < 100 * 2**20
    assert held < 250 * 2**20, f"{held / 2**20:.0f} MiB in the task"
    member.allow(1000)
    assert task.answer() == ["inferred", 100_000, True]


def test_results_of_another_number_fail_the_function(cluster: Cluster) -> None:
    member = cluster.member(batch=32, missing=1)
    task = cluster.task(member, 0, 1000)
    assert member.answer() == [
        "StreamError",
        "batch_results() got 31 results for 32 rows: pass one result for each row of the last next_batch(), in the "
        "same order",
    ]
    member.signal(signal.SIGKILL)
    cluster.publish(1, ended="batch_results() got 31 results for 32 rows")
    assert task.answer()[1] == "stream 'input' takes no more rows: batch_results() got 31 results for 32 rows"


def test_terminate_fails_tasks_that_wait_for_results(cluster: Cluster) -> None:
    """At once: a successor would call it too."""
    member = cluster.member(terminates_after=3)
    task = cluster.task(member, 0, 60_000, width=512)
    kind, text = task.answer()
    assert (kind, "the training function has called terminate()" in text) == ("StreamError", True)
    assert member.answer() == [300, 3, 0]
    assert cluster.task(member, 1, 5).answer() == [kind, text], "later ones, too"
