"""Saves and restores the state of a training: captured while training waits, stored while it continues.

Training stalls only for the capture, a copy in memory. A thread writes the copy to local files, and the agent stores
them as a checkpoint (`sparktrain.rundir.checkpoints`); the next generation gets the files of an acknowledged one. The
glossary defines these stages of a checkpoint.

While a checkpoint is stored, training continues until the next one is due: a crash costs at most two intervals.

There are two places for a state: staged, which a newer one replaces, and in flight, which the agent is storing.
`save` waits until both are empty, for 20 s at most, because the rest of a gang waits for its chief meanwhile; then it
stages its copy, and the writer's thread takes it. The writer hands one state at a time to the agent, and waits for
the answer: acknowledged, or why not. A failure is a warning and a message to the coordinator,
and never an error of the training. The memory of a state that is in files serves the next copy. Only rank 0 of a gang
saves, in the process that got the context, except where members hold parts of the model: then each of them captures and
writes its part, and the answer comes once the checkpoint has the parts of all.
"""

import math
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktrain.base.clock import Clock, pause
from sparktrain.base.threads import spawn
from sparktrain.errors import CheckpointError
from sparktrain.protocol.pipe_messages import Snapshot, Unsaved
from sparktrain.state.checkpoint_parts import MUST_ALL_SAVE
from sparktrain.store.folder_removal import remove
from sparktrain.training.agent_pipe import Wire
from sparktrain.training.checkpoint.extras import split_arrays_in
from sparktrain.training.checkpoint.restored import Restored
from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.checkpoint.training_state import (
    ALIKE,
    SAVE_CALL,
    State,
    capture,
    is_split,
    parts_of,
    peek,
    restore,
    state_module,
    write_state,
)
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.frameworks.imported import check_parts
from sparktrain.training.metrics import passed_count
from sparktrain.training.notices import notice

ANSWER_TIMEOUT_S = 1500.0
"""How long the agent may take to answer a snapshot; longer than the agent itself takes to give up."""
FINISH_TIMEOUT_S = 300.0
"""How long a member waits for its last save after its function has returned."""
SAVE_TIMEOUT_S = 20.0
"""How long `save` waits for the save before it; shorter than the rest of a gang waits for its chief."""
MOVE_S = 10.0
"""How long a member waits for its end once it has the checkpoint from which its trial continues elsewhere."""
QUIET_S = 1.0
"""How long `save` waits before it prints that it waits."""

_LONGEST_PROBLEM = 1000
"""Characters."""


@dataclass
class _Job:
    """One state on its way to the agent."""

    state: State | None
    """None once it is in files, so that the next copy may use its memory."""
    snapshot: Snapshot


class CheckpointSaver:
    """Saves and restores the training of one member: `ctx.checkpoint`. A forked process cannot save."""

    def __init__(
        self,
        link: Wire,
        scratch: Path,
        restore_dir: str,
        rank: int,
        clock: Clock,
        *,
        size: int = 1,
        arrive: Callable[[], str] | None = None,
        save_timeout_s: float = SAVE_TIMEOUT_S,
        quiet_s: float = QUIET_S,
    ) -> None:
        """`scratch` is a local folder for snapshots, `restore_dir` that of the checkpoint to resume from, or empty.

        `size`: of the gang. `arrive` returns that folder where it is not known yet: it is called at its first use.
        """
        self.are_alike: Callable[[], bool] = lambda: False
        """Whether all members draw the same random numbers as this one."""
        self._arrive = arrive
        self._size = size
        self._save_timeout_s = save_timeout_s
        self._quiet_s = min(quiet_s, save_timeout_s)
        self._link = link
        self._scratch = scratch
        self._restore_dir = restore_dir
        self._first_rank = rank
        self.rank_now: Callable[[], int] | None = None
        """The rank of this process at each moment, where it may change before the first restore; None: `rank`."""
        self._clock = clock
        self._pid = os.getpid()
        self._saving = threading.Lock()
        self._last_step = -1
        self._restored_step: int | None = None
        self._changed = threading.Condition()
        self._staged: _Job | None = None
        self._in_flight: _Job | None = None
        self._spare: dict[str, Array] = {}
        """Tensors of the state that was written last: the next copy reuses their memory."""
        self._problem = ""
        """Why the newest save failed; empty where it succeeded."""
        self._warned = False
        self._warned_of_wait = False
        self._lacks_parts = False
        """A save has waited in vain for the parts of other members: no further one waits for it."""
        self._over = False
        self._writer: threading.Thread | None = None

    @property
    def newest_step(self) -> int:
        """The step of the newest call of `save`, or of the restored checkpoint; -1 before both."""
        return self._last_step

    def save(
        self,
        step: int,
        model: Any = None,
        *parts: Any,
        epoch: int | None = None,
        batch: int | None = None,
        score: float | None = None,
        keep: int = 2,
        **extra: Any,
    ) -> None:
        """Checkpoint the state after `step` finished steps. Only rank 0 may call it, in any thread, between two steps.

        Where members hold parts of `model`, as with `keras.distribution.ModelParallel` or `fully_shard` of PyTorch, or
        of arrays in `extra`, such as those of JAX on a mesh of all members, every member calls it, with the same names,
        after the same steps: each writes what it has, and one that does not call it leaves the others without the
        checkpoint. All other arguments are those of rank 0 then.

        Blocks while it copies the state to host memory (see `capture`); a thread writes the copy. When the save before
        is not a checkpoint yet, `save` waits for that first, at most 20 s: then training continues, and the newest
        save replaces those that are not being written yet. `epoch` and `batch` are the position in the data at which
        a restart resumes. `keep` is how many checkpoints of the trial stay, besides the one with the largest `score`;
        a score that is not finite does not count. `extra` are numbers, strings, arrays, or lists and dicts of them:
        all that a loop without Keras needs. Saving a step that was just restored does nothing. A save that fails
        later prints a warning, and `wait` raises it as `CheckpointError`.

        For PyTorch, `model` and `parts` are any objects with `state_dict` and `load_state_dict`, such as a model, an
        optimizer, a scheduler and a gradient scaler. What a model of `DistributedDataParallel` wraps is saved.

        Raises RuntimeError on any other rank or in a forked process, ValueError for a step that does not grow,
        TypeError for what cannot be saved, UserError for a model that is not built.
        """
        if any(cursor_of(part) is not None for part in parts_of(model, parts)):
            raise TypeError(
                f"{SAVE_CALL} got data of ctx.shard() or ctx.dataset(), and memory checkpoints alone have its position"
                ": leave it out, and save at the end of an epoch, with epoch=epoch + 1"
            )
        facts = {"epoch": epoch, "batch": batch, "extra": extra, "parts": parts}
        self._save(step, model, (_keep(keep), _score(score)), facts)
        # Steps that a loop makes between this checkpoint and the end of its process would be repeated elsewhere.
        if self._rank == 0 and self.is_move_due():
            self.await_move()

    def save_of_all(
        self,
        step: int,
        model: Any,
        members: Sequence[Mapping[str, Array]],
        *,
        score: float | None,
        keep: int,
        **facts: Any,
    ) -> None:
        """As `save`, with what each of the `members` has of its own, by rank; `facts` are those of `capture`."""
        self._save(step, model, (_keep(keep), _score(score)), {"members": members, **facts})

    def _save(self, step: int, model: Any, retention: tuple[int, float | None], facts: dict[str, Any]) -> None:
        """`retention` and `facts` are for `Snapshot` and for `capture`."""
        parts = parts_of(model, facts.get("parts", ()))
        split = self._size > 1 and (any(split_arrays_in(facts.get("extra") or {})) or is_split(parts))
        self._may_save(step, split)
        with self._saving:
            count = passed_count(step, SAVE_CALL, "step")
            if count == self._restored_step:
                return
            if count <= self._last_step:
                raise ValueError(
                    f"{SAVE_CALL}(step={count}) came after step {self._last_step}: steps must grow, over all epochs "
                    "and all calls of fit()"
                )
            snapshot = Snapshot(count, str(self._scratch / f"snapshot-{count:08d}"), *retention, part=split)
            # Otherwise a slow store could lose any number of intervals.
            self._await_earlier(count)
            state = capture(model, count, spare=self._take_spare(), rank=self._rank if split else None, **facts)
            if self.are_alike():
                state.document[ALIKE] = True
            self._last_step = count
            self._restored_step = None
            self._stage(_Job(state, snapshot))

    @property
    def _rank(self) -> int:
        return self._first_rank if self.rank_now is None else self.rank_now()

    @property
    def is_chief(self) -> bool:
        """Whether this member saves."""
        return self._rank == 0

    def is_move_due(self) -> bool:
        """Whether the trial is to continue on another agent from its next checkpoint, since the last call."""
        return self._link.take_asked(in_store=True)

    def await_move(self) -> None:
        """Wait until what was saved is a checkpoint, and then for the end of this process, 10 s at most.

        Blocks. Returns where the save fails, or takes longer than a call of `save` waits for it: training continues.
        """
        if not self._wait(self._save_timeout_s):
            pause(MOVE_S)
            notice("the trial was to continue on another agent, and has not; training continues")

    def peek(self) -> Restored | None:
        """The position of the newest checkpoint, and what was saved with it; None without one. Changes nothing.

        Any rank may call it. Blocks on the local disk. Raises CheckpointError when the files cannot be read.
        """
        folder = self._folder()
        return peek(Path(folder)) if folder else None

    def restore(self, model: Any = None, *parts: Any, alike: bool = False) -> Restored | None:
        """Resume from the newest checkpoint; returns None without one, as in the first generation.

        Every rank calls it before it trains, with what `save` gets: a model of Keras, built and compiled, or objects of
        PyTorch, in the same order. It sets the model, its optimizer and the random generators. `alike`: every rank drew
        the same random numbers as rank 0. Blocks on the local disk. Raises UserError when the checkpoint is of another
        model, CheckpointError when the files cannot be read.
        """
        check_parts(parts_of(model, parts))
        if not (folder := self._folder()):
            return None
        restored = restore(model, Path(folder), self._rank, size=self._size, alike=alike, parts=parts)
        self._last_step = max(self._last_step, restored.step)
        self._restored_step = restored.step
        return restored

    def restore_metrics(self, model: Any) -> bool:
        """Set the model's metrics to their values in the checkpoint; returns whether that was possible.

        Keras resets metrics at the start of an epoch: call this after that, and the logs of a resumed epoch cover all
        of it. Keras builds the metrics of `compile` with the first batch of `model.evaluate` or `fit`: before that
        they do not match the checkpoint, and stay as they are. Blocks on the local disk. Raises CheckpointError when
        the files cannot be read.
        """
        if not (folder := self._folder()):
            return False
        with TensorFiles(Path(folder)) as files:
            module = state_module((model,), "ctx.checkpoint.restore_metrics")
            return bool(module.assign_metrics((model,), files, (self._rank, self._size)))

    def _folder(self) -> str:
        if self._arrive is not None:
            self._restore_dir = self._arrive()
            self._arrive = None
        return self._restore_dir

    def wait(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Block until everything that was saved is a checkpoint: stored, verified and acknowledged.

        Raises CheckpointError when the newest save failed, or is not a checkpoint after `timeout_s` seconds.
        """
        if problem := self._wait(timeout_s):
            raise CheckpointError(problem)

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for the last save, after the training function has ended. Prints what is wrong, and raises nothing.

        The last call: nothing can be saved after it.
        """
        problem = self._wait(min(self._quiet_s if self._lacks_parts else self._save_timeout_s, timeout_s))
        if (late := self._late()) is not None and not self._lacks_parts:
            notice(
                f"step {late.snapshot.step} is still being checkpointed, and the function has ended: its process "
                f"waits, up to {timeout_s:.0f} s{self._hint(late)}"
            )
            problem = self._wait(timeout_s)
        if problem:
            self._warn(problem)
        with self._changed:
            self._over = True
            self._spare = {}
            self._changed.notify_all()

    # ---- saving

    def _may_save(self, step: Any, split: bool) -> None:
        if self._rank and not split:
            raise RuntimeError(
                f"{SAVE_CALL}(step={step!r:.100}) was called on rank {self._rank}: only rank 0 saves; guard with "
                "`if ctx.rank == 0`"
            )
        if os.getpid() != self._pid:
            raise RuntimeError(f"ctx.checkpoint belongs to process {self._pid}, and {os.getpid()} called save()")

    def _await_earlier(self, step: int) -> None:
        with self._changed:
            if self._lacks_parts or self._changed.wait_for(self._all_through, self._quiet_s):
                return
        if (late := self._late()) is not None and not self._warned_of_wait:
            self._warned_of_wait = True
            notice(
                f"step {late.snapshot.step} is still being checkpointed, and step {step} is due: training "
                f"waits, up to {self._save_timeout_s:.0f} s for each; save less often, or in a faster store"
                f"{self._hint(late)}"
            )
        with self._changed:
            is_through = self._changed.wait_for(self._all_through, self._save_timeout_s - self._quiet_s)
            self._lacks_parts = not is_through and late is not None and late.snapshot.part

    def _all_through(self) -> bool:
        return self._staged is None and self._in_flight is None

    def _late(self) -> _Job | None:
        return self._in_flight or self._staged

    def _take_spare(self) -> dict[str, Array]:
        """Tensors that are no longer needed: of a waiting state, which is replaced now, or of one that is in files."""
        with self._changed:
            replaced = self._staged
            self._staged = None
            spare = self._spare
            self._spare = {}
        return replaced.state.tensors if replaced is not None and replaced.state is not None else spare

    def _stage(self, job: _Job) -> None:
        with self._changed:
            self._staged = job
            self._changed.notify_all()
        if self._writer is None:
            self._writer = spawn(self._write_all, "sparktrain-checkpoint")

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._staged is not None or self._over)
                if self._over or self._staged is None:
                    return
                job = self._in_flight = self._staged
                self._staged = None
            problem = self._hand_over(job)
            if problem:
                self._warn(problem)
            with self._changed:
                self._in_flight = None
                self._lacks_parts = False
                self._problem = problem
                self._changed.notify_all()

    def _hand_over(self, job: _Job) -> str:
        """Turn the state into a checkpoint; returns why that failed, or an empty string."""
        snapshot = job.snapshot
        failed = f"step {snapshot.step} was not checkpointed"
        try:
            assert job.state is not None
            write_state(Path(snapshot.folder), job.state)
            with self._changed:
                # Each save once took new memory from the system, which costs up to ten times what the copy does.
                self._spare = job.state.tensors
                job.state = None
            self._link.send(snapshot)
        except Exception as error:  # training continues after any error
            remove(Path(snapshot.folder))
            with suppress(OSError):  # the agent is gone
                problem = str(error)[:_LONGEST_PROBLEM]
                self._link.send(Unsaved(snapshot.step, problem, isinstance(error, OSError), part=snapshot.part))
            return f"{failed}: {error}"
        try:
            return self._answer(snapshot.step, failed)
        except OSError as error:
            return f"{failed}: the agent is gone: {error}"

    def _answer(self, step: int, failed: str) -> str:
        deadline = self._clock.now() + ANSWER_TIMEOUT_S
        # None ends the wait: an agent that is gone answers None at once, and was asked again and again for 25 minutes.
        while (reply := self._link.snapshot_answer(max(0.0, deadline - self._clock.now()))) is not None:
            # An answer may be for a save before, which was given up here.
            if reply.step == step:
                return f"{failed}: {reply.problem}" if reply.problem else ""
        return f"{failed}: the agent is gone, or did not answer within {ANSWER_TIMEOUT_S:.0f} s"

    def _wait(self, timeout_s: float) -> str:
        with self._changed:
            if not self._changed.wait_for(self._all_through, timeout_s):
                late = self._staged or self._in_flight
                assert late is not None
                failed = f"step {late.snapshot.step} was not checkpointed within {timeout_s:.0f} s"
                return f"{failed}: the store may be slow{self._hint(late)}"
            return self._problem

    def _hint(self, late: _Job) -> str:
        """What else may be wrong with a save that takes long."""
        return MUST_ALL_SAVE if late.snapshot.part and self.is_chief else ""

    def _warn(self, problem: str) -> None:
        """Print `problem`, the first time only: a disk that is full stays full."""
        if not self._warned:
            self._warned = True
            print(f"[sparktrain] {problem}; training continues, with the checkpoint before it", file=sys.stderr)


def _keep(value: Any) -> int:
    if not (keep := passed_count(value, SAVE_CALL, "keep")):
        raise ValueError(f"{SAVE_CALL}(keep=0): at least 1 checkpoint is kept")
    return keep


def _score(value: Any) -> float | None:
    score = None if value is None else float(value)
    return score if score is not None and math.isfinite(score) else None
