"""Detects, while a collective waits, that the members of a gang have called different ones.

It costs a step only a note of what it calls. A member with an old newest collective reports to the others, by way of
their agents, which ones it has started; a member with another one under the same number has found the mismatch. Slow
members send such reports too, and stay as they are.
"""

import threading
from collections.abc import Callable

import msgspec

from sparktrain.base.clock import Clock, pause
from sparktrain.base.decoding import from_json
from sparktrain.base.threads import spawn
from sparktrain.training.collectives.backend import Exchange
from sparktrain.training.collectives.eager_call_log import CollectiveCall

QUIET_S = 2.0
"""How long after its start a newest collective is old; doubled where such a pause turns out to be usual."""
POLL_S = 0.5
MAX_QUIET_S = 60.0
_KEY = "calls/"


class CallWatch:
    """Compares the collectives of one member with those of the others. Any thread may call it."""

    def __init__(
        self, newest_calls: Callable[[], dict[int, CollectiveCall]], exchange: Exchange, rank: int, clock: Clock
    ) -> None:
        """`newest_calls`: the newest collectives that this member has started, by number."""
        self._newest_calls = newest_calls
        self._exchange = exchange
        self._rank = rank
        self._clock = clock
        self._lock = threading.Lock()
        self._calls_by_rank: dict[int, dict[int, CollectiveCall]] = {}
        self._newest = -1
        self._since = clock.now()
        self._reported = False
        self._asking = False
        self._paused = False
        self._quiet_s = QUIET_S

    def start(self, callback: Callable[[str], None]) -> None:
        """Poll in a thread until there is a mismatch: then call `callback` with the message, once. Does not block."""

        def watch() -> None:
            while True:
                pause(POLL_S)
                try:
                    mismatch = self.look()
                except OSError:  # the agent is gone; this process ends too
                    return
                if self._asking:  # `ask` reports the mismatch
                    return
                if mismatch is not None:
                    callback(mismatch)
                    return

        spawn(watch, name="sparktrain-call-watch")

    def ask(self, timeout_s: float) -> str | None:
        """Report to the others at once, and block until there is a mismatch, at most `timeout_s`; returns its message.

        For a member with a failed collective: if others called another one, they ask too.
        """
        self._asking = True
        until = self._clock.now() + timeout_s
        with self._lock:
            self._report(self._newest_calls())
        while (mismatch := self.look()) is None and self._clock.now() < until:
            pause(POLL_S / 10)
        return mismatch

    def pause(self) -> None:
        """Neither look nor receive until `restart`: the members leave their ring."""
        with self._lock:
            self._paused = True

    def restart(self) -> None:
        """The members have joined another ring, and count their collectives from 0 again."""
        with self._lock:
            self._calls_by_rank = {}
            self._newest = -1
            self._since = self._clock.now()
            self._reported = self._paused = False

    def look(self) -> str | None:
        """The mismatch that is known now, or None; does not block. Raises OSError when the agent is gone."""
        with self._lock:
            if self._paused:
                return None
            mine = self._newest_calls()
            self._receive()
            self._report_if_old(max(mine, default=-1), mine)
            for rank, peer_calls in sorted(self._calls_by_rank.items()):
                for number in sorted(mine.keys() & peer_calls.keys()):
                    if mine[number].key != peer_calls[number].key:
                        return self._message(number, rank, mine[number], peer_calls[number])
        return None

    def _receive(self) -> None:
        while (shared := self._exchange.shared(0.0)) is not None:
            key, value = shared
            if key.startswith(_KEY):
                calls = from_json(value, list[CollectiveCall])
                self._calls_by_rank[int(key.removeprefix(_KEY))] = {call.number: call for call in calls}

    def _report_if_old(self, newest: int, mine: dict[int, CollectiveCall]) -> None:
        """Report to the others when this member's newest collective is old."""
        now = self._clock.now()
        if newest != self._newest:
            if self._reported:
                # The pause was a slow step and no hang: wait longer from now on, or each such step costs a message of
                # every member.
                self._quiet_s = min(max(self._quiet_s, 2 * (now - self._since)), MAX_QUIET_S)
            self._newest = newest
            self._since = now
            self._reported = False
        elif not self._reported and newest >= 0 and now - self._since >= self._quiet_s:
            self._report(mine)

    def _report(self, mine: dict[int, CollectiveCall]) -> None:
        self._reported = True
        self._exchange.share(f"{_KEY}{self._rank}", msgspec.json.encode([mine[number] for number in sorted(mine)]))

    def _message(self, number: int, rank: int, mine: CollectiveCall, peer_call: CollectiveCall) -> str:
        calls = sorted([(self._rank, mine.shown), (rank, peer_call.shown)])
        listed = "; ".join(f"rank {caller} calls {shown}" for caller, shown in calls)
        return (
            f"the members of the gang call different operations of the ring, as operation {number + 1}: {listed}. All "
            "members must call the same ones, in the same order, with equal shapes and types"
        )
