"""Which rows a training function gets of tasks that wait for results, and where its results go."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import Enough, FeedRefused, Results
from sparktrain.protocol.row_pickles import batch_of, pickle_of, unpickled
from sparktrain.training.data.stream import answer_queue
from sparktrain.training.data.stream.answer_queue import MOST_BATCHES, AnsweredExchange
from sparktrain.training.data.stream.feed_queue import Feeder, FeedQueue, PartitionKey, Pause, TakenBatch
from tests.unit.clocks import HandClock

LEASE_S = 15.0


def batch(*rows: Any) -> pa.RecordBatch:
    return batch_of([pickle_of(list(rows))])


class Asking:
    """A queue with tasks that ask."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.feed = FeedQueue("input", LEASE_S, self.clock)
        self.feed.start(1, answers=True)
        self.queue = self.feed.answers

    def task(self, partition: int = 0, gone: Callable[[], bool] = lambda: False) -> AnsweredExchange:
        return self.queue.enter(partition, gone, f"ipv4:10.0.0.{partition}:1")

    def send(self, task: AnsweredExchange, first: int, *rows: Any) -> None:
        self.queue.put(task, batch(*rows), first, len(rows))

    def next(self, count: int) -> list[Any]:
        """The rows of the next batch of the function."""
        found = self.feed.take_for(count, None, False)
        assert isinstance(found, AnsweredExchange)
        return self.queue.rows_of(found, count)

    def results(self, task: AnsweredExchange) -> tuple[Results, list[Any]]:
        answer = self.queue.next_answer(task)
        assert answer is not None
        return answer.message, unpickled(answer.batch, "results")


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_results_return_by_the_batches_of_the_task(asking: Asking) -> None:
    """However the function cuts its own."""
    task = asking.task()
    asking.send(task, 7, "a", "b", "c")
    asking.send(task, 10, "d", "e")
    asking.queue.end(task)
    for rows in (["a", "b"], ["c", "d"], ["e"]):
        assert asking.next(2) == rows
        asking.queue.answer([each.upper() for each in rows])
    assert asking.results(task) == (Results(7, 3), ["A", "B", "C"])
    assert asking.results(task) == (Results(10, 2), ["D", "E"])


def test_a_batch_has_rows_of_one_task_alone(asking: Asking) -> None:
    one, other = asking.task(0), asking.task(1)
    asking.send(one, 0, 1, 2, 3)
    asking.send(other, 0, 4, 5)
    asking.queue.end(other)
    assert asking.next(4) == [4, 5], "the first one may get a fourth row yet"
    asking.queue.answer([0, 0])
    asking.queue.end(one)
    assert asking.next(4) == [1, 2, 3]


def test_a_task_that_sends_nothing_holds_up_no_other(asking: Asking) -> None:
    """Between batches the function may change to a task that has enough rows."""
    one, other = asking.task(0), asking.task(1)
    asking.send(one, 0, 1, 2, 3)
    assert asking.next(2) == [1, 2]
    asking.queue.answer([1, 2])
    asking.send(other, 0, 4, 5)
    assert asking.next(2) == [4, 5]


def test_a_function_that_wants_more_than_waits_gets_it_from_one_task(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_queue, "LOOK_S", 60.0)
    task = asking.task()

    def send() -> None:
        for number in range(3 * MOST_BATCHES):
            asking.send(task, number, number)

    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        assert asking.next(3 * MOST_BATCHES) == list(range(3 * MOST_BATCHES))
        sent.result(30)


@pytest.mark.parametrize("results", [0, 31, 33])
def test_there_are_as_many_results_as_rows(asking: Asking, results: int) -> None:
    task = asking.task()
    asking.send(task, 0, *range(40))
    assert len(asking.next(32)) == 32
    with pytest.raises(StreamError, match=rf"^batch_results\(\) got {results} results for 32 rows"):
        asking.queue.answer(iter(range(results)))


def test_rows_without_results_are_an_error_of_the_next_batch(asking: Asking) -> None:
    task = asking.task(3)
    asking.send(task, 0, 1, 2)
    asking.next(2)
    with pytest.raises(StreamError, match=r"before batch_results\(\) got the results of 2 rows of partition 3"):
        asking.queue.check_answered()


def test_results_of_no_rows_are_dropped_with_one_notice(asking: Asking, capsys: pytest.CaptureFixture[str]) -> None:
    asking.queue.answer([])
    assert capsys.readouterr().err == ""
    asking.queue.answer([1, 2])
    asking.queue.answer([3])
    [line] = capsys.readouterr().err.splitlines()
    assert "batch_results() got 2 results, and no rows of cluster.inference() wait for results" in line


def test_a_result_that_cannot_be_pickled_is_named(asking: Asking) -> None:
    task = asking.task()
    asking.send(task, 0, 1)
    asking.next(1)
    with pytest.raises(StreamError, match=r"a result of batch_results\(\) cannot be pickled"):
        asking.queue.answer([threading.Lock()])


def test_results_for_a_task_that_has_gone_go_nowhere(asking: Asking) -> None:
    """And its rows are not handed out."""
    gone, other = asking.task(0), asking.task(1)
    asking.send(gone, 0, 1, 2, 3, 4)
    asking.send(other, 0, 5, 6)
    assert asking.next(2) == [1, 2]
    asking.queue.leave(gone)
    asking.queue.answer([1, 2])
    assert asking.queue.next_answer(gone) is None
    assert asking.next(2) == [5, 6]
    asking.queue.answer([5, 6])
    assert asking.results(other) == (Results(0, 2), [5, 6])


def test_a_task_that_goes_while_its_batch_is_filled_gives_no_rows(asking: Asking) -> None:
    task = asking.task()
    with ThreadPoolExecutor(1) as threads:
        asking.send(task, 0, 1)
        rows = threads.submit(asking.queue.rows_of, task, 2)
        asking.queue.leave(task)
        assert rows.result(30) == []
    asking.queue.check_answered()


def test_a_silent_task_is_given_up_and_named_once(asking: Asking, capsys: pytest.CaptureFixture[str]) -> None:
    silent, other = asking.task(7), asking.task(1)
    asking.send(silent, 0, 1)
    asking.clock.at = LEASE_S + 1
    asking.queue.heard(other)
    asking.feed.look()
    asking.feed.look()
    [line] = capsys.readouterr().err.splitlines()
    assert "the task of partition 7 at ipv4:10.0.0.7:1, which waits for results, gave no heartbeat for 15 s" in line
    assert (asking.queue.last_answer(silent), asking.queue.last_answer(other)) == (Enough(), None)


def test_a_task_that_takes_no_results_for_long_is_given_up(asking: Asking) -> None:
    """The write of its results has lasted for a lease."""
    task = asking.task()
    asking.send(task, 0, 1)
    asking.next(1)
    asking.queue.answer([1])
    asking.queue.next_answer(task)
    asking.clock.at = LEASE_S + 1
    asking.queue.heard(task)
    asking.feed.look()
    assert asking.queue.last_answer(task) == Enough()


def test_rows_that_cannot_be_unpickled_fail_their_task_alone(asking: Asking) -> None:
    broken, other = asking.task(0), asking.task(1)
    asking.queue.put(broken, batch_of([b"no pickle"]), 0, 1)
    asking.send(other, 0, 5)
    assert asking.next(1) == []
    assert asking.next(1) == [5]
    last = asking.queue.last_answer(broken)
    assert isinstance(last, FeedRefused)
    assert "rows of an RDD cannot be unpickled" in last.reason


def test_a_batch_that_does_not_follow_is_refused(asking: Asking) -> None:
    task = asking.task(2)
    asking.send(task, 10, 1, 2)
    with pytest.raises(StreamError, match="partition 2 continues at row 13, and 12 is expected"):
        asking.send(task, 13, 1)


def test_a_full_queue_ends_the_wait_of_a_task_that_is_gone(asking: Asking) -> None:
    gone = threading.Event()
    task = asking.task(2, gone.is_set)
    for number in range(MOST_BATCHES):
        asking.send(task, number, number)
    gone.set()
    with pytest.raises(StreamError, match="the task of partition 2 is gone"):
        asking.send(task, MOST_BATCHES, 0)


@pytest.mark.parametrize(("refusal", "last"), [("", Enough()), ("no more", FeedRefused("no more"))])
def test_a_feed_that_stops_ends_its_exchanges(asking: Asking, refusal: str, last: object) -> None:
    task = asking.task()
    asking.send(task, 0, 1)
    asking.feed.stop(1, refusal)
    assert asking.queue.last_answer(task) == last
    assert asking.queue.last_answer(asking.task()) == last, "later ones, too"
    assert asking.feed.take_for(1, None, False) is Pause.END


def test_a_function_that_reads_batches_answers_nothing(asking: Asking) -> None:
    asking.feed.start(2)
    last = asking.queue.last_answer(asking.task())
    assert isinstance(last, FeedRefused)
    assert "reads this feed without results" in last.reason


def test_rows_that_need_no_results_come_first_and_join_no_others(asking: Asking) -> None:
    task, feeder, key = asking.task(), Feeder(lambda: False), PartitionKey(1, 1, 0)
    asking.send(task, 0, 5)
    asking.feed.claim(feeder, key)
    asking.feed.put(feeder, key, batch(1), 0, 0)
    found = asking.feed.take_for(10, None, False)
    assert isinstance(found, TakenBatch)
    asking.queue.end(task)
    assert asking.feed.take_for(9, key, False) is Pause.SHORT, "the function gets what it holds"
    assert asking.next(10) == [5]
