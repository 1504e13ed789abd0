"""Finds out, while an operation of the ring waits, that the members of a gang have called different ones.

Nothing of this costs a step anything but a note of what it calls. A member whose newest operation is old tells the
others, by way of their agents, which ones it has begun; whoever knows another one under the same number has found the
mistake. Members that are merely slow are told of as well, and left alone.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from sparktrain.clock import Clock, pause
from sparktrain.threads import spawn
from sparktrain.training.collectives.backend import Exchange
from sparktrain.training.collectives.collective_call import CollectiveCall

PATIENCE_S = 2.0
"""An operation is old when the next one has not begun for so long; doubled where that turns out to be usual."""
LOOK_S = 0.5
MOST_PATIENCE_S = 60.0
_KEY = "calls/"


class Begun(Protocol):
    """What a lookout needs of `CallLog`."""

    def newest(self) -> dict[int, CollectiveCall]:
        """The newest operations that this member has begun, by number."""
        ...


class Lookout:
    """One member's. Any thread may call it."""

    def __init__(self, calls: Begun, exchange: Exchange, rank: int, clock: Clock) -> None:
        self._calls = calls
        self._exchange = exchange
        self._rank = rank
        self._clock = clock
        self._looking = threading.Lock()
        self._others: dict[int, dict[int, CollectiveCall]] = {}
        self._newest = -1
        self._since = clock.now()
        self._told = False
        self._asked = False
        self._patience_s = PATIENCE_S

    def start(self, found: Callable[[str], None]) -> None:
        """Look every now and then, in a thread, until a mistake is found: then call `found` with it, once."""

        def watch() -> None:
            while True:
                pause(LOOK_S)
                try:
                    said = self.look()
                except OSError:  # the agent is gone, and ends this process
                    return
                if self._asked:  # whoever asks knows the mistake too, and its own error
                    return
                if said is not None:
                    found(said)
                    return

        spawn(watch, name="sparktrain-lookout")

    def ask(self, timeout_s: float) -> str | None:
        """Tell the others at once, and wait until each has answered in the same way, or a mistake is known.

        For a member whose operation has failed: where it failed because others called another one, they do this too.
        """
        self._asked = True
        until = self._clock.now() + timeout_s
        with self._looking:
            self._tell(self._calls.newest())
        while (said := self.look()) is None and self._clock.now() < until:
            pause(LOOK_S / 10)
        return said

    def look(self) -> str | None:
        """What is wrong, as far as it is known now. Raises OSError when the agent is gone."""
        with self._looking:
            mine = self._calls.newest()
            self._hear()
            self._consider(max(mine, default=-1), mine)
            for rank, theirs in sorted(self._others.items()):
                for number in sorted(mine.keys() & theirs.keys()):
                    if mine[number].key != theirs[number].key:
                        return self._said(number, rank, mine[number], theirs[number])
        return None

    def _hear(self) -> None:
        while (shared := self._exchange.shared(0.0)) is not None:
            key, value = shared
            if key.startswith(_KEY):
                calls = msgspec.json.decode(value, type=list[CollectiveCall])
                self._others[int(key.removeprefix(_KEY))] = {call.number: call for call in calls}

    def _consider(self, newest: int, mine: dict[int, CollectiveCall]) -> None:
        """Tell the others where this member's newest operation is old."""
        now = self._clock.now()
        if newest != self._newest:
            if self._told:
                self._patience_s = min(max(self._patience_s, 2 * (now - self._since)), MOST_PATIENCE_S)
            self._newest, self._since, self._told = newest, now, False
        elif not self._told and newest >= 0 and now - self._since >= self._patience_s:
            self._tell(mine)

    def _tell(self, mine: dict[int, CollectiveCall]) -> None:
        self._told = True
        self._exchange.share(f"{_KEY}{self._rank}", msgspec.json.encode([mine[number] for number in sorted(mine)]))

    def _said(self, number: int, rank: int, mine: CollectiveCall, theirs: CollectiveCall) -> str:
        calls = sorted([(self._rank, mine.shown), (rank, theirs.shown)])
        told = "; ".join(f"rank {who} calls {shown}" for who, shown in calls)
        return (
            f"the members of the gang call different operations of the ring, as operation {number + 1}: {told}. All "
            "members must call the same ones, in the same order, with equal shapes and types"
        )
