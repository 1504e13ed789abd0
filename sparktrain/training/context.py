"""What a training function knows of its run, and says to it: the `ctx` that is passed to functions that name it."""

import json
import math
import operator
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparktrain.clock import Clock
from sparktrain.protocol.pipe_messages import Assignment, Reported, Stepped
from sparktrain.state.outcome import Report
from sparktrain.training.agent_pipe import Wire, sendable
from sparktrain.training.data.position import Position
from sparktrain.training.gang_join import RING_TIMEOUT_S, JoinedGang, alone
from sparktrain.training.metrics import MAX_STEP, NotANumberError, number, size_problem
from sparktrain.training.strategies.strategy import Strategies
from sparktrain.training.strategies.tf_cluster import cluster_spec

if TYPE_CHECKING:
    from sparktrain.training.checkpoint.saver import CheckpointSaver
    from sparktrain.training.collectives.ring import Ring

SNAPSHOTS = "snapshots"
"""Folder beside the log directory in which the chief's state waits for its agent."""
HISTORY = "metrics.jsonl"
"""File beside the log directory with one line for each report."""

_RESERVED = "wall"  # the other key of a line in the history


class TrainContext:
    """One member's view of its trial. Belongs to the process that the function is called in, not to those it forks."""

    def __init__(self, assignment: Assignment, wire: Wire, clock: Clock, gang: JoinedGang | None = None) -> None:
        self._assignment = assignment
        self._gang = gang or alone()
        self._params = MappingProxyType(assignment.params)
        self._wire = wire
        self._clock = clock
        self._pid = os.getpid()
        self._reporting = threading.Lock()
        self._checkpoints: CheckpointSaver | None = None
        self._position = Position()
        self._strategies: Strategies | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The hyperparameters of this trial, as the function gets them; read-only."""
        return self._params

    @property
    def trial(self) -> int:
        """Number of the trial within its run, from 0."""
        return self._assignment.member.trial

    @property
    def seed(self) -> int:
        """The trial's seed: the same for each generation, another for each trial.

        Python's, numpy's and Keras's generators are seeded with it before the function is called.
        """
        return self._assignment.seed

    @property
    def rank(self) -> int:
        """Number of this member within its gang, from 0; rank 0 is the chief."""
        return self._assignment.member.rank

    @property
    def size(self) -> int:
        """Members in the gang; 1 for an ordinary trial."""
        return self._assignment.size

    @property
    def local_rank(self) -> int:
        """Number of this member among those of its gang on this host, from 0."""
        return self._gang.formation.local_rank

    @property
    def role(self) -> str:
        """What this member is to TensorFlow: `chief`, `worker`, `ps` or `evaluator`."""
        return self._gang.formation.role.value

    @property
    def index(self) -> int:
        """Number of this member among those of its role, from 0."""
        return self._gang.formation.index

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """`address:port` of the members of each role, as `tf.train.ClusterSpec` takes them."""
        return cluster_spec(self._gang.formation)

    @property
    def generation(self) -> int:
        """How many times the trial's gang was formed, from 1; more than 1 after the loss of a process."""
        return self._assignment.member.generation

    @property
    def log_dir(self) -> str:
        """An existing local directory, for TensorBoard or anything else: its files are brought to the run directory."""
        return self._assignment.log_dir

    def report(self, step: int, **metrics: float) -> None:
        """Send metrics of a finished step; does not wait for anyone but the local disk. Any thread of the process.

        `step` is an integer from 0 on that grows with each report; a metric is any real number, also NaN, or a scalar
        array or tensor. Every report is kept in `metrics.jsonl` of the trial. Raises ValueError for a step that does
        not grow or is 2**63 or more, and for more than 10,000 metrics, TypeError for a step or a metric that is no
        number, RuntimeError in a process that the function forked, OSError when the executor is being lost or its disk
        is full.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(f"ctx.report() belongs to process {self._pid}, and process {os.getpid()} called it")
        count = _step(step)
        values = {sendable(name): _metric(name, value) for name, value in metrics.items()}
        if problem := size_problem(values):
            raise ValueError(f"ctx.report(step={count}) has {problem}: write them to a file in ctx.log_dir")
        with self._reporting:
            if count <= self._position.reported:
                raise ValueError(
                    f"ctx.report(step={count}) came after step {self._position.reported}: steps must grow, "
                    "over all epochs and all calls of fit()"
                )
            time = self._clock.wall()
            self._keep(count, values, time)
            self._wire.send(Reported(Report(count, values, time)))
            self._position.reported = count

    def should_stop(self) -> bool:
        """Whether the trial is no longer needed, and the function should return what it has. Returns at once."""
        return self._wire.stop_advised()

    @property
    def checkpoint(self) -> "CheckpointSaver":
        """Saves and restores the training: see `sparktrain.training.checkpoint.saver.Checkpoints`.

        The Keras callbacks do both; loops of your own call `restore` before they train, and `save` on the chief.
        """
        if self._checkpoints is None:
            from sparktrain.training.checkpoint.saver import CheckpointSaver

            scratch = Path(self.log_dir).parent / SNAPSHOTS
            told = self._assignment
            self._checkpoints = CheckpointSaver(self._wire, scratch, told.restore_dir, self.rank, self._clock)
        return self._checkpoints

    def export(self, model: Any) -> None:
        """Save the finished Keras model as `model.keras` of the run directory: the chief does, others do nothing.

        `RunResult.model_path` names it. Blocks on the local disk. Raises OSError.
        """
        from sparktrain.training.checkpoint.saver import export

        export(model, Path(self.log_dir).parent, self.rank)

    def finish(self) -> None:
        """The training function has returned: wait for what it saved last."""
        if self._checkpoints is not None:
            self._checkpoints.finish()

    def strategy(self, kind: str | None = None, **options: Any) -> Any:
        """A strategy of TensorFlow's for this gang, or for this member's own devices.

        See `sparktrain.training.strategies.strategy.Strategies.strategy`. Raises SpecError, StrategyError, FormError.
        """
        if self._strategies is None:
            gang, told = self._gang, self._assignment
            self._strategies = Strategies(
                gang.formation, told.backend, gang.release_port, timeout_s=RING_TIMEOUT_S, clock=self._clock
            )
        return self._strategies.strategy(kind, **options)

    # ---- the gang's ring

    def distribute(self, optimizer: Any, *, compression: str = "none") -> Any:
        """`optimizer` itself, a Keras 3 one, which from now on averages gradients over all members.

        See `sparktrain.training.collectives.optimizer.distribute`. Raises SpecError.
        """
        from sparktrain.training.collectives.optimizer import distribute

        return distribute(optimizer, self._known_ring(), compression=compression)

    def distribute_tape(self, tape: Any, *, compression: str = "none") -> Any:
        """A `tf.GradientTape` whose `gradient()` is averaged over all members; it takes Keras variables too."""
        from sparktrain.training.collectives.optimizer import distribute_tape

        return distribute_tape(tape, self._known_ring(), compression=compression)

    def shard(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        uneven: str = "drop",
        shuffle: bool = False,
        seed: int | None = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> Any:
        """This member's share of `data`, for `fit`: each batch once in an epoch, over all members.

        A member has the same number of steps as the others; after a restart it goes on in the middle of the epoch. See
        `sparktrain.training.data.shard.shard` for what `data` may be, and what becomes of data that cannot be shared
        out evenly, for which `fit` cannot take `class_weight`: give it here. `seed` is that of `shuffle`; by default
        `ctx.seed`. Raises SpecError.
        """
        from sparktrain.training.data.shard import shard

        chosen = self.seed % 2**31 if seed is None else seed
        return shard(
            data,
            rank=self.rank,
            size=self.size,
            batch_size=batch_size,
            uneven=uneven,
            shuffle=shuffle,
            seed=chosen,
            class_weight=class_weight,
            position=self._position,
        )

    def scale_lr(self, lr: float) -> float:
        """`lr` times the members of the gang, whose steps take in so many batches (arXiv 1706.02677, section 2.1)."""
        from sparktrain.training.keras.lr_schedule import scale_lr

        return scale_lr(lr, self.size)

    def keras_callbacks(
        self,
        *,
        checkpoint_every: int | str | None = "epoch",
        keep: int = 2,
        monitor: str | None = None,
        mode: str | None = None,
        warmup: int = 0,
    ) -> list[Any]:
        """The callbacks for one call of `fit`, in a gang and alone; your own go after them.

        They have all members begin with the chief's weights, average metrics, report each epoch, stop when that is
        advised, and save and resume. `checkpoint_every` is a number of steps, a time such as "30s", "epoch", or None
        for never; the newest `keep` checkpoints stay, and the best one by `monitor` in `mode`, which its name
        tells by default ("min" for a loss). `warmup`: epochs in which the learning rate rises from that of one member.
        Raises SpecError.
        """
        from sparktrain.training.keras.glue import keras_callbacks

        return keras_callbacks(
            self._gang.ring,
            self._position,
            self._clock,
            self.checkpoint,
            self.report,
            self.should_stop,
            self._stepped,
            own_folders=(self._assignment.work_dir, self.log_dir),
            keep=keep,
            checkpoint_every=checkpoint_every,
            monitor=monitor,
            mode=mode,
            warmup=warmup,
        )

    def allreduce(self, value: Any, *, average: bool = True) -> Any:
        """The mean, or the sum, over all members of a number, an array, a tensor, or a nest of them.

        All members call it, with values of one shape; it waits for them. Raises RingError.
        """
        from sparktrain.training.collectives.user_ops import allreduce

        return allreduce(self._gang.ring, value, average=average)

    def broadcast(self, value: Any) -> Any:
        """What the chief has of a number, an array, a tensor, or a nest of them.

        All members call it, and wait for the chief. Raises RingError.
        """
        from sparktrain.training.collectives.user_ops import broadcast

        return broadcast(self._gang.ring, value)

    def allgather(self, value: Any) -> Any:
        """The arrays or tensors of all members, by rank, one after the other along their first axis.

        All members call it; the first axis may differ in length. Raises RingError.
        """
        from sparktrain.training.collectives.user_ops import allgather

        return allgather(self._gang.ring, value)

    # ---- within

    def _known_ring(self) -> "Ring":
        """The ring, which Keras in this process knows from now on."""
        from sparktrain.training.collectives.sync_batch_norm import synchronize_batches
        from sparktrain.training.keras.loss_scaling import weigh_losses

        weigh_losses(self._gang.ring)
        synchronize_batches(self._gang.ring)
        return self._gang.ring

    def _stepped(self, step: int, training: bool) -> None:
        self._wire.send(Stepped(step, training))

    def _keep(self, step: int, values: dict[str, float], time: float) -> None:
        line = {"step": step, _RESERVED: time} | {name: _json(value) for name, value in values.items()}
        with (Path(self.log_dir).parent / HISTORY).open("a", encoding="utf-8") as history:
            history.write(json.dumps(line, allow_nan=False) + "\n")


def _step(value: Any) -> int:
    try:
        step = operator.index(value)
    except TypeError:
        step = None
    if step is None or isinstance(value, bool):
        raise TypeError(f"ctx.report(step={value!r:.100}): a step is an integer, not {type(value).__name__}")
    if step < 0:
        raise ValueError(f"ctx.report(step={step}): steps count from 0")
    if step > MAX_STEP:
        raise ValueError(f"ctx.report(): a step of {step.bit_length()} bits is too large: steps must be below 2**63")
    return step


def _metric(name: str, value: Any) -> float:
    if name == _RESERVED:
        raise ValueError(f"ctx.report(): {name!r} is the time of a report, and cannot be a metric's name too")
    try:
        return number(value)
    except NotANumberError as error:
        raise TypeError(f"ctx.report(): metric {name!r} is {error}, and must be a number") from error


def _json(value: float) -> float | str:
    """JSON has no number for NaN and infinity: their names, which float() reads back."""
    return value if math.isfinite(value) else str(value)
