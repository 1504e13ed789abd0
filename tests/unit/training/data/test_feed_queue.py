"""What a retried, a second or a replaced feeder may add to the rows of a partition."""

import queue as queues
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from sparktrain.errors import StreamError
from sparktrain.training.data.stream import feed_queue
from sparktrain.training.data.stream.feed_queue import (
    MOST_BATCHES,
    MOST_FEEDING,
    Feeder,
    FeedQueue,
    PartitionKey,
    PartitionProgress,
    Pause,
    TakenBatch,
)

KEY = PartitionKey(1, 0, 0)


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": range(rows)})


def started(clock: Time | None = None) -> FeedQueue:
    queue = FeedQueue("train", 15.0, clock or Time())
    queue.start(1)
    return queue


def feeder() -> Feeder:
    return Feeder(lambda: False)


def test_a_retried_attempt_learns_what_the_trainer_has() -> None:
    queue, first, second = started(), feeder(), feeder()
    assert queue.claim(first, KEY) == PartitionProgress()
    assert queue.put(first, KEY, batch(3), 0, 7)
    assert queue.put(first, KEY, batch(2), 3, 9)
    queue.release(first)
    assert queue.claim(second, KEY) == PartitionProgress(rows=5, batches=2, checksum=9)
    with pytest.raises(StreamError, match="continues at row 0, and 5 is expected"):
        queue.put(second, KEY, batch(3), 0, 7)


def test_a_partition_is_complete_once_its_feeder_says_how_many_rows_it_had() -> None:
    queue, one = started(), feeder()
    queue.claim(one, KEY)
    queue.put(one, KEY, batch(3), 0, 7)
    with pytest.raises(StreamError, match="ends after 2 rows, the member has 3"):
        queue.complete(one, KEY, 2)
    assert queue.complete(one, KEY, 3) == PartitionProgress(3, 1, 7, complete=True)
    queue.release(one)
    assert queue.claim(feeder(), KEY) == PartitionProgress(3, 1, 7, complete=True)


def test_a_silent_feeder_is_replaced_and_adds_nothing_from_then_on() -> None:
    clock = Time()
    queue, silent, other = started(clock), feeder(), feeder()
    queue.claim(silent, KEY)
    queue.put(silent, KEY, batch(3), 0, 7)
    clock.at = 16.0
    assert queue.claim(other, KEY) == PartitionProgress(3, 1, 7)
    with pytest.raises(StreamError, match="another attempt feeds partition 0"):
        queue.put(silent, KEY, batch(3), 3, 8)
    queue.release(silent)
    assert queue.put(other, KEY, batch(1), 3, 8), "the end of the replaced exchange takes nothing from the other"


def test_a_silent_feeder_is_named_to_the_user_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Time()
    queue, silent = started(clock), Feeder(lambda: False, "ipv4:10.0.0.7:4321")
    queue.claim(silent, PartitionKey(1, 0, 3))
    clock.at = 14.0
    queue.look()
    assert capsys.readouterr().err == ""
    clock.at = 16.0
    queue.look()
    queue.look()
    [line] = capsys.readouterr().err.splitlines()
    assert "the feeder of partition 3 at ipv4:10.0.0.7:4321 gave no heartbeat for 15 s" in line
    with pytest.raises(StreamError, match="others feed now, for this attempt of partition 3 gave no heartbeat"):
        queue.put(silent, PartitionKey(1, 0, 3), batch(1), 0, 0)


def test_a_feeder_that_waits_for_room_is_not_silent() -> None:
    clock = Time()
    one = feeder()
    one.listening, clock.at = False, 1000.0
    assert not one.lost(clock.at, 15.0)
    one.listening = True
    assert one.lost(clock.at, 15.0)


def test_a_full_queue_ends_the_wait_of_a_feeder_that_is_gone() -> None:
    gone = False
    queue, one = started(), Feeder(lambda: gone)
    queue.claim(one, KEY)
    for number in range(MOST_BATCHES):
        queue.put(one, KEY, batch(1), number, 0)
    gone = True
    with pytest.raises(StreamError, match="the feeder of partition 0 is gone"):
        queue.put(one, KEY, batch(1), MOST_BATCHES, 0)


def test_the_trainer_gets_all_rows_before_the_end_and_an_error_at_once() -> None:
    queue, one = started(), feeder()
    queue.claim(one, KEY)
    queue.put(one, KEY, batch(3), 0, 7)
    queue.end(1)
    assert [each and each.num_rows for each in (queue.take(), queue.take())] == [3, None]
    queue.start(2)
    queue.end(1, "late, and about the epoch before")
    queue.end(2, "task 3 failed")
    with pytest.raises(StreamError, match="broke off in epoch 2: task 3 failed"):
        queue.take()


def test_a_trainer_that_stops_needs_no_more_of_any_partition() -> None:
    queue, one = started(), feeder()
    queue.claim(one, KEY)
    queue.put(one, KEY, batch(3), 0, 7)
    assert queue.stop(1) is True
    assert queue.put(one, KEY, batch(3), 3, 7) is False
    assert queue.complete(one, KEY, 3) is None
    assert queue.claim(feeder(), PartitionKey(1, 0, 5)) is None
    assert queue.take() is None
    assert queue.stop(1) is False


def test_other_epochs_are_over_or_unknown() -> None:
    queue = started()
    queue.start(2)
    assert queue.claim(feeder(), KEY) is None
    with pytest.raises(StreamError, match="epoch 3 has not been asked for"):
        queue.claim(feeder(), PartitionKey(3, 0, 0))


def test_a_repeated_micro_batch_is_not_taken_again() -> None:
    queue, one = started(), feeder()
    later = PartitionKey(1, 8, 0)
    queue.claim(one, later)
    queue.put(one, later, batch(3), 0, 7)
    queue.release(one)
    assert queue.claim(feeder(), PartitionKey(1, 7, 0)) == PartitionProgress(complete=True)
    assert queue.claim(feeder(), later) == PartitionProgress(3, 1, 7)


@pytest.fixture
def events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting exchange wakes by events alone: a wake-up that is lost fails the test."""
    monkeypatch.setattr(feed_queue, "LOOK_S", 60.0)


class Looks:
    """A peer that is there; `seen` waits until its exchange has looked so many times, and waits now."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> bool:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        return False

    def seen(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, 30)


@pytest.mark.usefixtures("events_alone")
def test_partitions_beyond_the_most_wait_for_their_turns_in_order() -> None:
    queue = started()
    feeding = [feeder() for _ in range(MOST_FEEDING)]
    for partition, each in enumerate(feeding):
        assert queue.claim(each, PartitionKey(1, 0, partition)) == PartitionProgress()
    turns: queues.Queue[int] = queues.Queue()

    def wait_for_turn(partition: int, looks: Looks) -> None:
        queue.claim(Feeder(looks), PartitionKey(1, 0, partition))
        turns.put(partition)

    later = range(MOST_FEEDING, MOST_FEEDING + 5)
    with ThreadPoolExecutor(len(later)) as threads:
        for partition in later:
            looks = Looks()
            threads.submit(wait_for_turn, partition, looks)
            looks.seen(1)
        assert turns.empty()
        for partition, each in zip(later, feeding, strict=False):
            queue.release(each)
            assert turns.get(timeout=30) == partition


@pytest.mark.usefixtures("events_alone")
def test_a_second_attempt_in_line_holds_up_no_other_partition() -> None:
    """It waits for the end of the first, which may be long, and then learns that the partition is complete."""
    queue, first = started(), feeder()
    queue.claim(first, KEY)
    looks = Looks()
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(queue.claim, Feeder(looks), KEY)
        looks.seen(1)
        assert queue.claim(feeder(), PartitionKey(1, 0, 1)) == PartitionProgress()
        queue.complete(first, KEY, 0)
        assert second.result(30) == PartitionProgress(complete=True)


@pytest.mark.usefixtures("events_alone")
def test_a_batch_that_is_taken_wakes_one_feeder() -> None:
    queue, looks, keys = started(), Looks(), [PartitionKey(1, 0, partition) for partition in range(MOST_FEEDING)]
    feeders = [Feeder(looks) for _ in keys]
    for each, key in zip(feeders, keys, strict=True):
        queue.claim(each, key)
    for number in range(MOST_BATCHES):
        queue.put(feeders[0], keys[0], batch(1), number, 0)
    before = looks.count
    done: queues.Queue[bool] = queues.Queue()
    with ThreadPoolExecutor(len(keys)) as threads:
        for number, (each, key) in enumerate(zip(feeders, keys, strict=True)):
            first_row = MOST_BATCHES if number == 0 else 0
            threads.submit(lambda e=each, k=key, f=first_row: done.put(queue.put(e, k, batch(1), f, 0)))
        looks.seen(before + len(keys))
        queue.take()
        assert done.get(timeout=30)
        assert looks.count == before + len(keys) + 1, "the others sleep on"
        for _ in keys[1:]:
            queue.take()
            assert done.get(timeout=30)


@pytest.mark.usefixtures("events_alone")
def test_a_feeder_that_cannot_use_its_room_leaves_it_to_the_next() -> None:
    queue, looks, keys = started(), Looks(), [PartitionKey(1, 0, partition) for partition in range(3)]
    gone = threading.Event()
    feeders = [feeder(), Feeder(lambda: looks() or gone.is_set()), Feeder(looks)]
    for each, key in zip(feeders, keys, strict=True):
        queue.claim(each, key)
    for number in range(MOST_BATCHES):
        queue.put(feeders[0], keys[0], batch(1), number, 0)
    with ThreadPoolExecutor(2) as threads:
        puts = []
        for each, key in zip(feeders[1:], keys[1:], strict=True):
            before = looks.count
            puts.append(threads.submit(queue.put, each, key, batch(1), 0, 0))
            looks.seen(before + 1)
        gone.set()
        queue.take()
        with pytest.raises(StreamError, match="the feeder of partition 1 is gone"):
            puts[0].result(30)
        assert puts[1].result(30)


@pytest.mark.usefixtures("events_alone")
def test_the_end_of_an_epoch_wakes_all_who_wait() -> None:
    queue, looks = started(), Looks()
    keys = [PartitionKey(1, 0, partition) for partition in range(MOST_FEEDING + 3)]
    feeders = [Feeder(looks) for _ in keys]
    for each, key in zip(feeders[:MOST_FEEDING], keys, strict=False):
        queue.claim(each, key)
    for number in range(MOST_BATCHES):
        queue.put(feeders[0], keys[0], batch(1), number, 0)
    before = looks.count
    with ThreadPoolExecutor(5) as threads:
        puts = [threads.submit(queue.put, feeders[n], keys[n], batch(1), 0, 0) for n in (1, 2)]
        looks.seen(before + 2)
        claims = [threads.submit(queue.claim, feeders[n], keys[n]) for n in (-1, -2, -3)]
        looks.seen(before + 2 + 3 * (1 + MOST_FEEDING))
        queue.stop(1)
        assert [each.result(30) for each in puts] == [False, False]
        assert [each.result(30) for each in claims] == [None, None, None]


@pytest.mark.usefixtures("events_alone")
def test_many_feeders_of_a_fast_trainer_lose_no_wake_up() -> None:
    queue = started()

    def one(partition: int) -> None:
        each, key = feeder(), PartitionKey(1, 0, partition)
        queue.claim(each, key)
        for number in range(20):
            assert queue.put(each, key, batch(1), number, 0)
        queue.complete(each, key, 20)
        queue.release(each)

    with ThreadPoolExecutor(32) as threads:
        fed = [threads.submit(one, partition) for partition in range(100)]
        taken = [queue.take(30.0) for _ in range(2000)]
        for future in fed:
            future.result(30)
    assert len(taken) == 2000


# ---- partitions that wait until their rows are used


def filled(queue: FeedQueue, partition: int, batches: int = 1, micro_batch: int = 0) -> tuple[Feeder, PartitionKey]:
    """A feeder that has sent its whole partition."""
    one, key = feeder(), PartitionKey(1, micro_batch, partition)
    queue.claim(one, key)
    for number in range(batches):
        queue.put(one, key, batch(1), number, 0)
    queue.complete(one, key, batches)
    return one, key


@pytest.mark.usefixtures("events_alone")
def test_a_partition_is_used_when_the_function_comes_back_after_its_last_row() -> None:
    queue = started()
    one, key = filled(queue, 0, batches=2)
    with ThreadPoolExecutor(1) as threads:
        used = threads.submit(queue.await_use, one, key)
        for number in range(2):
            assert isinstance(queue.take_for(1, None, False), TakenBatch)
            queue.used(number)
        assert not used.done(), "the function has the second batch"
        queue.used(2)
        assert used.result(30) is True
    assert queue.await_use(feeder(), key) is True, "a later attempt learns it at once"


@pytest.mark.usefixtures("events_alone")
def test_a_function_that_waits_for_rows_has_used_what_it_took() -> None:
    """Else a partition would wait for the function, and the function for the next partition."""
    queue, looks = started(), Looks()
    one, key = filled(queue, 0)
    with ThreadPoolExecutor(2) as threads:
        used = threads.submit(queue.await_use, Feeder(looks), key)
        looks.seen(1)
        assert isinstance(queue.take_for(10, None, False), TakenBatch)
        more = threads.submit(queue.take_for, 9, key, False)
        assert used.result(30) is True
        queue.end(1)
        assert more.result(30) is Pause.END
    queue.release(one)


def test_a_partition_without_rows_is_used() -> None:
    queue = started()
    assert queue.await_use(*filled(queue, 0, batches=0)) is True
    assert queue.await_use(feeder(), PartitionKey(1, 0, 0)) is True


@pytest.mark.usefixtures("events_alone")
def test_partitions_that_wait_for_their_use_hold_no_turn() -> None:
    """Many more than may feed at the same time."""
    queue = started()
    waiting = 3 * MOST_FEEDING
    with ThreadPoolExecutor(waiting) as threads:
        used = []
        for partition in range(waiting):
            used.append(threads.submit(queue.await_use, *filled(queue, partition)))
            assert isinstance(queue.take_for(1, None, False), TakenBatch)
        assert not any(each.done() for each in used)
        queue.used(waiting)
        assert [each.result(30) for each in used] == [True] * waiting


@pytest.mark.parametrize("end", [lambda queue: queue.stop(1), lambda queue: queue.close(), lambda queue: queue.end(1)])
@pytest.mark.usefixtures("events_alone")
def test_the_end_of_an_epoch_ends_the_wait_for_use(end: Callable[[FeedQueue], object]) -> None:
    queue, looks = started(), Looks()
    one, key = filled(queue, 0)
    with ThreadPoolExecutor(1) as threads:
        used = threads.submit(queue.await_use, Feeder(looks), key)
        looks.seen(1)
        end(queue)
        assert used.result(30) is False
    queue.release(one)


def test_a_feeder_that_is_gone_waits_for_no_use() -> None:
    queue = started()
    _, key = filled(queue, 3)
    with pytest.raises(StreamError, match="the feeder of partition 3 is gone"):
        queue.await_use(Feeder(lambda: True), key)


def test_an_earlier_micro_batch_is_used() -> None:
    queue = started()
    filled(queue, 0, micro_batch=1)
    filled(queue, 0, micro_batch=2)
    assert queue.await_use(feeder(), PartitionKey(1, 1, 0)) is True
