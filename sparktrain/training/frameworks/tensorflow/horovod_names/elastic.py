"""Horovod's `elastic`, over checkpoints of the gang: a restarted gang resumes at the last commit.

Horovod continues in the processes that are left; a gang restarts, so that its processes know each other again.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.extras import decoded, encoded
from sparktrain.training.elastic_state import ElasticState, resuming
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.frameworks.tensorflow.horovod_names.import_hook import current_ring, current_trial
from sparktrain.training.frameworks.tensorflow.horovod_names.tensorflow_names import assign_all
from sparktrain.training.frameworks.tensorflow.optimizers.tensorflow_values import VALUES

_ELSEWHERE = {
    "ElasticSampler": "pass each member its share by ctx.shard(data), or by dataset.shard(hvd.size(), hvd.rank())",
    "TorchState": "save what torch trains in hvd.elastic.ObjectState, as arrays",
}
_RESERVED = ("model", "optimizer", "variables")


class ObjectState(ElasticState):
    """Values that all members share, as attributes: numbers, strings, arrays, or lists and dicts of them.

    Blocks nowhere but in `sync` and `commit`.
    """

    def __init__(self, bcast_object: object = None, get_rank: object = None, **values: Any) -> None:
        """`bcast_object` and `get_rank` are Horovod's, and have no effect."""
        if clashes := sorted(values.keys() & {*_RESERVED}):
            raise SpecError(f"hvd.elastic: a value of the state is called {clashes[0]!r}, which the state uses itself")
        self._names = tuple(values)
        vars(self).update(values)
        super().__init__()
        self.save()

    def save(self) -> None:
        """Copy the values in memory, for `restore`."""
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        """Go back to the values of the last `save`, `sync` or `commit`."""
        vars(self).update(copy.deepcopy(self._saved))

    def commit(self) -> None:
        """Save, also as a checkpoint of the gang. Every member calls it, after the same steps.

        The chief blocks while it copies the values, and while a commit before is not stored yet, at most 20 s. Raises
        TypeError for a value that a checkpoint cannot have.
        """
        self.save()
        self._commits += 1
        trial = current_trial("hvd.elastic.State.commit()")
        if trial.rank == 0:
            trial.checkpoint.save(self._commits, values=self._values(), arrays=self._arrays())

    def sync(self) -> None:
        """Give all members the chief's values. Every member calls it; it blocks until all do."""
        ring = current_ring("hvd.elastic.State.sync()")
        # As JSON and arrays: a member unpickles nothing that another one sends.
        data = np.frombuffer(encoded(self._values()), np.uint8).astype(np.int32)
        length = int(VALUES.broadcast(ring, data.size))
        # A broadcast needs arrays of one shape, and the chief's values may be of another length.
        sent = VALUES.broadcast(ring, np.resize(data, length))
        vars(self).update(decoded(np.asarray(sent).astype(np.uint8).tobytes()))
        self.save()

    def resume(self) -> bool:
        """Take the values of the newest checkpoint; False where there is none. Blocks on the local disk."""
        restored = current_trial("hvd.elastic.run()").checkpoint.restore()
        if restored is None:
            return False
        self._commits = restored.step
        vars(self).update(restored["values"])
        self._assign(restored["arrays"])
        self.save()
        return True

    def _values(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._names}

    def _arrays(self) -> list[Any]:
        """What a checkpoint has beside the values."""
        return []

    def _assign(self, arrays: list[Any]) -> None:
        """Take what `_arrays` has given."""


class TensorFlowState(ObjectState):
    """Variables of TensorFlow or Keras, and values."""

    def __init__(self, variables: Iterable[Any] | None = None, session: object = None, **values: Any) -> None:
        """Raises SpecError for a session, and without variables."""
        if session is not None or variables is None:
            raise SpecError(
                "hvd.elastic.TensorFlowState: pass variables=, such as model.variables; TensorFlow 2 has no list of "
                "all variables, and no sessions"
            )
        self.variables = list(variables)
        super().__init__(**values)

    def save(self) -> None:
        """See base class."""
        super().save()
        self._saved_arrays = self._arrays()

    def restore(self) -> None:
        """See base class."""
        super().restore()
        self._assign(self._saved_arrays)

    def sync(self) -> None:
        """See base class."""
        # Horovod's own TensorFlowState sends no variables in TensorFlow 2: only those of a session.
        assign_all(current_ring("hvd.elastic.State.sync()"), self._held(), "elastic_state")
        super().sync()

    def _held(self) -> list[Any]:
        return self.variables

    def _arrays(self) -> list[Any]:
        return [np.array(variable.numpy()) for variable in self._held()]

    def _assign(self, arrays: list[Any]) -> None:
        held = self._held()
        if len(held) != len(arrays):
            raise SpecError(
                f"hvd.elastic: the last commit has {len(arrays)} variables, and the state {len(held)}: build the same "
                "model and optimizer before the state"
            )
        for variable, value in zip(held, arrays, strict=True):
            variable.assign(value)


class TensorFlowKerasState(TensorFlowState):
    """The weights of a Keras model, its optimizer, and values. The model is built before."""

    def __init__(self, model: Any, optimizer: Any = None, backend: object = None, **values: Any) -> None:
        """`optimizer`: by default that of `compile`. Raises ValueError for a model that is not built."""
        if not model.built:
            raise ValueError("hvd.elastic: the model must be built first: call model.build(input_shape)")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        super().__init__([], **values)

    def _held(self) -> list[Any]:
        if self.optimizer is None:
            return [*self.model.weights]
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)
        return [*self.model.weights, *self.optimizer.variables]


KerasState = TensorFlowKerasState


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function `function(state, ...)`, to resume at the last commit: see `resuming`."""
    return resuming(function, current_trial)


class CommitStateCallback(InternalCallback):
    """Commits the state after a number of batches, and after each epoch.

    Put it last: it commits what the callbacks before it have set.
    """

    def __init__(self, state: ObjectState, batches_per_commit: int = 1) -> None:
        super().__init__()
        self._state = state
        self._every = batches_per_commit
        self._remaining_batches = batches_per_commit

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._remaining_batches = self._every

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._remaining_batches -= 1
        if self._remaining_batches == 0:
            self._state.commit()
            self._remaining_batches = self._every

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._state.commit()


class UpdateBatchStateCallback(InternalCallback):
    """Keeps `state.batch`: the number of the batch in its epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._state.batch = 0


class UpdateEpochStateCallback(InternalCallback):
    """Keeps `state.epoch`: how many epochs are finished, those before a restart included."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self._state = state
        self._first = state.epoch

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._first = self._state.epoch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See base class."""
        self._state.epoch = self._first + epoch + 1


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise SpecError(f"hvd.elastic.{name} is not there: {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'horovod.elastic' has no attribute {name!r}")


__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
