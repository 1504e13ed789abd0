"""`TFNode` as programs for TensorFlowOnSpark use it; the first test is their own, with another queue behind it."""

import getpass
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import DataError, SpecError, StreamError
from sparktrain.protocol.row_pickles import pickled
from sparktrain.tensorflowonspark import TFNode
from sparktrain.tensorflowonspark.TFNode import DataFeed
from sparktrain.training.data.stream.epoch_reader import RowWait
from sparktrain.training.data.stream.feed_queue import Feeder, FeedQueue, PartitionKey
from sparktrain.training.data.stream.feed_reader import FeedReader, alone
from sparktrain.training.data.stream.stream_data import StreamData


class Handle:
    """`ctx.mgr` of a member with one feed, `input`, which is fed with partitions when it is asked for."""

    def __init__(self, *partitions: Sequence[Any]) -> None:
        self._partitions = partitions
        self.queue = FeedQueue("input")
        self.reports: list[str] = []
        reader = FeedReader(self.queue, self._report, RowWait(lambda waiting: None, SystemClock()))
        self._data = StreamData("input", (), reader, alone, 1)

    def stream(self, qname: str) -> StreamData:
        if qname != "input":
            raise StreamError(f"the cluster has no feed {qname!r}; it has: input")
        return self._data

    def _report(self, epoch: int, phase: str) -> None:
        self.reports.append(phase)
        if phase == "asked":
            for number, rows in enumerate(self._partitions):
                self.feed(number, rows)
            self.queue.end(epoch)

    def feed(self, number: int, rows: Sequence[Any]) -> None:
        one, key = Feeder(lambda: False), PartitionKey(1, 0, number)
        self.queue.claim(one, key)
        for place, batch in enumerate(pickled(iter(rows))):
            self.queue.put(one, key, batch, place, 0)
        self.queue.release(one)


def test_data_feed_basic_operations() -> None:
    feed = DataFeed(Handle(range(10)))
    assert not feed.done_feeding
    assert feed.next_batch(2) == [0, 1]
    assert not feed.done_feeding
    assert feed.next_batch(4) == [2, 3, 4, 5]
    assert not feed.done_feeding
    assert feed.next_batch(10) == [6, 7, 8, 9]
    assert feed.should_stop()
    assert feed.done_feeding


def test_the_end_of_a_feed_is_final() -> None:
    """Where a stream of `data=` would start its next epoch."""
    handle = Handle([1])
    feed = DataFeed(handle)
    assert [feed.next_batch(1), feed.next_batch(1), feed.next_batch(1)] == [[1], [], []]
    assert feed.next_arrow(1) is None
    assert DataFeed(handle).next_batch(1) == [], "a second feed of the same name has nothing left"
    assert handle.reports == ["asked", "flowing"]


def test_input_mapping_gives_the_values_of_each_tensor() -> None:
    """The columns are in the order of their names, and not of the dict."""
    feed = DataFeed(Handle([("a", 1), ("b", 2)], [("c", 3)]), input_mapping={"label": "y", "image": "x"})
    assert feed.input_tensors == ["x", "y"]
    assert feed.next_batch(3) == {"x": ["a", "b", "c"], "y": [1, 2, 3]}
    assert feed.next_batch(3) == {"x": [], "y": []}


@pytest.mark.parametrize(
    ("row", "problem"), [((1,), "has 1 values"), ((1, 2, 3), "has 3 values"), (7, "is a int"), ([], "has 0 values")]
)
def test_rows_with_another_number_of_columns_are_named(row: Any, problem: str) -> None:
    feed = DataFeed(Handle([("a", 1), row]), input_mapping={"label": "y", "image": "x"})
    with pytest.raises(DataError) as raised:
        feed.next_batch(2)
    expected = "input_mapping has 2 columns (image, label), and a row of the feed 'input' " + problem
    assert str(raised.value).startswith(expected)


def test_without_training_a_batch_ends_with_its_partition() -> None:
    partitions = [1, 2, 3], [], [4]
    assert DataFeed(Handle(*partitions)).next_batch(10) == [1, 2, 3, 4]
    feed = DataFeed(Handle(*partitions), train_mode=False)
    assert [feed.next_batch(2), feed.next_batch(2), feed.next_batch(2)] == [[1, 2], [3], [4]]


def test_terminate_ends_the_feed() -> None:
    feed = DataFeed(Handle(range(100)))
    feed.next_batch(10)
    feed.terminate()
    assert (feed.next_batch(10), feed.should_stop()) == ([], True)


def test_a_function_that_never_reads_may_terminate() -> None:
    """The driver waits until each member has asked for rows."""
    handle = Handle([1])
    DataFeed(handle).terminate()
    assert handle.reports[0] == "asked"


def test_an_unknown_feed_is_named() -> None:
    with pytest.raises(StreamError, match="no feed 'other'; it has: input"):
        DataFeed(Handle(), qname_in="other").next_batch(1)


def test_results_of_training_rows_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    feed = DataFeed(Handle([1, 2]))
    feed.batch_results(feed.next_batch(2))
    assert "batch_results() got 2 results" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        lambda: TFNode.next_batch(None, 10),
        lambda: TFNode.batch_results(None, []),
        lambda: TFNode.terminate(None),
    ],
)
def test_functions_of_its_first_versions_name_the_replacement(call: Callable[[], Any]) -> None:
    with pytest.raises(SpecError, match=r"^DEPRECATED: .* write feed = ctx.get_data_feed\(\)"):
        call()


def test_a_port_needs_no_release() -> None:
    TFNode.release_port(object())


@pytest.mark.parametrize("system", ["file://", "hdfs://", "viewfs://"])
def test_hdfs_path_is_that_of_the_default_file_system(system: str) -> None:
    """The table of the original's own test."""
    here, user = os.getcwd(), getpass.getuser()
    ctx: Any = SimpleNamespace(defaultFS=system, working_dir=here)
    for url in ("hdfs://foo/bar", "viewfs://foo/bar", "file://foo/bar"):
        assert TFNode.hdfs_path(ctx, url) == url
    assert TFNode.hdfs_path(ctx, "/foo/bar") == f"{system}/foo/bar"
    relative = f"file://{here}/foo/bar" if system == "file://" else f"{system}/user/{user}/foo/bar"
    assert TFNode.hdfs_path(ctx, "foo/bar") == relative
