"""What Spark pickles for a prediction: short functions over frozen data.

They import what loads TensorFlow when they run: the driver pickles this module without it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from sparktrain.ml.inference.model_file import ModelFile
from sparktrain.ml.inference.prediction_task import ModelUse, PredictionTask

SIGNATURE_SCHEMA = "signature binary"


def predict_batches(batches: Iterator[pa.RecordBatch], task: PredictionTask) -> Iterator[pa.RecordBatch]:
    """Predict all rows of a partition."""
    from sparktrain.ml.inference.worker import predictions

    yield from predictions(batches, task)


def signature_batches(batches: Iterator[pa.RecordBatch], model: ModelFile) -> Iterator[pa.RecordBatch]:
    """The signature of a model, from an executor: for a driver without TensorFlow."""
    from sparktrain.ml.inference.signature_of_file import signature_in

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
        from sparktrain.ml.inference.worker import scored

        return scored(arguments, use)

    return score


def over_series(use: ModelUse) -> Callable[..., Any]:
    """The function for PySpark 4.0, which has no functions over Arrow arrays."""
    import pandas as pd

    def score(*arguments: pd.Series) -> pd.Series:
        from sparktrain.ml.inference.worker import scored

        scores: pd.Series[Any] = scored([pa.Array.from_pandas(argument) for argument in arguments], use).to_pandas()
        return scores

    def score_all(*arguments: pd.Series) -> pd.DataFrame:
        return pd.DataFrame(list(score(*arguments)))

    return score if len(use.signature.outputs) == 1 else score_all
