"""Who holds the slots of a session in this process: calls that run at the same time share them, and none waits for the
slots of another."""

import threading
from collections.abc import Hashable
from itertools import count as numbers
from itertools import islice

from sparktrain.base import formatting
from sparktrain.errors import PoolError


class Holders:
    """Slots that are held, by holder. Its methods may be called in any thread, and do not block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, tuple[object, tuple[int, ...]]] = {}
        """The session, and which of its slots."""

    def take(
        self, holder: Hashable, session: object, count: int, capacity: int | None, noun: str = "agent"
    ) -> tuple[int, ...]:
        """Have `holder` hold `count` of the `capacity` slots of `session` for `noun`; None: unknown capacity.

        Returns the numbers of these slots, which no other holder has; a holder keeps the first of those that it has.
        Raises PoolError when others leave too few: Spark would let it wait for their end.
        """
        with self._lock:
            holder_session, slots = self._held.get(holder, (None, ()))
            booked = {
                slot
                for other_holder, (other_session, held) in self._held.items()
                if other_session is session and other_holder != holder
                for slot in held
            }
            if booked and capacity is not None and len(booked) + count > capacity:
                raise PoolError(
                    f"{formatting.count(count, noun)} {'is' if count == 1 else 'are'} wanted, and other calls or "
                    f"pools hold {len(booked)} of the {formatting.count(capacity, 'slot')} of the session: wait for "
                    "their end, call the pool itself (pool.sweep(...)) or close it, or share the slots with "
                    "max_concurrent_trials= of sweep() and agents= of pool()"
                )
            # Numbers, and not only a count: two sweeps on one machine once both had its first GPU, because each counted
            # from 0.
            if holder_session is not session or len(slots) != count:
                retained = slots[:count] if holder_session is session else ()
                unbooked = (slot for slot in numbers() if slot not in booked and slot not in retained)
                slots = (*retained, *islice(unbooked, count - len(retained)))
            self._held[holder] = session, slots
            return slots

    def vacant(self, session: object, capacity: int | None) -> int:
        """How many of the `capacity` slots of `session` nothing holds; 0 where the capacity is unknown."""
        with self._lock:
            held = [slots for other_session, slots in self._held.values() if other_session is session]
            return 0 if capacity is None else max(0, capacity - sum(map(len, held)))

    def free(self, holder: Hashable) -> None:
        """`holder` no longer holds any slot."""
        with self._lock:
            self._held.pop(holder, None)


HOLDERS = Holders()
"""The holders of this process."""
