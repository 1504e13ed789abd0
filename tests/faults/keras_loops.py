"""The loops of `tests.support.loops` and `tests.support.resizing` for Keras on TensorFlow."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support import loops, resizing


class KerasLoop(loops.Loop):
    """A model with statistics, a metric and random numbers of its own.

    It trains by a tape ("tape", or "eager"), or by an optimizer that averages ("optimizer"). "late": by a tape, with a
    metric that the step updates last.
    """

    def __init__(self, ctx: Any, way: str) -> None:
        super().__init__()
        keras.utils.set_random_seed(7)
        self._way = way
        self._traces = 0
        layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
        model = self._model = keras.Sequential([keras.Input((8,)), *layers])
        model.accuracy = keras.metrics.SparseCategoricalAccuracy()
        model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9))
        model.optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if way == "optimizer":
            ctx.distribute(model.optimizer)
        model.set_weights(ctx.broadcast(model.get_weights()))
        self.parts = model, ctx.shard(loops.rows(), batch_size=loops.BATCH, shuffle=True)

        def train_step(x: Any, y: Any) -> Any:
            self._traces += 1
            tape = tf.GradientTape()
            with tape if way == "optimizer" else ctx.distribute_tape(tape) as recorded:
                outputs = model(x, training=True)
                loss = loss_of(y, outputs)
            if way != "late":
                model.accuracy.update_state(y, outputs)
            if way == "eager":
                self.called()
            gradients = recorded.gradient(loss, model.trainable_variables)
            if way == "eager":
                self.has_gradients()
            model.optimizer.apply(gradients, model.trainable_variables)
            if way == "late":
                model.accuracy.update_state(y, outputs)
            return loss

        self.train_step = train_step if way == "eager" else tf.function(train_step)

    def spoil(self) -> None:
        """See base class."""
        self._model.trainable_variables[1].assign_add(np.full(3, 1e-6, "float32"))

    def variables(self) -> dict[str, Any]:
        """See base class."""
        model = self._model
        variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        return {str(number): np.asarray(variable.value) for number, variable in enumerate(variables)}

    def facts(self) -> dict[str, Any]:
        """See base class."""
        return {} if self._way == "eager" else {"traces": self._traces}


class KerasResizing(resizing.ResizedLoop):
    """See `tests.support.resizing.resize`."""

    def __init__(self, ctx: Any, lag: Any) -> None:
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse")
        model.optimizer.build(model.trainable_variables)
        self.parts = (model,)

        def train_step(x: Any, y: Any) -> Any:
            tape = tf.GradientTape()
            with tape if ctx is None else ctx.distribute_tape(tape) as recorded:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = recorded.gradient(loss, model.trainable_variables)
            if lag:
                lag()
            model.optimizer.apply(gradients, model.trainable_variables)
            return loss

        self.train_step = train_step if lag else tf.function(train_step, reduce_retracing=True)

    def weights(self) -> list[Any]:
        """Those of the model."""
        return list(self.parts[0].get_weights())


def train(way: str, ctx: Any, **options: Any) -> None:
    """See `loops.train`."""
    loops.train(lambda: KerasLoop(ctx, way), ctx, **options)


def resize(ctx: Any, **options: Any) -> dict[str, float]:
    """See `resizing.resize`."""
    return resizing.resize(KerasResizing, ctx, **options)


def repeat(**options: Any) -> None:
    """See `resizing.repeat`."""
    resizing.repeat(KerasResizing, **options)
