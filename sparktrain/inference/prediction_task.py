"""What Spark pickles for a prediction: short functions over frozen data."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from msgspec import Struct

from sparktrain.inference.feeds import Feed
from sparktrain.inference.model_file import ModelFile
from sparktrain.inference.model_signature import ModelSignature

SIGNATURE_SCHEMA = "signature binary"


class ModelUse(Struct, frozen=True):
    """A model, and how tasks use it."""

    model: ModelFile
    signature: ModelSignature
    batch_size: int
    nulls: bool
    """Whether a row with nulls gets a null; else it is an error."""
    subject: str
    """The data, for messages."""


class PredictionTask(Struct, frozen=True):
    """A prediction over the batches of a DataFrame."""

    use: ModelUse
    feeds: tuple[Feed, ...]
    kept: tuple[int, ...]
    """The columns of the input that stay, by position."""
    names: tuple[str, ...]
    """The names of all columns of the result."""
    outputs: tuple[int, ...] | None = None
    """The outputs that become columns of their own, by position; None: all in one column."""


def predict_batches(batches: Iterator[pa.RecordBatch], task: PredictionTask) -> Iterator[pa.RecordBatch]:
    """Predict all rows of a partition."""
    from sparktrain.inference.worker import predictions  # the driver pickles this module without TensorFlow's users

    yield from predictions(batches, task)


def signature_batches(batches: Iterator[pa.RecordBatch], model: ModelFile) -> Iterator[pa.RecordBatch]:
    """The signature of a model, from an executor: for a driver without TensorFlow."""
    from sparktrain.inference.signature_of_file import signature_in  # as above

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"signature": [signature_in(model).encoded()]})


def sql_function(use: ModelUse, kind: Any) -> Any:
    """The function of `SELECT name(column, ...)`, of this Spark type. Needs PySpark; starts nothing."""
    from pyspark.sql import functions as typed

    functions: Any = typed
    if hasattr(functions, "arrow_udf"):
        return functions.arrow_udf(_over_arrays(use), kind)
    return functions.pandas_udf(over_series(use), kind)  # PySpark 4.0


def _over_arrays(use: ModelUse) -> Callable[..., Any]:
    def score(*arguments: pa.Array) -> pa.Array:
        from sparktrain.inference.worker import scored

        return scored(arguments, use)

    return score


def over_series(use: ModelUse) -> Callable[..., Any]:
    """The function for PySpark 4.0, which has no functions over Arrow arrays."""
    import pandas as pd

    def score(*arguments: pd.Series) -> pd.Series:
        from sparktrain.inference.worker import scored

        scores: pd.Series[Any] = scored([pa.Array.from_pandas(argument) for argument in arguments], use).to_pandas()
        return scores

    def score_all(*arguments: pd.Series) -> pd.DataFrame:
        return pd.DataFrame(list(score(*arguments)))

    return score if len(use.signature.outputs) == 1 else score_all
