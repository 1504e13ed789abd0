"""What the steps of a user's loop change in a model of Keras on TensorFlow: see `LoopSteps`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.config.environment import TENSORFLOW
from sparktrain.training.checkpoint.tensor_files import MEMBER, Array, TensorFiles
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.elastic.loop_steps import LoopSteps
from sparktrain.training.frameworks.keras import consistency, model_state
from sparktrain.training.frameworks.keras.distributed_apply import own_apply, own_optimizers
from sparktrain.training.frameworks.keras.healing.step_values import MEMBERS, shared_variables
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use
from sparktrain.training.frameworks.tensorflow import variable_memory
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.healing.graph_values import GraphValues
from sparktrain.training.frameworks.tensorflow.optimizers.gradients import AVERAGES

_RATE = "optimizer/learning_rate"


def loop_steps(parts: Sequence[Any], healing: RingHealing) -> "KerasLoopSteps | None":
    """See `Framework.loops`. None for a model that is not built, or has no optimizer."""
    models = [part for part in parts if cursor_of(part) is None]
    if backend_in_use() != TENSORFLOW or len(models) != 1 or healing.ring.framework != TENSORFLOW:
        return None
    [model] = models
    if not model.built or getattr(model, "optimizer", None) is None or healing.ring.local_steps is not None:
        return None
    return KerasLoopSteps(model, parts, healing)


class KerasLoopSteps(LoopSteps):
    """See base class."""

    def __init__(self, model: Any, parts: Sequence[Any], healing: RingHealing) -> None:
        self._model = model
        self._parts = tuple(parts)
        self._healing = healing
        self._values = GraphValues(model, healing.ring)
        self._own = model_state.member_variables(model)
        self._shared = shared_variables(model, self._own)
        self._changed = self._values.variables
        # With what has travelled: the average of a broken step may have ended, and something after it failed.
        variables = [*self._changed, *([self._values.rows] if self._values.travel else [])]
        self._kept = [_Copies(variables), _Copies(variables)]
        self._optimizers = [model.optimizer, *own_optimizers(model).values()]
        self._applied = 0
        self._rate: Array | None = None

    def start(self) -> None:
        """See base class."""
        self._set_passenger(self._values if self._values.travel else None)
        for optimizer in self._optimizers:
            if own_apply(optimizer) is None:
                optimizer.apply = _LastApply(optimizer.apply)

    def end(self) -> None:
        """See base class."""
        self._set_passenger(None)
        for optimizer in self._optimizers:
            if isinstance(vars(optimizer).get("apply"), _LastApply):
                del optimizer.apply

    def _set_passenger(self, values: GraphValues | None) -> None:
        ring: Any = self._healing.ring
        ring.passenger = values
        for optimizer in self._optimizers:
            applied: Any = own_apply(optimizer)
            if hasattr(applied, "passenger"):
                applied.passenger = values

    @property
    def is_quiet(self) -> bool:
        """See base class."""
        return not self._healing.ring.traced_names

    def obstacle(self) -> str:
        """See base class."""
        ring: Any = self._healing.ring
        if names := sorted(name for name in self._healing.ring.traced_names if not name.startswith(AVERAGES)):
            return f"a tf.function calls the collective {names[0]!r} beside the average of gradients"
        if ring.most_averages(AVERAGES) > 1:
            return "a tf.function averages gradients more than once: call one tf.function for each average"
        if not self.is_applied():
            return "the step does not train by the optimizer of the model, or by one in its attributes"
        sent = self._values.of_member(ring.rank)
        late = [name for name, value in sent.items() if not np.array_equal(value, model_state.view(self._own[name]))]
        if late:
            return (
                f"the step changes {late[0].removeprefix(model_state.METRICS)} after its gradients are averaged; "
                "update metrics before that"
            )
        return ""

    def check_equal(self, ring: Ring) -> None:
        """See base class."""
        consistency.check_equal(ring, self._model)

    def note(self, values: Mapping[str, Any]) -> None:
        """See base class."""
        rate = self._model.optimizer._learning_rate
        self._rate = np.array(rate.numpy()) if isinstance(rate, keras.Variable) else None

    def keep(self) -> None:
        """See base class."""
        self._applied = self._iterations()
        if self._changed:
            self._kept.reverse()
            self._kept[0].keep()

    def put_back(self, ago: int) -> None:
        """See base class."""
        self._kept[ago].put_back()

    def rebase(self) -> None:
        """See base class."""
        self._applied = self._iterations()
        if self._changed:
            self._kept[0].keep()

    def is_applied(self) -> bool:
        """See base class."""
        return self._iterations() != self._applied

    def _iterations(self) -> int:
        return sum(int(optimizer.iterations.numpy()) for optimizer in self._optimizers)

    def parts(self) -> Sequence[Any]:
        """See base class."""
        return self._parts

    def completed(self, tensors: Mapping[str, Array], ranks: Sequence[int]) -> dict[str, Array]:
        """See base class."""
        completed = {**tensors, MEMBERS: self._values.members}
        if self._rate is not None and _RATE in completed:
            completed[_RATE] = self._rate
        for rank in ranks:
            for name, value in self._values.of_member(rank).items():
                completed[f"{MEMBER}{rank}/{name}"] = value
        return completed

    def rejoin(self) -> None:
        """See base class. Nothing: the ring is the same object."""

    def arrive(self, files: TensorFiles) -> None:
        """See base class."""
        self._values.assign_members(files.read(MEMBERS))

    def present(self) -> Any:
        """See base class."""
        variables = [*self._shared.values(), *self._changed]
        return [(variable, model_state.value(variable)) for variable in variables], self._values.members

    def take(self, present: Any) -> None:
        """See base class."""
        values, members = present
        for variable, value in values:
            variable.assign(value)
        self._values.assign_members(members)

    def take_over(self, files: TensorFiles) -> None:
        """See base class."""
        for name, variable in self._shared.items():
            variable_memory.assign(variable, files.view(name))


class _LastApply:
    """Takes the place of the `apply` of an optimizer that trains on averaged gradients: applies all of them, or none.

    In a graph its counter, and its weight decay, would not wait for the average.
    """

    def __init__(self, apply: Callable[..., Any]) -> None:
        self._apply = apply

    @as_written
    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        gradients = list(grads)
        present = [gradient for gradient in gradients if gradient is not None]
        with tf.control_dependencies(tf.nest.flatten(present, expand_composites=True)):
            return self._apply(gradients, trainable_variables)


class _Copies:
    """The values of some variables at one time."""

    def __init__(self, variables: Sequence[Any]) -> None:
        # Those of Keras wrap one of TensorFlow.
        plain = [variable.value if isinstance(variable, keras.Variable) else variable for variable in variables]
        pairs = [(variable, tf.Variable(variable, trainable=False)) for variable in plain]

        @as_written
        def keep() -> None:
            for variable, copy in pairs:
                copy.assign(variable)

        @as_written
        def put_back() -> None:
            for variable, copy in pairs:
                variable.assign(copy)

        # One call for all: an operation of each variable would take longer than a small step.
        self.keep = tf.function(keep)
        self.put_back = tf.function(put_back)
