"""Trains a model by parameter servers: starts and ends each call of `fit` with them."""

from typing import Any

from sparktrain.errors import SpecError
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.keras.distributed_apply import (
    is_distributed,
    own_optimizers,
    reduce_outside_scale,
)
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel, learning_rate


class PsTraining(InternalCallback):
    """Gives the model the variables of the servers, stops it with the other members, and ends with the final ones.

    Comes after the callback that resumes, and after that which reports progress: the chief waits for the others.
    """

    def __init__(self, ps_model: PsModel, position: Position) -> None:
        super().__init__()
        self._ps_model = ps_model
        self._position = position

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises SpecError for a model that servers cannot train, RingError."""
        if self._repeats:
            return
        model = self.model
        if extras := own_optimizers(model):
            raise SpecError(
                f"the model has optimizers of its own ({', '.join(extras)}), and parameter servers apply one: choose "
                "backend 'horovod' or 'tensorflow'"
            )
        self._ps_model.check(model.optimizer)
        reduce_outside_scale(model.optimizer)
        if not is_distributed(model.optimizer):
            raise SpecError(
                "the optimizer does not know the gang, and each member would train for itself: compile the model with "
                "optimizer=ctx.distribute(...)"
            )
        if not model.built:
            raise SpecError(
                "the model has no variables yet, and the parameter servers need them: give it an Input layer, or "
                "build() it before fit()"
            )
        if model.jit_compile:  # XLA cannot compile a call of Python
            model.jit_compile = False
            model.make_train_function(force=True)
        self._ps_model.start(model.optimizer, model.trainable_variables, self._position.fit)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Raises SpecError when a callback has changed the learning rate."""
        if not self._repeats and not self._ps_model.local:
            self._ps_model.check_rate(learning_rate(self.model.optimizer))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if self._ps_model.stopped:
            self._position.stopped = self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Raises RingError."""
        if not self._repeats:
            self._ps_model.end(self._position.fit, stops=bool(self.model.stop_training))

    @property
    def _repeats(self) -> bool:
        """Whether this call of `fit` has finished before the checkpoint from which this process resumes."""
        return self._position.stages.behind(self._position.fit)
