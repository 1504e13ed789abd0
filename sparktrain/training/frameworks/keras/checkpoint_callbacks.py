"""Saves a model when it is due and resumes its training: the Keras side of checkpoints."""

import gc
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from sparktrain.base.clock import Clock
from sparktrain.config.environment import TENSORFLOW
from sparktrain.config.metric_names import Mode
from sparktrain.config.param_values import described, did_you_mean
from sparktrain.config.quantities import seconds
from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.member_states import gathered
from sparktrain.training.checkpoint.process_generators import assign_generators, generators
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.checkpoint.tensor_slices import Index
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.data.fit_call import check_call, describe_call, follow_rate
from sparktrain.training.data.fit_stages import KEPT_BYTES, Finished, StagePosition
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.distributed_apply import is_averaged, own_optimizers
from sparktrain.training.frameworks.keras.fit_reader import fit_reader, skip
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use
from sparktrain.training.frameworks.keras.keras_state import is_split
from sparktrain.training.frameworks.keras.spread_model import give_parts, is_spread, nbytes_of
from sparktrain.training.frameworks.keras.user_callbacks import (
    CallbackStateKeeper,
    InternalCallback,
    ResumedState,
    continue_files,
    end_with,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import OPTIMIZERS, PsModel
from sparktrain.training.notices import notice

_CALL = "a checkpoint of fit()"
"""In messages."""
SENT = "sent"
"""In the state of `fit`: what a member that trains adds for a process that takes a lost rank."""
_LOOKS = 5
"""How often in an interval of time members that all save agree on whether it is over."""
FIT_STATE = "fit()"
"""The name under which `fit` saves its state beside the model."""


class FitCheckpoints:
    """Saves and restores for `fit`, through `ctx.checkpoint`."""

    def __init__(self, checkpoints: CheckpointSaver, keep: int, ps_model: PsModel | None = None) -> None:
        self._checkpoints = checkpoints
        self._keep = keep
        self._ps_model = ps_model

    def peek(self) -> StagePosition | None:
        """The position of the newest checkpoint, None without one; one of the user's own loop has no epoch.

        Changes nothing. Raises CheckpointError.
        """
        newest = self._checkpoints.peek()
        if newest is None:
            return None
        return StagePosition(newest.step, newest.epoch or 0, newest.batch or 0, newest.extra.get(FIT_STATE, {}))

    def restore(self, model: Any, *, alike: bool) -> int:
        """Set the built `model`, its optimizer and the generators to the newest checkpoint.

        `alike`: this member has drawn the same random numbers as the chief. Returns the number of members that
        have statistics and metrics of their own in it. Raises UserError, CheckpointError.
        """
        restored = self._checkpoints.restore(model, alike=alike)
        if restored is None:
            return 0
        if self._ps_model is not None:
            self._ps_model.restore(restored.extra.get(OPTIMIZERS, []))
        return restored.members

    def save(
        self, model: Any, place: StagePosition, members: Sequence[Mapping[str, Array]], score: float | None
    ) -> None:
        """Copy what `restore` needs; a thread writes the copy. Blocks for the copy.

        `members` is what each of them has of its own, by rank; empty for the chief's alone. Only the chief calls it,
        and all members where they may hold parts of the model: then each saves its own.
        """
        if not self._checkpoints.is_chief and not is_split((model,)):
            return
        content: dict[str, Any] = {FIT_STATE: dict(place.content)}
        if self._ps_model is not None:
            content[OPTIMIZERS] = self._ps_model.saved()
        facts = {"epoch": place.epoch, "batch": place.batch, "extra": content}
        self._checkpoints.save_of_all(place.step, model, members, score=score, keep=self._keep, **facts)

    def is_move_due(self) -> bool:
        """See `CheckpointSaver`."""
        return self._checkpoints.is_move_due()

    def await_move(self) -> None:
        """See `CheckpointSaver`."""
        self._checkpoints.await_move()


@dataclass(frozen=True)
class Cadence:
    """How often to make a checkpoint: one of the three, or never."""

    steps: int | None = None
    seconds: float | None = None
    epochs: bool = False

    @classmethod
    def of(cls, value: Any) -> "Cadence":
        """The cadence for a number of steps, a time such as "30s", "epoch", or None. Raises SpecError."""
        if value is None:
            return cls()
        if value == "epoch":
            return cls(epochs=True)
        if isinstance(value, str):
            return cls(seconds=seconds(value, "checkpoint_every"))
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(
                f"checkpoint_every is {described(value)}; pass a number of steps, a time such as '30s', or 'epoch'"
            )
        return cls(steps=value)


@dataclass(frozen=True)
class Scoring:
    """The metric by which one checkpoint is better than another."""

    monitor: str | None
    mode: Mode

    def score(self, logs: dict[str, Any]) -> float | None:
        """The score: larger is better; None without a monitor. Raises SpecError if the metric is missing."""
        if self.monitor is None:
            return None
        if self.monitor not in logs:
            names = ", ".join(map(repr, sorted(logs)))
            raise SpecError(
                f"monitor {self.monitor!r} is none of the metrics {names}{did_you_mean(self.monitor, logs)}"
            )
        value = float(logs[self.monitor])
        return value if self.mode == "max" else -value


class Resume(InternalCallback):
    """Builds the model and its optimizer, and resumes from the newest checkpoint, all members at the chief's position.

    A `fit` that had finished before that checkpoint runs no epoch, and the `fit` of the checkpoint runs the rest. Comes
    before the callback that broadcasts the chief's variables. In an epoch that resumes in its middle the saved metrics
    continue too.
    """

    def __init__(self, ring: Ring, position: Position, checkpoints: FitCheckpoints | None, past: ResumedState) -> None:
        super().__init__()
        self._ring = ring
        self._position = position
        self._checkpoints = checkpoints
        self._past = past
        self._metrics: list[tuple[Any, Any]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises UserError for another fit than the checkpoint has, or an unbuilt model, and CheckpointError."""
        self._past.states = {}
        self._past.values = []
        self._past.midway = False
        self._past.own = False
        self._past.sent = False
        self._metrics = []
        if self._checkpoints is None and self._ring.size == 1:
            return
        position = self._position
        stages = self._position.stages
        if self._checkpoints is not None and not stages.opened:
            self._open(self._checkpoints)
        behind = stages.behind(position.fit) or stages.resumes(position.fit)
        build_all(self.model, position.spec, needed=behind or self._ring.size > 1)
        if self._checkpoints is None:
            return
        parts = keras.tree.flatten(position.spec)
        stages.call = describe_call(self.model, parts, self.params, stages.settings + self._ring.size)
        if (past := stages.finished_before(position.fit)) is not None:
            self._check(past.facts, finished=True)
            self._skip(past)
        elif stages.resumes(position.fit) and stages.place is not None:
            content = stages.place.content
            finished = content.get("stopped", False) or stages.place.epoch >= self.params["epochs"]
            self._check(content, finished=finished)
            self._past.own = self._checkpoints.restore(self.model, alike=stages.alike) == self._ring.size
            if not self._past.sent:  # what joins a healed ring has the rate of the others
                follow_rate(self.model, stages.call, content.get("call", {}))
            self._resume(stages.place)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self.model._initial_epoch = None  # used; another fit starts at its own epoch
        for variable, value in self._metrics:
            variable.assign(value)
        self._metrics = []

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        self.model._initial_epoch = None

    def _open(self, checkpoints: FitCheckpoints) -> None:
        """Agree on the checkpoint of the chief."""
        drawn = self._past.drawn = self._past.drawn or drawn_digest()
        place = checkpoints.peek()
        mine = [place.step, place.epoch, place.batch, place.stage, drawn] if place else [-1, 0, 0, 0, drawn]
        [agreed] = self._ring.broadcast_arrays([np.array(mine, "int64")], name="resume")
        step, epoch, batch, stage, chiefs = agreed.tolist()
        content = place.content if place is not None and place.step == step else {"stage": stage}
        if SENT in content:
            self._past.sent = True
            self._past.agreed = content[SENT]["agreed"]
            chiefs = content[SENT]["drawn"]
        self._position.stages.open(StagePosition(step, epoch, batch, content) if step >= 0 else None, chiefs == drawn)

    def _check(self, content: Mapping[str, Any], *, finished: bool) -> None:
        """Members may differ in where they call `fit`, and a checkpoint is the chief's."""
        if self._ring.rank == 0 and not self._past.sent:
            check_call(self._position.stages.call, content.get("call", {}), self._position.fit, finished=finished)

    def _skip(self, finished: Finished) -> None:
        facts = finished.facts
        position = self._position
        position.step = facts["step"]
        position.reported = facts["reported"]
        position.recall(facts["passes"])
        position.stages.attach(position.fit, self.model)
        self.model._initial_epoch = self.params["epochs"]
        end_with(self, facts.get("logs", {}))
        self._past.states = facts["callbacks"]
        continue_files(self, self._past, None)

    def _resume(self, place: StagePosition) -> None:
        position = self._position
        content = place.content
        epoch = place.epoch
        batch = place.batch
        if not self._continues_midway(content):
            repeated = f"epoch {epoch} restarts from its first step, and " if batch else ""
            notice(
                f"{repeated}fit() may read its data in another order: only data of ctx.shard(), and arrays with "
                "shuffle=False in a gang of the same size, resume in the middle of an epoch"
            )
            batch = 0
        start_step = content.get("start_step", 0)
        first = content.get("first", 0)
        position.recall_rows(content.get("rows", []))
        if position.ordered:
            skip(fit_reader(), batch)
        else:
            epoch, batch = position.place_now(epoch, batch)
        self.model._initial_epoch = self.params["epochs"] if content.get("stopped") else epoch
        position.logs = content.get("logs", {})
        if self.model._initial_epoch >= self.params["epochs"]:
            end_with(self, position.logs)
        counted = content.get(SENT, {}).get("number", batch)
        position.resume(epoch, batch, place.step, start_step=start_step, first=first, counted=counted)
        position.reported = max(position.reported, content.get("reported", -1))
        position.recall(content.get("passes", []))
        variables = [*self.model.variables, *self.model.optimizer.variables]
        self._past.states = content.get("callbacks", {})
        # The members that send their state have started the epoch: what callbacks do then is undone here.
        self._past.midway = batch > 0 or self._past.sent
        self._past.values = [(variable, model_state.retained_value(variable)) for variable in variables]
        # Between two steps, the state that other members send is that after the step which this process only reads.
        if batch or content.get(SENT, {}).get("read_only", False):
            metrics = [variable for metric in self.model.metrics for variable in metric.variables]
            self._metrics = [(variable, variable.numpy()) for variable in metrics]
        continue_files(self, self._past, epoch)

    def _continues_midway(self, content: Mapping[str, Any]) -> bool:
        """Whether the rest of the epoch that was interrupted is the same data now."""
        position = self._position
        if position.ordered:
            return bool(content.get("fed")) and content.get("steps") == position.per_epoch
        return bool(content.get("fed", bool(position.feeds)))


class SaveCheckpoints(InternalCallback):
    """Saves the model on the chief when it is due, after the user's callbacks, with their state.

    A save that all members know of, after a number of steps or at the end of an epoch, has the statistics and metrics
    of all members; one after a time has those of the chief. Where members hold parts of the model, all of them save,
    once they agree that a time is over. A save that is due with the last step of an epoch happens at the end of the
    epoch, and resumes in the next one; one that is due between two averages of `local_steps` happens after the next, so
    that a restart counts steps from there. An epoch that was stopped in its middle is not saved.
    A member that trains alone, or saves alone after a time, also saves after the step in which it is asked to move, and
    waits there for its end.
    """

    last = True

    def __init__(
        self,
        boundary: StepBoundary,
        checkpoints: FitCheckpoints,
        keep: CallbackStateKeeper,
        when: tuple[Cadence, Scoring],
        clock: Clock,
    ) -> None:
        super().__init__()
        self._boundary = boundary
        self._ring = boundary.ring
        self._position = keep.position
        self._checkpoints = checkpoints
        self._keep = keep
        self._cadence, self._scoring = when
        self._saves = self._cadence != Cadence() or self._scoring.monitor is not None
        self._clock = clock
        self._quiet = False
        self._is_moving = False

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        position = self._position
        self._boundary.note_save(position.step)
        if self._cadence.seconds is not None and self._is_shared:
            self._boundary.save_by(self._is_over, self._cadence.seconds / _LOOKS)
        # No restart resumes in a fit after a stopped one, or in one that only repeats an earlier one.
        self._quiet = position.stopped or position.stages.behind(position.fit)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises what saving raises."""
        if not self._due() or self._position.at_epoch_end or self.model.stop_training:
            return
        # Between two averages a checkpoint has the chief's weights alone, and a restart loses the steps of the others.
        if is_averaged(self.model):
            self._save(self._position.epoch, self._position.batch, None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises what saving raises."""
        if self.model.stop_training and not self._position.at_epoch_end:
            return
        if self._cadence.epochs or self._scoring.monitor is not None or self._due():
            self._save(epoch + 1, 0, self._scoring.score(logs or {}))

    def _due(self) -> bool:
        # Without saves a trial is left to finish where it is.
        if self._saves_alone and not self._quiet:
            self._is_moving = self._is_moving or self._checkpoints.is_move_due()
        if self._is_moving:
            return True
        if self._cadence.steps is not None:
            return self._position.step - self._boundary.saved[0] >= self._cadence.steps
        return self._boundary.saves if self._is_shared else self._is_over()

    def _is_over(self) -> bool:
        """Whether the time until the next save is over, by the clock of this member."""
        return (
            self._cadence.seconds is not None and self._clock.now() - self._boundary.saved[1] >= self._cadence.seconds
        )

    @property
    def _is_shared(self) -> bool:
        """Whether all members save together when a time is over, because each holds a part of the model."""
        return is_spread() and self._ring.size > 1

    @property
    def _saves_alone(self) -> bool:
        """Whether this member saves when it likes: not where all have to agree on the step of a save."""
        if self._ring.size == 1:
            return self._saves
        return self._ring.rank == 0 and self._cadence.seconds is not None and not is_spread()

    def _save(self, epoch: int, batch: int, score: float | None) -> None:
        position = self._position
        self._boundary.note_save(position.step)
        if self._quiet:
            return
        # Before the others return: all members take part, and the chief alone saves.
        members = [] if self._cadence.seconds is not None else gathered(self._ring, (self.model,), _CALL)
        if self._ring.rank and not is_spread():
            return
        place = StagePosition(position.step, epoch, batch, fit_content(position, self._keep, self.model))
        self._checkpoints.save(self.model, place, members, score)
        if self._is_moving:
            self._is_moving = False
            self._checkpoints.await_move()


def drawn_digest() -> int:
    """A digest of the random numbers that this process has drawn."""
    return zlib.crc32(repr(generators()).encode())


def fit_content(position: Position, keep: CallbackStateKeeper, model: Any) -> dict[str, Any]:
    """What a `fit` needs to resume at `position`, beside the model."""
    content = {
        "stage": position.fit,
        "start_step": position.start_step,
        "first": position.first,
        "reported": position.reported,
        "passes": position.passes(),
        "rows": position.rows(),
        "fed": position.fed,
        "steps": position.per_epoch,
        "stopped": model.stop_training and not position.stopped,
        "callbacks": keep.states(),
        "call": position.stages.call,
        "logs": position.logs,
    }
    return content | position.stages.packed()


class EndStage(InternalCallback):
    """The last callback: notes the state that a `fit` leaves, or restores it if an earlier process has noted it."""

    last = True

    def __init__(self, ring: Ring, keep: CallbackStateKeeper) -> None:
        super().__init__()
        self._ring = ring
        self._position = keep.position
        self._keep = keep

    @property
    def _rank(self) -> int:
        return self._ring.rank

    def on_train_begin(self, logs: Any = None) -> None:
        """Note the optimizers of other models as late as possible, and drop what is not needed."""
        stages = self._position.stages
        if self._rank or stages.behind(self._position.fit):
            return
        if is_spread():
            text = "" if self._position.stopped else stages.make_room(self.model) or stages.lacking()
            if text:
                notice(text)
            return
        if any(not other_stage.optimizer for other_stage in stages.other_stages(self.model)):
            gc.collect()  # models have reference cycles: this frees those that the function has released
        for stage in stages.other_stages(self.model):
            optimizer = stage.model().optimizer
            if not stage.optimizer and optimizer is not None and optimizer.built:
                stage.optimizer = _values(_named(stage.model(), "optimizer/"))
        if text := stages.make_room(self.model):
            notice(text)

    def on_train_end(self, logs: Any = None) -> None:
        """Raises UserError if the model of a finished `fit` differs from the saved one."""
        position = self._position
        stages = self._position.stages
        if (finished := stages.finished_before(position.fit)) is not None:
            self._restore(finished)
            return
        facts = {
            "call": stages.call,
            "logs": position.logs,
            "step": position.step,
            "reported": position.reported,
            "passes": [[count, count] for _, count in position.passes()],
            "callbacks": self._keep.states(),
            "generators": _compact(generators()),
            "seed": model_state.global_seed(),
        }
        stages.finish(position.fit, facts, {} if position.stopped else self._final_weights(), self.model)

    def _final_weights(self) -> dict[str, Array]:
        """What later checkpoints of the chief have of the model: nothing of a large one that is split."""
        variables = _named(self.model, "model/", "seeds/")
        if is_split((self.model,)):
            if sum(map(nbytes_of, variables.values())) > KEPT_BYTES:
                return {}
            if self._rank:
                give_parts(variables)
        return {} if self._rank else _values(variables)

    def _restore(self, finished: Finished) -> None:
        facts = finished.facts
        stages = self._position.stages
        for part, prefixes in ((finished.weights, ("model/", "seeds/")), (finished.optimizer, ("optimizer/",))):
            if part:
                tensors: Any = _TensorsInMemory(part)
                model_state.assign(_named(self.model, *prefixes), tensors, facts["step"], self._rank)
        if facts["seed"] is not None:
            model_state.assign_global_seed(np.array(facts["seed"]), keep_seed=self._rank > 0)
        if not self._rank or stages.alike:
            assign_generators(_as_lists(facts["generators"]))


class _TensorsInMemory:
    """Tensors in memory, with the interface of files for `model_state.assign`."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self._tensors = tensors
        self.document = {"variables": {name: f"{tensor.dtype} {tensor.shape}" for name, tensor in tensors.items()}}

    def read(self, name: str) -> Array:
        return self._tensors[name].copy()

    def view(self, name: str) -> Array:
        return self.read(name)  # what restores it may change it

    def read_slice(self, name: str, index: Index) -> Array:
        return self._tensors[name][index].copy()


def _named(model: Any, *prefixes: str) -> dict[str, Any]:
    return {name: variable for name, variable in model_state.named(model).items() if name.startswith(prefixes)}


def _values(named: dict[str, Any]) -> dict[str, Array]:
    return {name: model_state.value(variable) for name, variable in named.items()}


def _compact(generator_states: dict[str, Any]) -> dict[str, Any]:
    """The states of generators, with arrays for their thousands of numbers."""
    version, internal, gauss = generator_states["python"]
    states = {"python": [version, np.array(internal, np.uint32), gauss]}
    if "numpy" in generator_states:
        key, *scalars = generator_states["numpy"]
        states["numpy"] = [np.array(key, np.uint32), *scalars]
    return states


def _as_lists(generator_states: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [part.tolist() if hasattr(part, "tolist") else part for part in state]
        for name, state in generator_states.items()
    }


def optimizers_of(model: Any) -> list[Any]:
    """The optimizer of `compile()`, those of the model's own train_step, and the ones that they wrap."""
    optimizers = []
    for optimizer in (getattr(model, "optimizer", None), *own_optimizers(model).values()):
        while optimizer is not None:
            optimizers.append(optimizer)
            optimizer = getattr(optimizer, "inner_optimizer", None)
    return optimizers


def _symbolic(spec: Any) -> Any:
    """What Keras builds a model with, from the element spec of a dataset of TensorFlow; None where it is unknown."""
    # With another backend Keras builds a model with its first batch, before it calls any callback.
    if spec is None or backend_in_use() != TENSORFLOW:
        return None
    from sparktrain.training.frameworks.tensorflow.data.pipeline import symbolic_batch

    return symbolic_batch(spec)


def build_all(model: Any, spec: Any, *, needed: bool) -> None:
    """Build all variables of `model`, its metrics and its optimizer; `spec` is that of its batches, None if unknown.

    Raises SpecError if the variables are `needed` and cannot be built; else Keras builds them with the first batch.
    """
    if not optimizers_of(model):
        raise SpecError("the model has no optimizer: compile it with optimizer=ctx.distribute(...)")
    if (batch := _symbolic(spec)) is not None:
        with suppress(RuntimeError):  # Keras asks to build it by hand, as below
            model._symbolic_build(data_batch=batch)
    if not model.built:
        if not needed:
            return
        raise SpecError(
            "the model has no variables yet, and all members must start with equal ones: give it an Input layer, or "
            "build() it before fit()"
        )
    for name in [name for name, optimizer in own_optimizers(model).items() if not optimizer.built]:
        notice(
            f"after a restart the model's {name} has no state, because its first step builds it: "
            f"call {name}.build(...) with the variables that it trains before fit()"
        )
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
