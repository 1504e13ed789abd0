"""The callbacks that do what a member needs between the steps of `fit`, one for each concern, and their list.

The order of the list matters. Metrics are averaged before other callbacks read them, so that the user's own callbacks,
which come later, decide the same on all members. Callbacks run between the steps, outside of graphs.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from sparktrain.base.clock import Clock
from sparktrain.config.environment import TORCH
from sparktrain.config.metric_names import mode_of
from sparktrain.config.param_values import described
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import TENSORFLOW, Ring
from sparktrain.training.collectives.step_notes import StepNotes, StepReports
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.averaging import AverageMetrics, AverageWeights, scalars
from sparktrain.training.frameworks.keras.boundary_callback import MeetAtBoundary
from sparktrain.training.frameworks.keras.checkpoint_callbacks import (
    Cadence,
    EndStage,
    FitCheckpoints,
    Resume,
    SaveCheckpoints,
    Scoring,
)
from sparktrain.training.frameworks.keras.distributed_apply import is_averaged, own_optimizers, stray_optimizer
from sparktrain.training.frameworks.keras.fit_reader import fit_reader, number_from
from sparktrain.training.frameworks.keras.healing_callback import HealTogether
from sparktrain.training.frameworks.keras.ps_training import PsTraining
from sparktrain.training.frameworks.keras.spread_model import is_spread
from sparktrain.training.frameworks.keras.user_callbacks import (
    Arrange,
    CallbackStateKeeper,
    InternalCallback,
    ResumedState,
)

_SEEDS = (
    "give each dataset.shuffle() a seed, and all members the same tf.random.set_seed(): TensorFlow makes orders "
    "from both; for numbers that differ between members use keras.random.SeedGenerator(ctx.seed + ctx.rank)"
)


@dataclass(frozen=True, kw_only=True)
class CallbackDeps:
    """What a member's callbacks need of its context. No function blocks."""

    boundary: StepBoundary
    position: Position
    clock: Clock
    report: Callable[..., None]
    """`report(step, **metrics)`; only the chief calls it."""
    stepped: Callable[[int, bool], None]
    """`stepped(step, training)` reports progress: the steps in all, and whether more follow."""
    compare: Callable[[Any, int | None], None]
    """`compare(model, steps)`, called by all members before the first step, raises if their programs differ."""
    check: Callable[[Any], None]
    """`check(model)`, called by all members after the same step, raises if their weights differ."""
    checkpoints: FitCheckpoints | None
    """None: no restore and no save."""
    own_folders: tuple[str, ...] = ()
    """Folders that only this member uses."""


def keras_callbacks(
    deps: CallbackDeps,
    *,
    checkpoint_every: Any = "epoch",
    monitor: str | None = None,
    mode: str | None = None,
    warmup: int = 0,
) -> list[Any]:
    """The callbacks of one call of `fit`; the user's own come after them.

    `checkpoint_every`: a number of steps, a time such as "30s", "epoch", or None for never. `monitor` names the metric
    of the best checkpoint, in `mode` "max" or "min", by default inferred from the name; it is known at the end of an
    epoch, so with a monitor each epoch's end is saved too. `warmup`: epochs in which the learning rate rises to that of
    the optimizer from that of one member (`lr_schedule.Warmup` counts steps instead). Raises SpecError.
    """
    cadence = Cadence.of(checkpoint_every)
    scoring = Scoring(monitor, mode_of(monitor, mode))
    boundary = deps.boundary
    ring = boundary.ring
    position = deps.position
    past = ResumedState()
    keep = CallbackStateKeeper(position, past)
    healing = boundary.healing
    together = None if healing is None else HealTogether(healing, boundary, keep, past)
    marks = [] if together is None else together.marks
    # The place of a chief with callbacks that write files goes to no process that waits.
    waits = healing is not None and healing.waits
    chain: list[Any] = [Arrange(ring.rank > 0 or waits, deps.own_folders, position.reads), TrackPosition(position)]
    if warmup and ring.ps_model is not None:
        raise SpecError("warmup changes the learning rate, and parameter servers keep theirs: pass a schedule instead")
    if warmup:
        chain += [WarmUp(ring, position, warmup)]
    chain += [*marks[:1], Resume(ring, position, deps.checkpoints, past)]
    chain += [StartTogether(ring, position, past, deps.compare)]
    chain += [AverageWeights(), AverageMetrics(ring), ProgressCallback(deps)]
    if ring.ps_model is not None:
        chain += [PsTraining(ring.ps_model, position)]
    if ring.rank == 0 or waits:
        chain += [ReportMetrics(ring, position, deps.report)]
    chain += [*marks[1:], keep, MeetAtBoundary(boundary, keep)]
    if deps.checkpoints is not None:
        saves = SaveCheckpoints(boundary, deps.checkpoints, keep, (cadence, scoring), deps.clock)
        chain += [saves, EndStage(ring, keep)]
    return chain if together is None else [*chain, together]


class TrackPosition(InternalCallback):
    """Keeps the position for all other callbacks, and ends epochs where Keras does not know their end.

    Keras expects all steps of a resumed epoch, and assumes the length of a first epoch that runs out of data for all
    epochs. It must not read beyond the end either: a step without data still counts the optimizer's iterations.
    """

    def __init__(self, position: Position) -> None:
        super().__init__()
        self._position = position
        self._over = False
        self._quiet = ExitStack()

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._position.start_fit(self.params.get("steps"))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._note_steps()
        self._position.start_epoch(epoch)
        if self._position.counted and (reader := fit_reader()) is not None:
            number_from(reader, self._position.counted)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Raises StopIteration, which ends the iterator of Keras; suppresses the warning about it."""
        if self._over:
            self._quiet.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Your input ran out of data")
            raise StopIteration

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        position = self._position
        self._note_steps()
        position.finish_step(batch - position.counted)
        if not position.at_epoch_end:
            return
        if position.per_epoch is None or (position.offset and not (position.at_pass_end or position.ordered)):
            position.cut = self.model.stop_training = True
        elif position.offset:
            self._over = True

    def on_test_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._leave_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._leave_epoch()
        self._position.logs = scalars(logs or {})
        if self._position.cut:
            self._position.cut = self.model.stop_training = False

    def _note_steps(self) -> None:
        """All callbacks have these parameters: a ring of another size has other steps in an epoch, on all members."""
        if self._position.per_epoch is not None:
            self.params["steps"] = self._position.per_epoch

    def _leave_epoch(self) -> None:
        self._position.leave_epoch()
        self._over = False
        self._quiet.close()


class StartTogether(InternalCallback):
    """Gives all members the weights and the optimizer state of the chief; random seeds stay their own.

    Also to a fit that resumes: with `local_steps` a snapshot in memory has its member's own momentum. The statistics of
    layers stay those of each member where its checkpoint has them.
    """

    def __init__(
        self, ring: Ring, position: Position, past: ResumedState, compare: Callable[[Any, int | None], None]
    ) -> None:
        super().__init__()
        self._past = past
        self._ring = ring
        self._position = position
        self._compare = compare

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises SpecError if members would not train together, and what comparing them raises."""
        if self._ring.size == 1:
            return
        if is_spread():  # XLA averages, and Keras has made the variables equal
            self._compare_data()
            self._compare(self.model, self.params.get("steps"))
            return
        if (stray := stray_optimizer(self.model)) is not None:
            raise SpecError(
                f"the {stray} does not know the gang, and each member would train for itself: compile the model with "
                f"{stray}=ctx.distribute(...)"
            )
        # `jit_compile="auto"`, the default of compile(), is True only where there is a GPU: a program that trains on
        # CPUs would fail there.
        if self.model.jit_compile and self._ring.framework == TENSORFLOW:  # XLA cannot compile collectives
            self.model.jit_compile = False
            self.model.make_train_function(force=True)
        self._compare_data()
        self._compare(self.model, self.params.get("steps"))
        if self._ring.joins_late:  # its state is that of the others
            return
        optimizers = [self.model.optimizer, *own_optimizers(self.model).values()]
        variables = [*self.model.weights, *(slot for opt in optimizers if opt is not None for slot in opt.variables)]
        if self._past.own:
            own_ids = set(map(id, model_state.member_variables(self.model).values()))
            variables = [variable for variable in variables if id(variable) not in own_ids]
        # After a loss the members have equal snapshots: a broadcast of 100 MB took 0.3 s of the time until the next
        # step.
        if not (unequal := self._unequal(variables)):
            return
        values = self._ring.broadcast_arrays([model_state.view(weight) for weight in unequal], name="start")
        for variable, value in zip(unequal, values, strict=True):
            variable.assign(value)
        # The callbacks restore these values later: without the chief's in them, a member that resumed from its own
        # snapshot continued with moving averages of its own.
        ids = set(map(id, unequal))
        self._past.values = [
            (weight, model_state.value(weight) if id(weight) in ids else saved) for weight, saved in self._past.values
        ]

    def _unequal(self, variables: list[Any]) -> list[Any]:
        """Those that are not equal on all members. After a loss, equal snapshots leave next to none."""
        if not variables:
            return []
        digests = np.stack([_digest(model_state.view(variable)) for variable in variables])
        gathered = self._ring.allgather_array(digests[np.newaxis], name="start_digests")
        unequal = (gathered != gathered[0]).any(axis=(0, 2))
        return [variable for variable, differs in zip(variables, unequal, strict=True) if differs]

    def _compare_data(self) -> None:
        """Raise, on all members, for differences that would break the training or spoil it silently."""
        steps = self.params.get("steps")
        facts = [
            (-1 if steps is None else steps, "steps in an epoch: give each member the same data, by ctx.shard()"),
            (self._position.order, "data, or would shuffle it in other orders: " + _SEEDS),
        ]
        mine = np.array([[value for value, _ in facts]], "int64")
        gathered = self._ring.allgather_array(mine, name="start_alike")
        for column, (_, difference) in zip(gathered.T, facts, strict=True):
            if len(set(column.tolist())) > 1:
                shown = f" ({', '.join(map(str, column))}, by rank)" if difference.startswith("steps") else ""
                raise SpecError(f"the members of the gang have different {difference}{shown}")


def _digest(value: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Four integers, which are a SHA-256: a collision would have members train with different weights."""
    content = np.ravel(value).view(np.uint8)
    return np.frombuffer(hashlib.sha256(content.data).digest(), np.int64)


class WarmUp(InternalCallback):
    """Raises the learning rate step by step from that of one member (arXiv 1706.02677, section 2.2).

    Once for each optimizer: another `fit` with the same one continues.
    """

    def __init__(self, ring: Ring, position: Position, epochs: int) -> None:
        super().__init__()
        if type(epochs) is not int or epochs < 0:
            raise SpecError(f"warmup is {described(epochs)}; pass a number of epochs")
        self._size = ring.size
        self._position = position
        self._epochs = epochs
        self._goal = 0.0
        self._start_step = self._steps = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises SpecError without a learning rate to raise, or with epochs of unknown length."""
        if isinstance(self.model.optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            raise SpecError(
                "warmup needs a learning rate that is a number, and this one is a schedule: let it be Warmup(...)"
            )
        if not self.params.get("steps"):
            raise SpecError(
                "warmup counts epochs, and their steps are not known for this data: pass steps_per_epoch to fit"
            )
        position = self._position
        optimizer = self.model.optimizer
        if position.warmup is None or position.warmup[0] is not optimizer:  # before a checkpoint replaces it
            position.warmup = optimizer, float(optimizer.learning_rate), position.step
        _, self._goal, self._start_step = position.warmup
        self._steps = self._epochs * self.params["steps"]

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        elapsed = self._position.step - self._start_step
        if elapsed <= self._steps:
            start = self._goal / self._size
            rate = start + (self._goal - start) * min(1.0, elapsed / self._steps)
            self.model.optimizer.learning_rate.assign(rate)


class ProgressCallback(InternalCallback):
    """Reports the member's step, which shows progress, and checks the weights.

    After the first average, after the first step in each other ring, and at the end, before users' callbacks may give
    the chief's model others.
    """

    def __init__(self, deps: CallbackDeps) -> None:
        super().__init__()
        self._position = deps.position
        self._boundary = deps.boundary
        self._stepped = deps.stepped
        self._check = deps.check
        self._ring = deps.boundary.ring
        self._reports = StepReports(deps.stepped, deps.clock, self._ring.notes)
        self._notes = self._ring.notes if self._ring.framework == TORCH else None

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._ring.note_batches(True)
        self._stepped(self._position.step, True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self._notes is not None and (reader := fit_reader()) is not None:
            time_batches(reader, self._notes)

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        if self._boundary.has_stepped(self._position.step + 1) and is_averaged(self.model):
            self._check(self.model)
        self._ring.note_batches(False)
        self._stepped(self._position.step, False)

    def on_test_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._ring.note_batches(False)

    def on_test_end(self, logs: Any = None) -> None:
        """See base class."""
        self._ring.note_batches(True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        self._check_weights()
        self._reports.reached(self._position.step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._check_weights()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        self._reports.reached(self._position.step)

    def _check_weights(self) -> None:
        if is_averaged(self.model) and self._boundary.take_comparison(self._position.step):
            self._check(self.model)


class ReportMetrics(InternalCallback):
    """Reports the metrics of each epoch, by its number; numbers grow over all calls of `fit`. On the chief alone."""

    def __init__(self, ring: Ring, position: Position, report: Callable[..., None]) -> None:
        super().__init__()
        self._ring = ring
        self._position = position
        self._report = report

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self._ring.rank == 0:
            self._report(max(epoch, self._position.reported + 1), **scalars(logs or {}))


_END = object()


class TimedBatches:
    """In place of the method by which a reader of `fit` starts a pass over batches that Keras reads in Python."""

    def __init__(self, batches: Callable[[], Any], notes: StepNotes) -> None:
        self._batches = batches
        self._notes = notes

    def __call__(self) -> Iterator[Any]:
        """The batches of a pass."""
        batches = iter(self._batches())
        while True:
            asked_ns = self._notes.now_ns()
            batch = next(batches, _END)
            self._notes.feed(self._notes.now_ns() - asked_ns)
            if batch is _END:
                return
            yield batch


def time_batches(reader: Any, notes: StepNotes) -> None:
    """Note the waits of this reader from its next pass on. A second call does nothing."""
    if not isinstance(reader._get_iterator, TimedBatches):
        reader._get_iterator = TimedBatches(reader._get_iterator, notes)
