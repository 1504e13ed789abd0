"""The streams of a member: its messages to its agent, and what its feeders see, over real sockets."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from sparktrain.cluster.dataframes.feeder import Fed, TaskAttempt, feed
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.errors import DataError, StreamError
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedTicket, MemberStreams
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.data.stream.open_streams import OpenStreams
from sparktrain.training.gang_join import alone
from tests.support.feeds import numbered

COLUMNS = columns_of(pa.schema([("id", pa.int64()), ("pixels", pa.binary())]), "data['train']")


class Agent:
    """The agent's end of a member with one stream, and the feeders that the driver would start."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self._pipe: BlockingPipe[m.FromMember] = BlockingPipe(theirs, m.FromMember)
        self._made = issue("run")
        keys = MemberStreams({"train": COLUMNS}, self._made.server, "token")
        self._wire = BlockingPipe(mine, m.ToMember)
        self.streams = OpenStreams(keys, "127.0.0.1", AgentWire(self._wire), alone())
        self._threads = ThreadPoolExecutor(2)

    def phase(self) -> m.FeedPhase:
        """The next phase of an epoch. Whether the member waits depends on the load of this host."""
        while isinstance(message := self._pipe.receive(), m.RowsAwaited):
            pass
        assert isinstance(message, m.FeedPhase)
        return message

    def awaited(self) -> bool:
        """The start or end of a wait, which is the next message."""
        message = self._pipe.receive()
        assert isinstance(message, m.RowsAwaited)
        assert message.feed == "train"
        return message.waiting

    def feed(self, batches: Iterator[pa.RecordBatch]) -> Fed:
        """Feed the epoch that the member asks for, as the driver's job does."""
        asked = self.phase()
        assert asked.address is not None
        ticket = FeedTicket("train", (asked.address,), self._made.agent, "token", epoch=asked.epoch)
        fed = feed(batches, ticket, TaskAttempt(0, 0, 0))
        self.end(asked.epoch)
        return fed

    def start(self, batches: Iterator[pa.RecordBatch]) -> "Future[Fed]":
        return self._threads.submit(self.feed, batches)

    def end(self, epoch: int, problem: str = "") -> None:
        self._pipe.send(m.FeedOver("train", epoch, problem))

    def close(self) -> None:
        self.streams.close()
        self._pipe.close()
        self._wire.close()
        self._threads.shutdown()


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.close()


def test_each_pass_asks_for_the_next_epoch(agent: Agent) -> None:
    data = agent.streams.get("train")
    for epoch in (1, 2):
        fed = agent.start(numbered(0, 2500, 4, 0))
        rows = [len(batch["pixels"]) for batch in data.iter_batches(batch_size=1000)]
        assert rows == [1000, 1000], "the last 500 are no full batch"
        assert fed.result(30) == Fed(2500, 3, False)
        assert (agent.phase().phase, agent.streams.get("train")) == ("flowing", data), epoch


def test_a_member_that_waits_for_rows_informs_its_run(agent: Agent) -> None:
    """Until the rows come, and where the epoch has none."""
    data = agent.streams.get("train")
    with ThreadPoolExecutor(1) as trainer:
        rows = trainer.submit(data.next_batch, 100)
        asked = agent.phase()
        assert (asked.address is not None, agent.awaited()) == (True, True)
        agent.end(asked.epoch)
        assert (agent.awaited(), rows.result(30)) == (False, [])


def test_bytes_of_equal_length_become_arrays_of_their_length(agent: Agent) -> None:
    data = agent.streams.get("train")
    fed = agent.start(numbered(0, 100, 4, 0))
    assert [each.shape for each in data.schema] == [(), (4,)]
    [batch] = data.iter_batches(batch_size=100)
    assert (batch["pixels"].shape, batch["pixels"].dtype) == ((100, 4), "uint8")
    fed.result(30)


def test_rows_of_another_length_than_the_first_are_refused(agent: Agent) -> None:
    data = agent.streams.get("train")

    taken = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbered(0, 1000, 4, 0)
        assert taken.wait(30)  # else both lengths may be in one chunk
        yield from numbered(0, 1000, 5, 1000)

    same = pa.schema([("id", pa.int64()), ("pixels", pa.binary())])
    fed = agent.start(each.cast(same) for each in batches())
    found = data.iter_batches(batch_size=1000)
    assert len(next(found)["id"]) == 1000
    taken.set()
    with pytest.raises(DataError, match="column 'pixels' has rows of 5 to 5 bytes, and the first rows had 4"):
        list(found)
    fed.result(30)


def test_the_end_of_the_member_ends_its_feeders_well(agent: Agent) -> None:
    data = agent.streams.get("train")
    fed = agent.start(numbered(0, 50_000, 784, 0))
    batches = data.iter_batches(batch_size=100)
    assert len(next(batches)["id"]) == 100
    agent.streams.close()
    assert fed.result(30).enough
    assert [agent.phase().phase, agent.phase().phase] == ["flowing", "enough"]


def test_a_failed_job_is_an_error_of_the_member(agent: Agent) -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        agent.end(1, "task 3 failed")
        yield from ()

    fed = agent.start(fail())
    with pytest.raises(StreamError, match="broke off in epoch 1: task 3 failed"):
        list(agent.streams.get("train").iter_batches(batch_size=100))
    fed.result(30)
