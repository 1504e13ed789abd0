"""The DataFrame that `TFModel.transform` returns: columns checked against the model's signature before any job."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktrain.config.param_values import did_you_mean
from sparktrain.datasets.spark_names import map_in_arrow
from sparktrain.errors import SpecError
from sparktrain.ml.inference.feeds import ColumnTable, feeds_of
from sparktrain.ml.inference.model_file import SUFFIX
from sparktrain.ml.inference.saved_model_files import saved_model_at
from sparktrain.ml.inference.saved_model_signature import graphs_in, signature_of
from sparktrain.ml.inference.saved_model_task import SavedModelTask, check_new_names, column_type, predict_saved
from sparktrain.ml.prediction import predict

SUBJECT = "the DataFrame"

logger = logging.getLogger("sparktrain")


class ModelMapping(Struct, frozen=True, kw_only=True):
    """A model, and what feeds it and comes from it."""

    url: str
    inputs: dict[str, str]
    """Tensors by column."""
    outputs: dict[str, str]
    """New columns by tensor, in order."""
    batch_size: int
    tag_set: str | None = None
    key: str | None = None
    keep: bool = False


def transformed(frame: Any, mapping: ModelMapping) -> Any:
    """The lazy DataFrame with the outputs of the model. Blocks on the store. Raises as `TFModel.transform`."""
    if mapping.url.endswith(SUFFIX):
        return _by_keras(frame, mapping)
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    files, graph = saved_model_at(mapping.url)
    model = signature_of(graphs_in(graph, files.url), mapping.tag_set, mapping.key, files.url)
    inputs = _matched(
        {tensor: column for column, tensor in mapping.inputs.items()}, model.inputs, "input", model.subject
    )
    if missing := [name for name in model.inputs if name not in inputs]:
        raise SpecError(
            f"input_mapping has no column for the input {missing[0]!r} of {model.subject}: add one for each of "
            f"{', '.join(map(repr, model.inputs))}"
        )
    outputs = _matched(mapping.outputs, model.outputs, "output", model.subject)
    signature = model.model_signature(list(outputs))
    kept_names = frame.columns if mapping.keep else []
    check_new_names(list(outputs.values()), kept_names, SUBJECT)
    used = [column for column in frame.columns if mapping.keep or column in inputs.values()]
    selected = frame if mapping.keep else frame.select(*("`" + column.replace("`", "``") + "`" for column in used))
    feeds = feeds_of(signature, ColumnTable(to_arrow_schema(selected.schema), SUBJECT), inputs)
    task = SavedModelTask(
        files=files,
        tags=model.tags,
        key=model.key,
        feeds=feeds,
        outputs=signature.outputs,
        names=tuple(outputs.values()),
        kept_positions=tuple(range(len(kept_names))),
        batch_size=mapping.batch_size,
        subject=SUBJECT,
    )
    fields = [
        StructField(name, from_arrow_type(column_type(field)))
        for name, field in zip(task.names, signature.outputs, strict=True)
    ]
    return map_in_arrow(
        selected,
        functools.partial(predict_saved, task=task),
        StructType([*(selected.schema[column] for column in kept_names), *fields]),
    )


def _by_keras(frame: Any, mapping: ModelMapping) -> Any:
    """The same with a `.keras` file, as `sparktrain.predict`; the only input and output go by any name."""
    columns: Any = {tensor: column for column, tensor in mapping.inputs.items()}
    if len(columns) == 1:
        columns = next(iter(columns.values()))
    by = functools.partial(
        predict, frame, mapping.url, batch_size=mapping.batch_size, columns=columns, keep=mapping.keep
    )
    if len(mapping.outputs) == 1:
        name = next(iter(mapping.outputs.values()))
        predictions = by(output=name)
        if predictions.schema[name].dataType.typeName() != "struct":  # which a model with several outputs gives
            return predictions
    return by(output=mapping.outputs)


def _matched(columns: Mapping[str, str], tensors: Mapping[str, bytes], kind: str, subject: str) -> dict[str, str]:
    """The columns by the names that the model has: as asked, or the only one under another name.

    Raises SpecError for a name that the model lacks.
    """
    names = list(tensors)
    mapping = f"{kind}_mapping"
    unknown = [name for name in columns if name not in tensors]
    if len(columns) == len(tensors) == 1 and unknown:
        logger.warning(
            "%s names %r, and the only %s of %s is %r: that one is taken",
            mapping, unknown[0], kind, subject, names[0],
        )  # fmt: skip
        return {names[0]: next(iter(columns.values()))}
    if unknown:
        raise SpecError(
            f"{mapping} names {unknown[0]!r}, and the {kind}s of {subject} are {', '.join(map(repr, names))}"
            f"{did_you_mean(unknown[0], names)}"
        )
    return dict(columns)
