"""What a member runs for a `KerasEstimator`: it imports this module, which needs no PySpark and loads Keras late."""

from dataclasses import dataclass
from typing import Any

from sparktrain.errors import FunctionError

TRAIN = "train"
VALIDATION = "validation"
"""The names of the datasets."""


@dataclass(frozen=True, kw_only=True)
class FitColumns:
    """The columns of a batch, as `to_tf` takes them."""

    features: tuple[str, ...]
    label: str
    weight: str | None
    stack: bool
    validated: bool
    """Whether there is validation data."""

    def of_batch(self) -> dict[str, Any]:
        """Arguments of `to_tf`."""
        features = self.features[0] if len(self.features) == 1 else list(self.features)
        return {
            "feature_columns": features,
            "label_columns": self.label,
            "weight_column": self.weight,
            "stack": self.stack,
        }


SETTINGS = ("batch_size", "epochs", "shuffle", "optimizer", "learning_rate", "loss", "metrics")
"""The parameters of `fit_built` that differ between the trials of a sweep."""


def fit_built(
    ctx: Any,
    model: Any,
    columns: FitColumns,
    *,
    batch_size: int,
    epochs: int,
    shuffle: bool,
    optimizer: str | None,
    learning_rate: float | None,
    loss: str | None,
    metrics: list[str],
) -> dict[str, float]:
    """Fit a model that the user's function has built to the datasets of `ctx`, and export it.

    Returns the metrics of the last epoch. Runs in a member; raises FunctionError for what is no model or cannot be
    compiled as asked, and what Keras raises.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise FunctionError(f"the model function returned {type(model).__name__}, a keras.Model is expected")
    _compile(ctx, model, optimizer, learning_rate, loss, metrics)
    uneven = "pad" if ctx.size > 1 else "drop"  # one member has a smaller last batch: it drops nothing
    batches = {"batch_size": batch_size, "uneven": uneven, **columns.of_batch()}
    train = ctx.dataset(TRAIN).to_tf(shuffle=shuffle, **batches)
    validation = ctx.dataset(VALIDATION).to_tf(**batches) if columns.validated else None
    fitted = model.fit(train, epochs=epochs, validation_data=validation, callbacks=ctx.keras_callbacks(), verbose=2)
    ctx.export(model)
    return {name: float(values[-1]) for name, values in fitted.history.items() if values}


def _compile(
    ctx: Any, model: Any, optimizer: str | None, learning_rate: float | None, loss: str | None, metrics: list[str]
) -> None:
    """Compile the model unless its function has, and make its optimizer average over the gang."""
    import keras

    if model.compiled:
        settings = {"optimizer": optimizer, "learningRate": learning_rate, "loss": loss, "metrics": metrics}
        if ignored := [name for name, value in settings.items() if value]:
            raise FunctionError(
                f"the model function returned a compiled model, and the estimator has {' and '.join(ignored)}: leave "
                "them out, or return the model without compile()"
            )
        if ctx.size > 1:
            ctx.distribute(model.optimizer)
            model.jit_compile = False  # XLA compiles no collectives
        return
    if loss is None:
        raise FunctionError(
            "the model function returned a model that is not compiled: call model.compile(...) in it, or set loss= and "
            "optimizer= of the estimator"
        )
    keras_optimizer = keras.optimizers.get(optimizer or "adam")
    if learning_rate is not None:
        keras_optimizer.learning_rate = learning_rate
    alone = ctx.size == 1
    # rows that fill up the last step weigh nothing: plain metrics would count them
    model.compile(
        keras_optimizer if alone else ctx.distribute(keras_optimizer),
        loss,
        weighted_metrics=list(metrics) or None,
        jit_compile="auto" if alone else False,
    )
