"""Memory checkpoints in a loop of the user's own: `ctx.memory_checkpoints`."""

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from sparktrain.clock import Clock
from sparktrain.training.checkpoint.memory_rounds import MemoryRounds
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from sparktrain.training.checkpoint.saver import is_split, state_module
from sparktrain.training.checkpoint.snapshot_schedule import snapshot_interval
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.metrics import passed_count
from sparktrain.training.step_reports import StepReports

_CALL = "memory.step"
"""In messages: the name that the documentation gives the object."""


class MemoryCheckpoints:
    """Takes memory checkpoints after steps of a loop, within a `with` block. The thread that trains uses it.

    The block also reports steps: a member that makes none for `hang_timeout` counts as one that hangs. Code
    after the block may take any time.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        rounds: MemoryRounds | None,
        stepped: Callable[[int, bool], None],
        clock: Clock,
        start: int,
    ) -> None:
        """`stepped(step, training)` reports progress; `start` is the step that training resumes after, 0 for none.

        Raises TypeError for parts that have no state.
        """
        if parts:
            state_module(parts, "ctx.memory_checkpoints")
        self._parts = tuple(parts)
        self._rounds = rounds
        self._stepped = stepped
        self._reports = StepReports(stepped, clock, None if rounds is None else rounds.ring)
        self._step = start
        self._first = True
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        """Training starts. Raises OSError when the agent is gone."""
        if self._rounds is not None:
            # Members take turns, and no single one can copy arrays that all of them hold.
            self._rounds.start(self._step, off=is_split(self._parts))
        self._stepped(self._step, True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Training is over; a member that ends by an error reports that itself."""
        if error is None:
            self._stepped(self._step, False)

    def step(self, step: int, *, epoch: int | None = None, batch: int | None = None, **extra: Any) -> None:
        """The state after `step` finished steps may be saved. Every member calls it after each of its steps.

        Mostly it returns at once. Where a memory checkpoint is due, it blocks for one small collective, and while it
        copies the state. `epoch`, `batch` and `extra` are as for `ctx.checkpoint.save`, and are those of rank 0.

        Raises ValueError for a step that does not grow, OutOfStepError where members call it with different steps,
        RingError, TypeError for what cannot be saved, RuntimeError in a forked process, OSError when the agent is gone.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(f"memory checkpoints belong to process {self._pid}, and {os.getpid()} called {_CALL}()")
        count = passed_count(step, _CALL, "step")
        if count < self._step or (count == self._step and not self._first):
            raise ValueError(
                f"{_CALL}({count}) came after step {self._step}: steps must grow, and continue those of the checkpoint "
                "that ctx.checkpoint.restore() returned"
            )
        self._first = False
        self._step = count
        self._reports.reached(count)
        if self._rounds is not None and self._rounds.is_due(count) and self._are_equal():
            self._rounds.agree(self._parts, count, (epoch, batch), lambda: extra)

    def _are_equal(self) -> bool:
        return not self._parts or bool(state_module(self._parts, _CALL).are_equal(self._parts))


def rounds_of(
    memory: MemorySaver | None, ring: Callable[[], Ring], size: int, every: str, clock: Clock
) -> MemoryRounds | None:
    """The rounds of a member of a gang of `size`; None for a member alone, and in a gang without a ring.

    `ring` may block, and is called where there is shared memory. Raises SpecError for another `every`; FormError.
    """
    interval_s = snapshot_interval(every)
    connected = None if memory is None else ring()
    # Members without a ring cannot agree on a step, and parameter servers have the state of theirs.
    if memory is None or connected is None or connected.size != size or connected.ps_model is not None:
        return None
    return MemoryRounds(connected, memory, interval_s, clock)
