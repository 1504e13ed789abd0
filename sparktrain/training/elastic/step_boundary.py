"""What the members of a gang agree on between two steps, whatever trains: one exchange has all of it.

They stop, form another ring, save, and take memory checkpoints after the same step. Of a memory checkpoint one member
of each host copies its state, in turns; all where another gang is to continue from it, or where no member has all of
the state. Each copy has the random numbers of the chief, and what each member has of its own, with its random numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, fields

from sparktrain.base.clock import Clock
from sparktrain.errors import OutOfStepError
from sparktrain.state.agent_messages import Seating
from sparktrain.training.checkpoint.held_parts import HeldParts, held_parts
from sparktrain.training.checkpoint.member_states import gathered
from sparktrain.training.checkpoint.memory_saver import PART_BYTES, MemorySaver, part_bytes
from sparktrain.training.checkpoint.training_state import state_module
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic.boundary_schedule import BoundarySchedule

AGREE_S = 1.0
"""About how often the members agree; at most once a step."""
GROW_S = 0.5
"""The same in a gang that may grow."""
_CALL = "a memory checkpoint"
"""In messages."""


class MemberFacts(Struct, frozen=True, kw_only=True):
    """What a member knows at a boundary, or the most of what all of them know: numbers, which travel as one row."""

    step: float
    pace_s: float
    """Of a step since the newest agreement."""
    stops: float
    """Whether the run asks the member to stop."""
    asks: float
    """Whether code of the member stops it."""
    each_step: float
    """Whether that may happen after any step: then the members agree after each."""
    ring: float
    """The ring that it can form with a process that waits for a place; 0 for none."""
    saves: float
    """Whether the time is over until a checkpoint that all members save."""
    since_s: float
    """Since the newest memory checkpoint."""
    cost_s: float
    """Of a memory checkpoint; 0 before the first one."""
    able: float
    busy: float
    pauses: float
    """Whether another gang is to continue from the next memory checkpoint."""


_FIELDS = [field.name for field in fields(MemberFacts)]


class StepBoundary:
    """The boundaries of one member. Its methods belong to the thread that trains.

    Each agreement is one small collective. Between agreements a step costs a comparison.
    """

    def __init__(
        self,
        ring: Ring,
        clock: Clock,
        should_stop: Callable[[], bool],
        *,
        memory: MemorySaver | None = None,
        interval_s: float | None = None,
        healing: RingHealing | None = None,
    ) -> None:
        """Without `memory` there are no memory checkpoints; `interval_s`: see `BoundarySchedule`."""
        self.ring = ring
        self.healing = healing
        """How this member survives the loss of another one; None where it does not."""
        may_grow = memory is not None and memory.may_grow
        self.is_alone = ring.size == 1 and healing is None and not may_grow
        """Whether there is no other member, and none will come."""
        self.stops = False
        """Whether all members are to stop, because the run has asked one of them."""
        self.asked = False
        """The same, because the code of one has stopped it."""
        self.saves = False
        """Whether all members are to save a checkpoint."""
        self.offer: Seating | None = None
        """The process for which all members are to change their ring, before their next step."""
        self.sending = False
        """Whether the members have the start of the chief's part, and not its end: another chief has another one."""
        self._clock = clock
        self._should_stop = should_stop
        self._memory = memory
        self._interval_s = interval_s
        self._schedule = BoundarySchedule(interval_s, GROW_S if may_grow else AGREE_S)
        self._last = self._agreed = (0, 0.0)
        """Step and time of the newest memory checkpoint, and of the newest agreement."""
        self._pace_s = math.inf
        """Of the slowest member."""
        self._waited_s = 0.0
        """How long training waited for the newest copy, once all members had come to it."""
        self._is_copy_due = False
        self._is_split = False
        self._held: HeldParts | None = None
        """Who holds which part, once the members of the present ring have agreed on that."""
        self._pauses = False
        self._is_save_due: Callable[[], bool] = lambda: False
        self._started = 0
        self.saved = (0, 0.0)
        """Step and time of the newest checkpoint, or of the start."""
        self._first_steps: set[int] = set()
        """The first step of all, and in each other ring, until the members have compared their weights after it."""

    def start(self, step: int, *, copies: bool = True, split: bool = False) -> None:
        """Training starts, or resumes, after `step`; without `copies` it takes no memory checkpoints.

        `split`: no member holds the whole state, so that all take each memory checkpoint.
        """
        self._is_split = split
        self._held = None
        self._schedule.interval_s = self._interval_s if copies and self._memory is not None else math.inf
        self._schedule.start(step)
        self._last = self._agreed = (step, self._clock.now())
        self._is_copy_due = self.stops = self.asked = self.saves = False
        self._started = step
        self._first_steps = {step + 1}

    def note_save(self, step: int) -> None:
        """The newest checkpoint is that after `step`."""
        self.saved = (step, self._clock.now())
        self.saves = False

    def take_comparison(self, step: int) -> bool:
        """Whether the members compare their weights after `step`, the first one of all or in another ring: once."""
        is_first = any(first <= step for first in self._first_steps)
        self._first_steps -= {first for first in self._first_steps if first <= step}
        return is_first

    def save_by(self, is_due: Callable[[], bool], seconds: float) -> None:
        """Have all members save together once `is_due` on one of them; they agree each `seconds` at the latest."""
        self._is_save_due = is_due
        self._schedule.most_s = min(self._schedule.most_s, seconds)

    def is_due(self, step: int) -> bool:
        """Whether the members agree after `step`: equal on all of them."""
        return not self.is_alone and step >= self._schedule.next

    def agreed(self) -> tuple[int, ...]:
        """What the members have agreed on so far, equal on all of them."""
        off = self._schedule.interval_s == math.inf
        flags = (int(off), int(self._is_copy_due), int(self._pauses))
        return (*self._schedule.agreed(), *flags, self._started, self.saved[0], *sorted(self._first_steps))

    def continue_with(self, step: int, agreed: Sequence[int]) -> None:
        """Continue after `step` with what `agreed` has returned on another member."""
        *schedule, off, copy_due, pauses, self._started, saved = agreed[:8]
        self._first_steps = set(agreed[8:])
        self.saved = (saved, self._clock.now())
        self._schedule.continue_with(schedule)
        self._schedule.interval_s = math.inf if off else self._interval_s
        self._is_copy_due = bool(copy_due)
        self._pauses = bool(pauses)
        self._last = self._agreed = (step, self._clock.now())

    def hasten(self, step: int) -> None:
        """Have the members take a memory checkpoint after the step that follows `step`."""
        self._schedule.postpone(step)
        self._last = (step, -math.inf)

    def has_stepped(self, step: int) -> bool:
        """Whether the members had ended a step before `step`."""
        return step > self._started + 1

    def enter_ring(self, step: int) -> None:
        """The members have another ring after `step`. A process in it may have no earlier part of the chief."""
        self._first_steps.add(step + 1)
        self._held = None
        if self._memory is not None:
            self._memory.forget_parts()

    def end_step(
        self,
        parts: Sequence[Any],
        step: int,
        place: tuple[int | None, int | None],
        extra: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Agree if it is time to, and `take` a memory checkpoint if one is due. Blocks and raises as these do."""
        if self.is_due(step):
            self.agree(step)
        self.take(parts, step, place, extra)

    def agree(self, step: int, *, asks: bool = False, each_step: bool = False) -> None:
        """Agree after `step` on what all do next, and on the step of the next agreement. Every member calls it.

        `asks`: code of this member has stopped it; `each_step`: it may do so after any step. Blocks until all call it.
        Raises RingError, and OutOfStepError where members call it after different steps.
        """
        if self.is_alone:
            self.stops = self.stops or self._should_stop()
            self.asked = asks
            return
        now = self._clock.now()
        offer = None if self.healing is None else self.healing.offer()
        mine = self._facts(step, now, 0 if offer is None else offer.ring, asks, each_step)
        rows = self.ring.allgather_array(np.array([astuple(mine)]), name="boundary")
        _check_steps(rows[:, 0].tolist())
        most = MemberFacts(**dict(zip(_FIELDS, rows.max(axis=0).tolist(), strict=True)))
        self.stops = most.stops > 0
        self.asked = most.asks > 0
        self.saves = self.saves or most.saves > 0
        # All of them have it: an offer that some member lacks may be withdrawn.
        if offer is not None and (rows[:, _FIELDS.index("ring")] == offer.ring).all():
            self.offer = offer
        is_due = self._schedule.agree(step, most.since_s, most.pace_s, most.cost_s)
        if most.each_step:
            self._schedule.postpone(step)
        self._agreed = (step, now)
        self._pace_s = most.pace_s
        able = rows[:, _FIELDS.index("able")]
        if not (able.all() if self._is_split else able.any()):
            self._schedule.interval_s = math.inf
        # To wait for the copy before would stop the whole gang: a memory checkpoint may come a few steps later.
        elif is_due and most.busy and not most.pauses:
            self._schedule.postpone(step)
        elif is_due or most.pauses:
            self._is_copy_due = True
            self._pauses = most.pauses > 0
            self._last = step, now

    def end(self) -> None:
        """Training is over, perhaps by a loss. Where members hold parts, blocks until the newest memory checkpoint is
        whole: the next gang may need it."""
        if self._is_split and self._memory is not None:
            self._memory.settle()

    def take(
        self,
        parts: Sequence[Any],
        step: int,
        place: tuple[int | None, int | None],
        extra: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Take the memory checkpoint of `parts` that the members have agreed on, once `parts` are equal on all of them.

        `place` is the epoch, and its finished batches; the chief's `extra` is saved beside `parts`. Blocks until all
        call it, and for a copy. Raises RingError, and what capturing raises.
        """
        memory = self._memory
        if not self._is_copy_due or memory is None or (parts and not state_module(parts, _CALL).are_equal(parts)):
            return
        started = self._clock.now()
        part = self._chiefs_part(memory, parts, extra)
        members = gathered(self.ring, parts, _CALL)
        self._is_copy_due = False
        held = self._held = self._held or held_parts(self.ring, parts)
        if held is None and not (self._schedule.turn(*memory.turns()) or self._pauses):
            # Also without a copy here: the next part may refer to the arrays of this one.
            memory.learn(part)
            return
        memory.take(parts, (step, *place), part, members, paused=self._pauses, pace_s=self._pace_s, held=held)
        self._waited_s = self._clock.now() - started

    def _facts(self, step: int, now: float, ring: int, asks: bool, each_step: bool) -> MemberFacts:
        memory = self._memory
        steps = step - self._agreed[0]
        beside_s = 0.0 if memory is None else memory.beside_s
        return MemberFacts(
            step=step,
            pace_s=(now - self._agreed[1]) / steps if steps else self._pace_s,
            stops=self.stops or self._should_stop(),
            asks=asks,
            each_step=each_step,
            ring=ring,
            saves=self._is_save_due(),
            since_s=now - self._last[1],
            cost_s=self._waited_s + beside_s if beside_s else 0.0,  # the first two take new memory, once
            able=memory is not None and memory.able and self._schedule.interval_s != math.inf,
            busy=memory is not None and memory.busy,
            pauses=memory is not None and memory.is_pause_due,
        )

    def _chiefs_part(self, memory: MemorySaver, parts: Sequence[Any], extra: Callable[[], Mapping[str, Any]]) -> bytes:
        """The chief's part of the copies, on every member."""
        part = b"" if self.ring.rank else memory.part(parts, extra())
        first = self._broadcast(part[:PART_BYTES] or bytes(PART_BYTES), "memory_part")
        if not (remaining := part_bytes(first) - PART_BYTES):
            return first
        self.sending = True
        end = self._broadcast(part[PART_BYTES:] or bytes(remaining), "memory_rest")
        self.sending = False
        return first + end

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
