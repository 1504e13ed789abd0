"""Opens the streams of a run in a member: one server for all of them, started at the first use."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.protocol.feed_messages import MemberStreams
from sparktrain.protocol.pipe_messages import FeedPhase, RowsAwaited
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.data.stream.epoch_reader import Phase, RowWait
from sparktrain.training.data.stream.feed_reader import Agree, FeedReader, alone
from sparktrain.training.data.stream.stream_data import StreamData
from sparktrain.training.gang_join import JoinedGang

if TYPE_CHECKING:
    from sparktrain.training.data.stream.feed_server import FeedServer

CLOSE_S = 3.0
"""How long the end of a member waits for its feeders: one that computes is heard every 2 s."""
CLOSE_LOOK_S = 0.02
LOOK_S = 0.1
"""How long the thread that waits for the ends of jobs waits at a time, before it looks at the waits for rows."""


class OpenStreams:
    """The streams of one member, each opened once. One thread uses it."""

    def __init__(self, streams: MemberStreams, address: str, wire: AgentWire, gang: JoinedGang) -> None:
        """`address` is the IP address of this host that executors reach."""
        self._streams = streams
        self._address = address
        self._wire = wire
        self._gang = gang
        self._clock = SystemClock()
        self._closed = threading.Event()
        self._listening: threading.Thread | None = None
        self._server: FeedServer | None = None
        self._open: dict[str, StreamData] = {}
        self._waits: dict[str, RowWait] = {}

    def get(self, name: str) -> StreamData:
        """The stream `name`, which the run has. Raises StreamError when no port can be bound."""
        if name not in self._open:
            server = self._serve()

            def report(epoch: int, phase: Phase) -> None:
                place = server.address if phase == "asked" else None
                self._wire.send(FeedPhase(name, epoch, phase, place))

            def inform(waiting: bool) -> None:
                self._wire.send(RowsAwaited(name, waiting))

            size = self._gang.formation.size
            self._waits[name] = wait = RowWait(inform, self._clock)
            reader = FeedReader(server.feed(name), report, wait)
            self._open[name] = StreamData(name, self._streams.feeds[name], reader, self._agreement(size), size)
        return self._open[name]

    def close(self) -> None:
        """End what still feeds this member, so that no task of Spark fails. Waits for 3 s at most."""
        for stream in self._open.values():
            stream.close()
        until = self._clock.now() + CLOSE_S
        while self._server is not None and self._server.streams and self._clock.now() < until:
            self._clock.pause(CLOSE_LOOK_S)
        self._closed.set()
        if self._listening is not None:
            self._listening.join(CLOSE_S)

    def _serve(self) -> "FeedServer":
        if self._server is None:
            from sparktrain.training.data.stream.feed_server import FeedServer  # children of a user of Flight hang

            self._server = FeedServer(self._address, self._streams.certificates, self._streams.token)
            self._listening = spawn(self._listen, "sparktrain-feed-ends")
        return self._server

    def _listen(self) -> None:
        """Pass the ends of jobs to the queues, and look for long waits and silent feeders, while there is an agent."""
        while not self._wire.ended and not self._closed.is_set():
            over = self._wire.feed_over(LOOK_S)
            if over is not None:
                self._serve().feed(over.feed).end(over.epoch, over.problem)
            self._serve().look()
            for wait in list(self._waits.values()):
                with suppress(OSError):  # the agent is gone: the reader finds out
                    wait.look()

    def _agreement(self, size: int) -> Agree:
        return alone if size == 1 else self._least

    def _least(self, steps: int) -> int:
        """The least number of all members: a collective of the gang's ring."""
        ring = self._gang.ring
        gathered: Any = ring.values.allgather(ring, steps)
        return int(gathered.min())
