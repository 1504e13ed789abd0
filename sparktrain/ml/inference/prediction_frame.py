"""The DataFrame around a prediction: which of its columns reach Python, and which the result has."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparktrain.config.param_values import described, did_you_mean
from sparktrain.datasets.spark_names import map_in_arrow, repeated_name
from sparktrain.errors import DataError, SpecError
from sparktrain.ml.inference.feeds import ColumnChoice, ColumnTable, feeds_of
from sparktrain.ml.inference.model_signature import ModelSignature, output_type
from sparktrain.ml.inference.prediction_task import ModelUse, PredictionTask
from sparktrain.ml.inference.spark_functions import predict_batches

Keep = bool | Sequence[str]
Output = str | Mapping[str, str]


def predicted_frame(frame: Any, use: ModelUse, columns: ColumnChoice, output: Output, keep: Keep) -> Any:
    """The lazy DataFrame with predictions. Starts no job. Raises DataError and SpecError: see `sparktrain.predict`."""
    from pyspark.sql.types import StructField, StructType

    fields = frame.schema.fields
    names = [field.name for field in fields]
    schema, refused = _arrow_schema(fields)
    feeds = feeds_of(use.signature, ColumnTable(schema, use.subject), columns)
    kept_positions = _positions_to_keep(names, keep, use.subject)
    output_fields = _output_fields(use.signature, output)
    if name := repeated_name([name for name, _ in output_fields], [names[position] for position in kept_positions]):
        raise DataError(
            f"{use.subject} has a column {name!r} already: pass another output=, or leave that column out with "
            "keep=[...]"
        )
    leaves = [column.name for feed in feeds for column in feed.columns]
    needed = [
        place
        for place, name in enumerate(names)
        if place in kept_positions or any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves)
    ]
    for place in needed:
        if names[place] in refused:
            raise DataError(
                f"column {names[place]!r} of {use.subject} is of type {fields[place].dataType.simpleString()}, which "
                "Spark cannot give to Python: cast it, or leave it out with keep=[...]"
            )
    task = PredictionTask(
        use=use,
        feeds=feeds,
        kept_positions=tuple(needed.index(position) for position in kept_positions),
        names=(*(names[position] for position in kept_positions), *(name for name, _ in output_fields)),
        outputs=None if isinstance(output, str) else tuple(_index(use.signature, name) for name in output),
    )
    result_type = StructType(
        [
            *(fields[position] for position in kept_positions),
            *(StructField(name, _spark(kind)) for name, kind in output_fields),
        ]
    )
    return map_in_arrow(_selected(frame, names, needed, use.subject), _over(task), result_type)


def spark_type(signature: ModelSignature) -> Any:
    """Spark's type of one column for all outputs."""
    return _spark(output_type(signature.outputs))


def _over(task: PredictionTask) -> Any:
    from functools import partial

    return partial(predict_batches, task=task)


def _arrow_schema(fields: Sequence[Any]) -> tuple[pa.Schema, set[str]]:
    """The columns as Python gets them, and the names of those that it cannot get."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    arrow_fields: list[pa.Field] = []
    refused = set()
    for field in fields:
        try:
            arrow_fields += list(to_arrow_schema(StructType([field])))
        except PySparkException:
            refused.add(field.name)
    return pa.schema(arrow_fields), refused


def _positions_to_keep(names: Sequence[str], keep: object, subject: str) -> list[int]:
    """The places of the columns that stay."""
    if isinstance(keep, bool):
        return list(range(len(names))) if keep else []
    if isinstance(keep, str) or not isinstance(keep, Sequence) or not all(isinstance(entry, str) for entry in keep):
        raise SpecError(f"keep is {described(keep)}; pass True, False, or a list of names of columns")
    for name in keep:
        if names.count(name) != 1:
            matches = f"{names.count(name)} columns" if name in names else "no column"
            raise DataError(f"{subject} has {matches} {name!r}, which keep names{did_you_mean(name, names)}")
    return [names.index(name) for name in keep]


def _output_fields(signature: ModelSignature, output: object) -> list[tuple[str, pa.DataType]]:
    """Names and types of the new columns."""
    if isinstance(output, str):
        return [(_column_name(output, "output"), output_type(signature.outputs))]
    if not isinstance(output, Mapping) or not output:
        raise SpecError(f"output is {described(output)}; pass the name of a column, or a dict of names by output")
    return [
        (_column_name(name, f"output[{key!r}]"), signature.outputs[_index(signature, key)].arrow)
        for key, name in output.items()
    ]


def _index(signature: ModelSignature, name: object) -> int:
    names = [output.name for output in signature.outputs]
    if name not in names:
        raise SpecError(
            f"output names {name!r}, which the model does not give{did_you_mean(name, names)}; its outputs are "
            f"{', '.join(map(str, signature.outputs))}"
        )
    return names.index(str(name))


def _column_name(name: object, subject: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise SpecError(f"{subject} is {described(name)}; pass the name of a new column")
    return name


def _selected(frame: Any, names: Sequence[str], needed: Sequence[int], subject: str) -> Any:
    """The frame with the needed columns alone, so that the others are not even read."""
    if len(needed) == len(names):
        return frame
    chosen = [names[place] for place in needed]
    for name in chosen:
        if names.count(name) > 1:
            raise DataError(f"{subject} has {names.count(name)} columns {name!r}: rename all but one")
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in chosen))


def _spark(kind: pa.DataType) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind)
