"""Makes a Keras optimizer train by parameter servers: they get its gradients, or weights after some steps.

Imports TensorFlow and Keras.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.keras.distributed_apply import DistributedApply
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.optimizers.local_steps import Averager
from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import check_optimizer
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel

NAME = "sparktrain_servers"
"""The name of the operation in a graph."""


def distribute_to_servers(optimizer: Any, ps_model: PsModel) -> Any:
    """Make `optimizer` push its gradients in place of applying them; returns `optimizer` itself.

    It keeps its class and its variables, which do not change: the servers' optimizers have the state. Raises SpecError.
    """
    check_optimizer(optimizer, 1)
    optimizer.apply = ServerPush(optimizer, ps_model)
    return optimizer


class ServerPush(DistributedApply):
    """Sends gradients to the servers, and takes the variables from them."""

    belongs_outside_scale = False

    def __init__(self, optimizer: Any, ps_model: PsModel) -> None:
        self._optimizer = optimizer
        self._ps_model = ps_model

    @as_written
    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        optimizer = self._optimizer
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        _start(optimizer, self._ps_model, variables)
        dense = [_dense(gradient, weight) for gradient, weight in zip(grads, variables, strict=True)]
        rate = optimizer._learning_rate
        rate = tf.convert_to_tensor(rate.value) if hasattr(rate, "value") else tf.constant(0.0)
        values = tf.numpy_function(self._ps_model.step, [rate, *dense], [grad.dtype for grad in dense], name=NAME)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(tf.reshape(value, variable.shape))
        optimizer.iterations.assign_add(1)

    def around(self, outer: Any) -> "ServerPush":
        """See base class."""
        return ServerPush(outer, self._ps_model)


class ServerAverager(Averager):
    """By the servers: each member averages on its own, and waits for no other."""

    def __init__(self, optimizer: Any, ps_model: PsModel) -> None:
        self._optimizer = optimizer
        self._ps_model = ps_model

    def check(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Raises SpecError for an eager first step."""
        _start(self._optimizer, self._ps_model, variables)

    def average(self, optimizer: Any) -> None:
        """See base class."""
        variables = self._ps_model.variables
        values = [tf.convert_to_tensor(weight.value) for weight in variables]
        averages = tf.numpy_function(self._ps_model.exchange, values, [tensor.dtype for tensor in values], name=NAME)
        for variable, value in zip(variables, averages, strict=True):
            variable.assign(tf.reshape(value, variable.shape))


def _start(optimizer: Any, ps_model: PsModel, variables: Sequence[Any]) -> None:
    """In a loop of the user's own: `fit` starts by a callback. A trace comes before the first step is computed."""
    if ps_model.has_started:
        return
    if tf.executing_eagerly():
        raise SpecError(
            f"the optimizer {optimizer.name!r} applies gradients that were computed before this member had the "
            "variables of the parameter servers: compute steps in a tf.function, or train by fit() with "
            "callbacks=ctx.keras_callbacks()"
        )
    with tf.init_scope():
        ps_model.start(optimizer, variables)


def _dense(gradient: Any, variable: Any) -> tf.Tensor:
    if gradient is None:
        return tf.zeros(variable.shape, variable.dtype)
    # Of an embedding too, with the rows that no batch has: a server applies the gradient of a whole piece.
    return tf.cast(tf.convert_to_tensor(gradient), variable.dtype)
