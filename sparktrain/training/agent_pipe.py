"""Messages between the process of a training function and its agent."""

import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from msgspec.structs import replace

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import ProtocolError
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.state.agent_messages import (
    Advise,
    AnswerMember,
    AskSnapshot,
    Judged,
    PeerShared,
    Seating,
    Standing,
)
from sparktrain.state.topology import MemberAddress

T = TypeVar("T")

_LOOK_S = 0.02
"""How often a waiting thread checks for what another thread has received for it."""


class Wire(Protocol):
    """The connection to the process that started the training function. Any thread may call it."""

    def send(self, message: m.FromMember) -> None:
        """Send `message` without waiting for an answer. Raises OSError when the other end is gone."""
        ...

    def stop_advised(self) -> bool:
        """Whether the function has been asked to return early; returns at once."""
        ...

    def judged(self, step: int, timeout_s: float) -> bool | None:
        """Whether the rules of the run have judged the report of `step`, once `timeout_s` are over at the latest.

        None at once where no rule judges this report.
        """
        ...

    def take_asked(self, *, in_store: bool = False) -> bool:
        """Whether the coordinator has asked for a snapshot since the last call; returns at once.

        `in_store`: for one that becomes a checkpoint, and not for one in memory.
        """
        ...

    def snapshot_answer(self, timeout_s: float) -> m.SnapshotAnswered | None:
        """The answer to a `Snapshot`, each once; None when none came in time, or the agent is gone."""
        ...

    def ask(self, question: bytes, timeout_s: float | None) -> AnswerMember | None:
        """Ask the sampler of the run, in one thread at a time.

        None without waiting where `timeout_s` is None, and when no answer came in time, or the agent is gone. Raises
        OSError when the other end is gone.
        """
        ...


class AgentWire:
    """The connection to the agent of this member, over the socket pair made for its fork."""

    def __init__(self, pipe: BlockingPipe[m.ToMember], clock: Clock | None = None, *, judged: bool = False) -> None:
        """`judged`: rules of the run judge the reports of this member."""
        self._pipe = pipe
        self._clock = clock or SystemClock()
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._standing = Standing()
        self._has_obeyed = False
        self._asked: set[bool] = set()
        """The snapshots that were asked for: True stands for one in the store."""
        # On a busy machine the first `Judged` comes later than the first reports, which no step would wait for.
        self._judged: int | None = -1 if judged else None
        """The newest step that the rules of the run have judged; None where none judge."""
        self._next_judged = 0
        """No rule judges a report below this step."""
        self._seating: Seating | None = None
        """Of the newest ring that the members form, or have formed."""
        self._broken = 0
        """The newest ring that follows the loss of another member, which this one survives."""
        self._offer: Seating | None = None
        """Of the next ring, with a process that waits for a place in it, unless that is withdrawn."""
        self._on_broken: Callable[[int], None] | None = None
        self._announcing = threading.Lock()
        self._announced = 0
        """The newest ring that the callback has heard of."""
        self._shared: deque[tuple[str, bytes]] = deque()
        self._snapshot_answers: deque[m.SnapshotAnswered] = deque()
        self._over: deque[m.FeedOver] = deque()
        self._question_number = 0
        """Number of the newest question to the sampler."""
        self._answers: deque[AnswerMember] = deque()

    def send(self, message: m.FromMember) -> None:
        """See base class. Waits only while the agent, which reads all the time, is not scheduled."""
        with self._sending:
            self._pipe.send(message)

    def stop_advised(self) -> bool:
        """See base class."""
        self._receive()
        return self._has_obeyed

    def judged(self, step: int, timeout_s: float) -> bool | None:
        """See base class."""
        deadline = self._clock.now() + timeout_s
        self._receive()
        if step < self._next_judged:
            return None
        while self._judged is not None and self._judged < step and not (self._has_obeyed or self._pipe.ended):
            if (left_s := deadline - self._clock.now()) <= 0:
                return False
            self._look(min(left_s, _LOOK_S))
        return None if self._judged is None else True

    def snapshot_answer(self, timeout_s: float) -> m.SnapshotAnswered | None:
        """See base class."""
        return self._await(self._snapshot_answers, timeout_s)

    def ask(self, question: bytes, timeout_s: float | None) -> AnswerMember | None:
        """See base class."""
        self._question_number += 1
        self.send(m.SamplerAsked(self._question_number, question))
        deadline = self._clock.now() + (timeout_s or 0.0)
        while timeout_s is not None:
            answer = self._await(self._answers, max(0.0, deadline - self._clock.now()))
            if answer is None or answer.number == self._question_number:
                return answer  # answers come in the order of their questions
        return None

    def take_asked(self, *, in_store: bool = False) -> bool:
        """See base class."""
        self._receive()
        is_requested = in_store in self._asked
        self._asked.discard(in_store)
        return is_requested

    def stand(self, **changes: int) -> None:
        """Report how this member stands: `changes` are fields of `Standing`. Raises OSError when the agent is gone."""
        with self._sending:
            self._standing = replace(self._standing, **changes)
            self._pipe.send(self._standing)

    # ---- rendezvous of the gang

    def reserve(self, port: int) -> tuple[MemberAddress, ...] | None:
        """Report that this member holds `port`, and wait for the addresses of all; None when the agent is gone.

        Blocks as long as the coordinator waits, which ends the processes of a gang that does not form.
        """
        self.stand(port=port)
        while not self._places and not self._pipe.ended:
            self._look(1.0)
        return self._places or None

    def share(self, key: str, value: bytes) -> None:
        """Give `value` to all other members. Raises OSError when the agent is gone."""
        self.send(m.SharedValue(key, value))

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        """A key and value that another member has shared, each once; None when none came in time."""
        return self._await(self._shared, timeout_s)

    def moved(self, rank: int) -> MemberAddress | None:
        """Where a member is now: one that was lost may have restarted at another place. Never blocks."""
        self._receive()
        return self._places[rank] if rank < len(self._places) else None

    # ---- rings that heal

    def doubts(self, ranks: Sequence[int]) -> None:
        """Report members with hosts that this member cannot reach. Raises OSError when the agent is gone."""
        self.send(m.Doubts(list(ranks)))

    def await_joined(self, ring: int, timeout_s: float) -> bool:
        """Wait until all members have reported that they have joined `ring`.

        Returns at once where another member is lost, or the agent is gone. False when it takes longer than `timeout_s`.
        """
        deadline = self._clock.now() + timeout_s
        while not self._has_joined(ring) and not self._pipe.ended:
            if (left_s := deadline - self._clock.now()) <= 0:
                return False
            self._look(min(left_s, _LOOK_S))
        return True

    @property
    def ring(self) -> int:
        """Number of the newest ring that this member has heard of; 0 for the first. Never blocks."""
        self._receive()
        return 0 if self._seating is None else self._seating.ring

    @property
    def _places(self) -> tuple[MemberAddress, ...]:
        return () if self._seating is None else self._seating.places

    def _has_joined(self, ring: int) -> bool:
        self._receive()
        seating = self._seating
        return seating is not None and (seating.ring, seating.joined) >= (ring, True)

    @property
    def called(self) -> int | None:
        """The steps after which the process before this one had called its callbacks; None where that is unknown."""
        return None if self._seating is None else self._seating.called

    def on_ring_broken(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the number of the next ring each time another member is lost and this one heals.

        A thread of its own reads the pipe from now on, so that the call comes while this process is in a collective.
        It comes at once, in the thread of the caller, for a loss that is known already. One callback for a process; it
        may call this connection.
        """
        self._on_broken = callback
        self._receive()
        spawn(self._listen, "sparktrain-ring")

    def _listen(self) -> None:
        with suppress(OSError, ValueError):  # the pipe is closed
            while not self._pipe.ended:
                self._look(1.0)

    def next_ring(self, timeout_s: float) -> Seating | None:
        """How the newest ring meets that this member has heard of.

        Blocks until that ring can form; None when that takes longer than `timeout_s`, or the agent is gone.
        """
        deadline = self._clock.now() + timeout_s
        while True:
            self._receive()
            seating = self._seating
            if seating is not None and seating.places:
                return seating
            if self._pipe.ended or (left_s := deadline - self._clock.now()) <= 0:
                return None
            self._look(min(left_s, _LOOK_S))

    def await_place(self, *, bound: bool) -> Seating | None:
        """Report that this process waits for a place in the ring of others; the member that it is, and that ring.

        `bound`: its function has read its rank, so that it can take no other place. Blocks as long as the coordinator
        has no place for it, which ends a process that it does not need; None when the agent is gone. Raises OSError
        when it is gone before.
        """
        self.stand(waits=True, bound=bound)
        while (seating := self._seating) is None or not seating.ring:
            if self._pipe.ended:
                return None
            self._look(1.0)
        self.stand(waits=False)
        return seating

    @property
    def offer(self) -> Seating | None:
        """The next ring, in which a process that waits takes a place; None without one. Never blocks."""
        self._receive()
        return self._offer

    # ---- streams

    def feed_over(self, timeout_s: float) -> m.FeedOver | None:
        """The end of a job that feeds this member, each once; None when none came in time."""
        return self._await(self._over, timeout_s)

    @property
    def ended(self) -> bool:
        """Whether the agent is gone."""
        return self._pipe.ended

    # ---- receiving

    def _await(self, queue: deque[T], timeout_s: float) -> T | None:
        deadline = self._clock.now() + timeout_s
        while True:
            self._receive()
            with suppress(IndexError):
                return queue.popleft()
            if self._pipe.ended or (left_s := deadline - self._clock.now()) <= 0:
                return None
            self._look(min(left_s, _LOOK_S))

    def _look(self, timeout_s: float) -> None:
        select.select([self._pipe.fileno()], [], [], timeout_s)
        self._receive()

    def _receive(self) -> None:
        """Handle the messages that have arrived; never blocks."""
        # One thread reads at a time, and keeps what is for others: the thread that trains and the one that saves both
        # wait for answers.
        with self._receiving, suppress(OSError, ProtocolError):
            while (message := self._pipe.poll()) is not None:
                self._take(message)
        self._announce()

    def _announce(self) -> None:
        # Outside of the lock for receiving: the callback ends connections, and may look at this one.
        with self._announcing:
            callback = self._on_broken
            broken = self._broken
            if callback is None or broken <= self._announced:
                return
            self._announced = broken
        callback(broken)

    def _take(self, message: m.ToMember) -> None:
        match message:
            case AskSnapshot(in_store=in_store):
                self._asked.add(in_store)
            case Advise():
                self._has_obeyed = True
            case Judged(step=step, next=following, stops=stops):
                self._judged = step
                self._next_judged = following
                self._has_obeyed = self._has_obeyed or stops
            case Seating(moving=None):
                self._seating = message
                self._offer = None
                self._broken = self._broken if message.places else message.ring
            case Seating():
                self._offer = message
            case PeerShared(key=key, value=value):
                self._shared.append((key, value))
            case m.FeedOver():
                self._over.append(message)
            case AnswerMember():
                self._answers.append(message)
            case m.SnapshotAnswered():
                self._snapshot_answers.append(message)


def sendable(text: str) -> str:
    """`text` as UTF-8 can carry it: lone surrogates, as in undecodable file names, are escaped."""
    return text.encode(errors="backslashreplace").decode()
