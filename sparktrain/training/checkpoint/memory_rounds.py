"""How the members of a gang agree on memory checkpoints, whatever trains: all take one after the same step.

One member of each host copies its state, in turns; all where another gang is to continue from it. Each copy has the
random numbers of the chief, and what each member has of its own, with its random numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.base.clock import Clock
from sparktrain.errors import OutOfStepError
from sparktrain.training.checkpoint.member_states import gathered
from sparktrain.training.checkpoint.memory_saver import PART_BYTES, MemorySaver, part_bytes
from sparktrain.training.checkpoint.snapshot_schedule import SnapshotSchedule
from sparktrain.training.collectives.ring import Ring

LOOK_S = 0.5
"""How often the members of a gang that may grow look whether it does."""
DRAIN_LOOK_S = 2.0
"""How often those of any other gang look whether it is to leave its agents."""


class MemoryRounds:
    """The rounds of one member. Its methods belong to the thread that trains.

    Each round is one small collective, and a broadcast of the chief's part where a snapshot is due. Between rounds a
    step costs a comparison.
    """

    def __init__(self, ring: Ring, memory: MemorySaver, interval_s: float | None, clock: Clock) -> None:
        """`interval_s`: see `SnapshotSchedule`."""
        self.ring = ring
        self._seat = (ring.rank, ring.size)
        """Of this member in the first ring, and how many there are: a ring that becomes smaller has the same rows."""
        self._memory = memory
        self._schedule = SnapshotSchedule(interval_s, LOOK_S if memory.may_grow else DRAIN_LOOK_S)
        self._clock = clock
        self._last = self._agreed = (0, 0.0)
        """Step and time of the newest snapshot, and of the newest agreement."""
        self._waited_s = 0.0
        """How long training waited for the newest snapshot, once all members had come to it."""
        self._off = False
        self.sending = False
        """Whether the members have the start of the chief's part, and not its end: another chief has another one."""
        self.offered_ring: Callable[[], int] = lambda: 0
        """The ring that this member can form with a process that waits for a place; 0 for none."""
        self.agreed_ring = 0
        """The ring that all members are to form after the newest round; 0 for none, as where some lack the offer."""

    def start(self, step: int, *, off: bool = False) -> None:
        """Training starts, or resumes, after `step`. No round follows with `off`, and in a gang that stays alone."""
        self._off = off or (self.ring.size == 1 and not self._memory.may_grow)
        self._schedule.start(step)
        self._last = self._agreed = (step, self._clock.now())

    def is_due(self, step: int) -> bool:
        """Whether the members agree after `step`: equal on all of them."""
        return not self._off and step >= self._schedule.next

    def postpone(self, step: int) -> None:
        """No snapshot is possible after `step`: agree after the next one."""
        self._schedule.postpone(step)

    def agreed(self) -> tuple[int, ...]:
        """What the rounds so far have agreed on, equal on all members."""
        return (*self._schedule.agreed(), int(self._off))

    def continue_with(self, step: int, agreed: Sequence[int]) -> None:
        """Continue after `step` with what `agreed` has returned on another member."""
        *schedule, off = agreed
        self._schedule.continue_with(schedule)
        self._off = bool(off)
        self._last = self._agreed = (step, self._clock.now())

    def hasten(self, step: int) -> None:
        """Have the members take a snapshot after the step that follows `step`."""
        self._schedule.postpone(step)
        self._last = (step, -math.inf)

    def forget_parts(self) -> None:
        """Another process takes part, which has no earlier part of the chief."""
        self._memory.forget_parts()

    def agree(
        self,
        parts: Sequence[Any],
        step: int,
        place: tuple[int | None, int | None],
        extra: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Take a snapshot of `parts` if one is due, and agree on the step of the next round. Every member calls it.

        `place` is the epoch, and its finished batches; the chief's `extra` is saved beside `parts`. Blocks until all
        call it, and for a copy. Raises RingError, OutOfStepError where members call it after different steps, and what
        capturing raises.
        """
        now = self._clock.now()
        memory = self._memory
        pace = (now - self._agreed[1]) / max(1, step - self._agreed[0])
        cost = self._waited_s + memory.beside_s if memory.beside_s else 0.0  # the first two take new memory, once
        flags = (float(memory.able), float(memory.busy), float(memory.is_pause_due))
        rows = self._gathered([float(step), now - self._last[1], pace, cost, *flags, float(self.offered_ring())])
        _check_steps(rows[:, 0].tolist())
        _, since, slowest, cost, able, busy, requested, ring = rows.max(axis=0).tolist()
        self.agreed_ring = int(ring) if (rows[:, -1] == ring).all() else 0
        due = self._schedule.agree(step, since, slowest, cost)
        self._agreed = (step, now)
        self._off = not able
        agreed = self._clock.now()
        # To wait for the snapshot before would stop the whole gang: a snapshot may come a few steps later.
        if due and busy and not requested:
            self._schedule.postpone(step)
        elif (due or requested) and able:
            part = self._chiefs_part(parts, extra)
            members = gathered(self.ring, parts, "a memory checkpoint")
            turn = self._schedule.turn(*memory.turns())
            self._last = step, now
            if not (turn or requested):
                # Also without a snapshot here: the next part may refer to the arrays of this one.
                memory.learn(part)
                return
            memory.take(parts, (step, *place), part, members, paused=bool(requested), pace_s=slowest)
            self._waited_s = self._clock.now() - agreed

    def _chiefs_part(self, parts: Sequence[Any], extra: Callable[[], Mapping[str, Any]]) -> bytes:
        """The chief's part of the snapshot, on every member."""
        part = b"" if self.ring.rank else self._memory.part(parts, extra())
        first = self._broadcast(part[:PART_BYTES] or bytes(PART_BYTES), "memory_part")
        if not (remaining := part_bytes(first) - PART_BYTES):
            return first
        self.sending = True
        end = self._broadcast(part[PART_BYTES:] or bytes(remaining), "memory_rest")
        self.sending = False
        return first + end

    def _gathered(self, mine: list[float]) -> "np.ndarray[Any, Any]":
        """The numbers of all members, a row each: a sum takes one operation of the ring, and an allgather two."""
        rank, size = self._seat
        rows = np.zeros((size, len(mine) + 1))
        rows[rank] = [*mine, 1.0]
        [summed] = self.ring.allreduce_arrays([rows], average=False, name="memory")
        # The ring may lose a member while this waits, and continue without it: that has no row then.
        return summed[summed[:, -1] > 0, :-1]

    def _broadcast(self, content: bytes, name: str) -> bytes:
        [chiefs] = self.ring.broadcast_arrays([np.frombuffer(content, np.uint8)], name=name)
        return chiefs.tobytes()


def _check_steps(steps: Sequence[float]) -> None:
    if len(set(steps)) > 1:
        listed = ", ".join(f"rank {rank} after step {step:.0f}" for rank, step in enumerate(steps))
        raise OutOfStepError(
            f"members take a memory checkpoint after different steps: {listed}; have all of them count the same "
            "steps, and resume by ctx.checkpoint.restore() on every rank"
        )
