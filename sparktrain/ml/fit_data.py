"""The datasets of an estimator: the columns that it trains on, and the rows that it validates with."""

from typing import Any

from pyspark.sql import functions
from pyspark.sql.types import BooleanType

from sparktrain.errors import DataError, SpecError
from sparktrain.ml.keras_model import check_columns
from sparktrain.ml.stage_params import KerasFitParams
from sparktrain.ml.training_function import TRAIN, VALIDATION, FitColumns

BUCKETS = 1_000_000
"""Rows are spread over so many buckets by their hash: a split is exact to a millionth."""


def columns_of(params: KerasFitParams) -> FitColumns:
    """The columns of a batch. Raises SpecError for params that exclude each other."""
    split = params.getOrDefault("validationSplit")
    indicator = params.value("validationIndicatorCol")
    if split and indicator is not None:
        raise SpecError(
            f"validationSplit ({split:g}) and validationIndicatorCol ({indicator!r}) both choose the validation data: "
            "set one"
        )
    if params.isSet("featuresCol") and params.isSet("inputCols"):
        raise SpecError("featuresCol and inputCols are both set: set one")
    label = params.getOrDefault("labelCol")
    weight = params.value("weightCol")
    features = params.feature_columns
    if twice := [column for column in (label, weight) if column in features]:
        raise SpecError(f"{twice[0]!r} is a column of the features too: leave it out of inputCols")
    return FitColumns(
        features=tuple(features),
        label=label,
        weight=weight,
        stack=params.stacked,
        validated=bool(split) or indicator is not None,
    )


def datasets(params: KerasFitParams, dataset: Any) -> dict[str, Any]:
    """The value of `data=`: DataFrames with the columns of the params. Starts no job. Raises DataError, SpecError."""
    columns = columns_of(params)
    indicator = params.value("validationIndicatorCol")
    columns_by_use = {"features": list(columns.features), "label": [columns.label]}
    columns_by_use |= {"weights": [columns.weight]} if columns.weight is not None else {}
    columns_by_use |= {"validation data": [indicator]} if indicator is not None else {}
    check_columns(dataset, columns_by_use)
    names = [*columns.features, columns.label, *([columns.weight] if columns.weight is not None else [])]
    chosen = [functions.col(_quoted(name)) for name in names]
    if not columns.validated:
        return {TRAIN: dataset.select(*chosen)}
    if indicator is not None:
        kind = dataset.schema[indicator].dataType
        if not isinstance(kind, BooleanType):
            raise DataError(
                f"validationIndicatorCol ({indicator!r}) has the type {kind.simpleString()}, boolean is expected: cast "
                "it, true for rows of the validation data"
            )
        # `filter` drops a row for which the condition is null: without this, it would be in neither part.
        held = functions.coalesce(functions.col(_quoted(indicator)), functions.lit(False))
    else:
        # By the values of a row: what a split by random numbers gives depends on the order of rows, which changes where
        # Spark computes a partition again.
        bucket = functions.pmod(
            functions.xxhash64(*chosen, functions.lit(params.getOrDefault("seed"))), functions.lit(BUCKETS)
        )
        held = bucket < functions.lit(round(params.getOrDefault("validationSplit") * BUCKETS))
    return {
        TRAIN: dataset.filter(~held).select(*chosen),
        VALIDATION: dataset.filter(held).select(*chosen),
    }


def _quoted(name: str) -> str:
    """The name for `col`, which reads dots as fields of structs."""
    return "`" + name.replace("`", "``") + "`"
