"""What an agent sends about its members, kept until no loss of the coordinator can undo what followed from it.

An agent that may get another coordinator keeps each message about its member until that is settled: the journal and
the store have what followed, see `HeartbeatAck`. The next coordinator gets all others again, in their order, before
what comes next. So it may get a message a second time when its journal has the effect already; that changes nothing
more, and readers of reports count each step once. Some messages leave no record, and are kept for longer: the end of a
member, a question without an answer, and the newest snapshot and part.

The limit of what is kept is in bytes. Above it, as with a store that does not answer for long, the agent keeps nothing
more, and does not hold the member.
"""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from sparktrain.base.ids import Member
from sparktrain.protocol import messages as m
from sparktrain.protocol.codec import encode

TEXT_CHARS = 8_000
"""The kept length of a text that is too long; in UTF-8 at most four times as many bytes."""
Post = Callable[[m.FromAgent], None]

KEPT_BYTES = 64 * 2**20
"""How much an agent keeps: at 100 reports of ten metrics in each second, those of ten minutes."""

_LASTING = (m.MemberEnded, m.MemberStored, m.SnapshotHeld, m.PartStored)
"""Of each of these kinds the newest message is kept as long as its member is the agent's."""
_LAST: dict[type[m.Message], int] = {m.MemberEnded: 1, m.MemberStored: 2}
"""What may only follow all others, in this order: the end of a member, and that its files are stored."""


class Outbox:
    """The messages of one agent about its members. All methods belong to the agent's event loop."""

    def __init__(self, *, keeps: bool, limit_bytes: int = KEPT_BYTES) -> None:
        """`keeps`: there may be another coordinator, which gets what is not settled."""
        self._keeps = keeps
        self._limit_bytes = limit_bytes
        self._send: Post | None = None
        self._count = 0
        """Messages about members on the present stream."""
        self._kept: deque[tuple[int, m.FromAgent, int]] = deque()
        """Those that are not settled, with their numbers and their sizes in bytes."""
        self._bytes = 0
        self._lasting: dict[type[m.Message], m.FromAgent] = {}
        self._asked: dict[int, m.MemberAsked] = {}
        self.is_whole = True
        """Nothing that is not settled was dropped."""
        self.started: m.MemberStarted | None = None
        self.standing = m.Standing()
        self.step: int | None = None
        """What the member has sent last."""

    @property
    def has_ended(self) -> bool:
        """The member has an outcome."""
        return m.MemberEnded in self._lasting

    def clear(self) -> None:
        """The agent gets another member. It does only once what the one before has sent is settled."""
        self._kept.clear()
        self._bytes = 0
        self._lasting = {}
        self._asked = {}
        self.is_whole = True
        self.started = None
        self.standing = m.Standing()
        self.step = None

    def attach(self, send: Post) -> None:
        """Send over this stream from now on: first what is kept."""
        waiting = self._unsettled()
        self._kept.clear()
        self._bytes = 0
        self._count = 0
        self._send = send
        for message in waiting:
            self._pass(message)

    def detach(self) -> None:
        """The stream is lost."""
        self._send = None

    def post(self, message: m.FromAgent) -> None:
        """Send a message about a member, or keep it for the next coordinator."""
        if self._keeps:
            self._note(message)
        for part in fitting(message):
            self._pass(part)

    def settle(self, count: int) -> None:
        """The first `count` messages about members on this stream are settled."""
        while self._kept and self._kept[0][0] <= count:
            self._bytes -= self._kept.popleft()[2]

    def answered(self, number: int) -> None:
        """The member has the answer to its question."""
        self._asked.pop(number, None)

    def rename(self, successor: Member) -> None:
        """The process is another member from now on."""
        for kind, message in self._lasting.items():
            self._lasting[kind] = replace(message, member=successor)

    def _note(self, message: m.FromAgent) -> None:
        if isinstance(message, m.MemberStarted):
            self.started = message
        elif isinstance(message, m.MemberStands):
            self.standing = message.standing
        elif isinstance(message, m.MemberStepped):
            self.step = message.step
        elif isinstance(message, m.MemberAsked):
            self._asked[message.number] = message
        elif isinstance(message, _LASTING):
            self._lasting[type(message)] = message

    def _pass(self, message: m.FromAgent) -> None:
        counts = isinstance(message, m.MemberMessage)
        self._count += counts
        if self._keeps and counts and self.is_whole:
            size = len(encode(message))
            self._kept.append((self._count, message, size))
            self._bytes += size
            if self._bytes > self._limit_bytes:
                self.is_whole = False
                self._kept.clear()
                self._bytes = 0
        if self._send is not None:
            self._send(message)

    def _unsettled(self) -> list[m.FromAgent]:
        """What the next coordinator gets."""
        # The newest `Standing` is all that counts.
        messages = [
            message
            for _, message, _ in self._kept
            if not isinstance(message, m.MemberStands) or message.standing is self.standing
        ]
        lasting = [message for message in (*self._asked.values(), *self._lasting.values()) if message not in messages]
        return sorted([*lasting, *messages], key=lambda message: _LAST.get(type(message), 0))


def fitting(message: m.FromAgent) -> Iterator[m.FromAgent]:
    """The messages to send for `message`: itself, if it is not too large.

    Results and single reports fit: the member's process refuses larger ones with an error for the user.
    """
    if len(encode(message)) <= message.most_bytes:
        yield message
        return
    match message:
        case m.MemberReported(reports=reports) if len(reports) > 1:
            middle = len(reports) // 2
            for part in (reports[:middle], reports[middle:]):
                yield from fitting(replace(message, reports=part))
        case m.CheckpointFailed(problem=text) | m.MemberStored(problem=text):
            yield replace(message, problem=cut(text))
        case m.Leave(reason=text):
            yield replace(message, reason=cut(text))
        case m.Ready(failed_imports=failed):
            yield replace(message, failed_imports={name: cut(text, TEXT_CHARS // 10) for name, text in failed.items()})
        case _:
            yield message  # the link ends with an error that names it


def cut(text: str, chars: int = TEXT_CHARS) -> str:
    """`text`, shortened to about `chars` characters when it is longer."""
    return text if len(text) <= chars else f"{text[:chars]} ... ({len(text) - chars:,} characters more)"
