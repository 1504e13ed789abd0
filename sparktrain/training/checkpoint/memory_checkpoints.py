"""Memory checkpoints in a loop of the user's own: `ctx.memory_checkpoints`."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sparktrain.base.clock import Clock
from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.training_state import is_split, state_module
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.collectives.step_notes import StepReports
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.elastic.surviving_loop import SurvivingLoop
from sparktrain.training.frameworks.imported import check_parts, loops_of
from sparktrain.training.judgement import Judgement
from sparktrain.training.metrics import passed_count

if TYPE_CHECKING:
    from sparktrain.training.gang_join import JoinedGang

T = TypeVar("T")

_CALL = "memory.step"
"""In messages: the name that the documentation gives the object."""


class MemoryCheckpoints:
    """Takes memory checkpoints after steps of a loop, within a `with` block. The thread that trains uses it.

    The block also reports steps: a member that makes none for `hang_timeout` counts as one that hangs. Code
    after the block may take any time. Within it `ctx.should_stop()` changes in `step` alone, on all members at once.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        boundary: StepBoundary | None,
        stepped: Callable[[int, bool], None],
        clock: Clock,
        start: int,
        *,
        loop: SurvivingLoop | None = None,
        judgement: Judgement | None = None,
    ) -> None:
        """`stepped(step, training)` reports progress; `start` is the step that training resumes after, 0 for none.

        `loop` has its steps survive the loss of another member; None where they cannot. `judgement` decides whether to
        stop. Raises TypeError for parts that have no state.
        """
        if parts:
            state_module(parts, "ctx.memory_checkpoints")
            check_parts(parts)
        self._parts = tuple(parts)
        self._cursors = [cursor for part in parts if (cursor := cursor_of(part)) is not None]
        self._boundary = boundary
        self._stepped = stepped
        self._reports = StepReports(stepped, clock, None if boundary is None else boundary.ring.notes)
        self._step = start
        self._loop = loop
        self._judgement = judgement
        self._first = True
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        """Training starts. Raises OSError when the agent is gone."""
        if (boundary := self._boundary) is not None:
            split = is_split(self._parts)
            boundary.start(self._step, copies=not split or boundary.ring.prepare_passing(), split=split)
            if self._judgement is not None and not boundary.is_alone:
                self._judgement.agreed = lambda: boundary.stops
        self._stepped(self._step, True)
        if self._loop is not None:
            self._loop.start(self._step)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Training is over; a member that ends by an error reports that itself."""
        if self._judgement is not None:
            self._judgement.agreed = None
        if self._boundary is not None:
            self._boundary.end()
        if error is None:
            if self._loop is not None:
                self._loop.end()
            self._stepped(self._step, False)

    def train(self, train_step: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
        """What `train_step(*arguments, **options)` returns, which trains one step.

        Where another member of the gang is lost, this one keeps its process: it forms a ring with the next process of
        the lost one, and calls `train_step` again, with the state before it, and the same arguments. So `train_step`
        changes weights last, once it has called all its collectives, and gets its batch as an argument. Every member
        calls it once before each `memory.step`. A member that is a step ahead repeats that step with the others, and
        drops the result. Where a gang cannot continue in this way, as in most backends, it only calls `train_step`.

        Blocks for what `train_step` does, and after a loss until the ring has formed. Raises what `train_step` raises.
        """
        if self._loop is None:
            return train_step(*arguments, **options)
        trained: T = self._loop.train(train_step, arguments, options)
        return trained

    def step(self, step: int, *, epoch: int | None = None, batch: int | None = None, **extra: Any) -> None:
        """The state after `step` finished steps may be saved. Every member calls it after each of its steps.

        Mostly it returns at once. About once a second it blocks for one small collective, and where a memory checkpoint
        is due while it copies the state. `epoch`, `batch` and `extra` are as for `ctx.checkpoint.save`, and are those
        of rank 0.

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
        for cursor in self._cursors:
            cursor.count_step()
        with nullcontext() if self._loop is None else self._loop.noting(count, (epoch, batch), extra):
            if self._boundary is not None:
                self._boundary.end_step(self._parts, count, (epoch, batch), lambda: extra)


def loop_of(
    parts: Sequence[Any],
    healing: RingHealing | None,
    boundary: StepBoundary | None,
    position: Position,
    *,
    resizable: bool = False,
) -> SurvivingLoop | None:
    """How a loop with the objects `parts` survives the loss of a member; None where it does not.

    Raises TypeError for parts that have no state, SpecError for a function with feeds and a loop that is `resizable`.
    """
    if resizable and position.feeds:
        raise SpecError(
            "ctx.memory_checkpoints(resizable=True) after ctx.shard() or ctx.dataset(): their batches are those of the "
            "members with which they were made; choose the rows of a step in train_step, by ctx.rank and ctx.size, or "
            "leave resizable out"
        )
    loops = None if healing is None or boundary is None else loops_of(parts, healing.ring.framework)
    if loops is None or healing is None or boundary is None:
        return None
    steps = loops.loop_steps(parts, healing)
    return None if steps is None else SurvivingLoop(parts, healing, steps, boundary, position, resizable=resizable)


def boundary_of(gang: "JoinedGang", size: int, every: str, clock: Clock, judgement: Judgement) -> StepBoundary | None:
    """The step boundary of a loop in a member of `gang`, which has `size` members; None in a gang without a ring.

    Blocks and raises as `JoinedGang.boundary`.
    """
    boundary = gang.boundary(every, clock, judgement.asked)
    # Members without a ring cannot agree on a step, and parameter servers have the state of theirs.
    return None if boundary.ring.size != size or boundary.ring.ps_model is not None else boundary
