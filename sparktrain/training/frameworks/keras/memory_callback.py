"""Takes snapshots in memory during `fit`, as often as their budget allows, on each host of a gang."""

import math
from typing import Any

import numpy as np

from sparktrain.clock import Clock
from sparktrain.training.checkpoint.memory_saver import PART_BYTES, MemorySaver, part_bytes
from sparktrain.training.checkpoint.snapshot_schedule import SnapshotSchedule
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, fit_content
from sparktrain.training.frameworks.keras.distributed_apply import is_averaged
from sparktrain.training.frameworks.keras.spread_model import is_spread
from sparktrain.training.frameworks.keras.user_callbacks import CallbackStateKeeper, InternalCallback

LOOK_S = 0.5
"""How often the members of a gang that may grow look whether it does."""


class TakeSnapshots(InternalCallback):
    """Members take a snapshot after the same step, with the chief's random numbers and state of `fit`.

    One member of each host does, in turns; all where a larger gang is to continue from it.

    After the user's callbacks, as `SaveCheckpoints`: a snapshot that is due with the last step of an epoch is taken at
    the end of the epoch, and one that is due between two averages of `local_steps` after the next one.
    """

    last = True

    def __init__(
        self, ring: Ring, memory: MemorySaver, keep: CallbackStateKeeper, interval_s: float | None, clock: Clock
    ) -> None:
        super().__init__()
        self._ring = ring
        self._memory = memory
        self._keep = keep
        self._position = keep.position
        self._schedule = SnapshotSchedule(interval_s, LOOK_S if memory.may_grow else math.inf)
        self._clock = clock
        self._last = self._agreed = (0, 0.0)
        """Step and time of the newest snapshot, and of the newest agreement."""
        self._waited_s = 0.0
        """How long training waited for the newest snapshot, once all members had come to it."""
        self._off = False

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        position = self._position
        alone = self._ring.size == 1 and not self._memory.may_grow
        # Members take turns, and no single one can copy variables that all of them hold.
        self._off = alone or is_spread() or position.stopped or position.stages.behind(position.fit)
        self._schedule.start(position.step)
        self._last = self._agreed = (position.step, self._clock.now())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises RingError."""
        position = self._position
        if self._off or position.step < self._schedule.next or not is_averaged(self.model):
            return
        if position.at_epoch_end:
            self._schedule.postpone(position.step)
        else:
            self._agree(position.epoch, position.batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises RingError."""
        if self.model.stop_training and not self._position.at_epoch_end:
            return
        if not self._off and self._position.step + 1 >= self._schedule.next:
            self._agree(epoch + 1, 0)

    def _agree(self, epoch: int, batch: int) -> None:
        """Take a snapshot if one is due, and agree on the step of the next agreement."""
        position = self._position
        now = self._clock.now()
        memory = self._memory
        pace = (now - self._agreed[1]) / max(1, position.step - self._agreed[0])
        cost = self._waited_s + memory.beside_s if memory.beside_s else 0.0  # the first two take new memory, once
        mine = [now - self._last[1], pace, cost, float(memory.able), float(memory.busy), float(memory.is_pause_due)]
        since, slowest, cost, able, busy, requested = self._gathered(mine).max(axis=0).tolist()
        due = self._schedule.agree(position.step, since, slowest, cost)
        self._agreed = (position.step, now)
        self._off = not able
        agreed = self._clock.now()
        # To wait for the snapshot before would stop the whole gang: a snapshot may come a few steps later.
        if due and busy and not requested:
            self._schedule.postpone(position.step)
        elif (due or requested) and able:
            part = self._chiefs_part()
            turn = self._schedule.turn(*memory.turns)
            self._last = position.step, now
            if not (turn or requested):
                # Also without a snapshot here: the next part may refer to the arrays of this one.
                memory.learn(part)
                return
            memory.take(self.model, position.step, epoch, batch, part, paused=bool(requested))
            self._waited_s = self._clock.now() - agreed

    def _chiefs_part(self) -> bytes:
        """The chief's part of the snapshot, on every member."""
        part = b""
        if not self._ring.rank:
            part = self._memory.part(self.model, {FIT_STATE: fit_content(self._position, self._keep, self.model)})
        first = self._broadcast(part[:PART_BYTES] or bytes(PART_BYTES), "memory_part")
        if not (remaining := part_bytes(first) - PART_BYTES):
            return first
        return first + self._broadcast(part[PART_BYTES:] or bytes(remaining), "memory_rest")

    def _gathered(self, mine: list[float]) -> "np.ndarray[Any, Any]":
        """The numbers of all members, a row each: a sum takes one operation of the ring, and an allgather two."""
        rows = np.zeros((self._ring.size, len(mine)))
        rows[self._ring.rank] = mine
        [summed] = self._ring.allreduce_arrays([rows], average=False, name="memory")
        return summed

    def _broadcast(self, content: bytes, name: str) -> bytes:
        [chiefs] = self._ring.broadcast_arrays([np.frombuffer(content, np.uint8)], name=name)
        return chiefs.tobytes()
