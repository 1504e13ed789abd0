"""Predictions with a SavedModel over Arrow batches: what Spark pickles, and the model of a worker."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from sparktrain.datasets.spark_names import repeated_name
from sparktrain.errors import DataError
from sparktrain.ml.inference.feature_rows import feature_batch, tensors_of
from sparktrain.ml.inference.feeds import Feed
from sparktrain.ml.inference.model_folder import ModelFolder
from sparktrain.ml.inference.model_signature import TensorField, nested_lists
from sparktrain.ml.inference.saved_model_files import SavedModelFiles

_WIDE = {"f": pa.float64(), "i": pa.int64(), "u": pa.int64(), "b": pa.bool_(), "S": pa.binary(), "O": pa.binary()}
"""The types of columns by the kinds of NumPy's types: those that Spark infers from Python's numbers."""


class SavedModelTask(Struct, frozen=True, kw_only=True):
    """A prediction over the batches of a DataFrame."""

    files: SavedModelFiles
    tags: tuple[str, ...]
    key: str
    feeds: tuple[Feed, ...]
    outputs: tuple[TensorField, ...]
    names: tuple[str, ...]
    """The columns that the outputs become."""
    kept_positions: tuple[int, ...]
    """The columns of the input that stay, by position."""
    batch_size: int
    subject: str
    """The data, for messages."""


class _Loaded:
    """The model of this process: one stays."""

    key: tuple[str, str, tuple[str, ...]] | None = None
    folder: ModelFolder | None = None
    model: Any = None
    device = ""


def column_type(field: TensorField) -> pa.DataType:
    """The type of the column that an output becomes: a number for one value a row, else nested lists."""
    kind = _WIDE[_kind(field.dtype)]
    for _ in field.shape:
        kind = pa.list_(kind)
    return kind


def output_column(values: NDArray[Any], field: TensorField) -> pa.Array:
    """The rows of an output as a column. `values` has the shape (rows, *shape)."""
    flat = values.reshape(-1)
    array = pa.array(flat.astype(np.float64) if field.dtype == "bfloat16" else flat).cast(_WIDE[_kind(field.dtype)])
    return nested_lists(array, values.shape)


def predict_saved(batches: Iterator[pa.RecordBatch], task: SavedModelTask) -> Iterator[pa.RecordBatch]:
    """The batches with the kept columns and the outputs. Loads the model at the first batch with rows.

    Raises DataError for values that the model cannot take.
    """
    for batch in batches:
        arrays = batch.columns
        names = [batch.schema.field(place).name for place in range(len(arrays))]
        features = feature_batch(names, arrays, task.feeds)
        parts = [
            _predicted(features.slice(start, task.batch_size), task)
            for start in range(0, len(features), task.batch_size)
        ]
        predictions = [
            pa.concat_arrays([part[place] for part in parts]) if parts else pa.array([], column_type(field))
            for place, field in enumerate(task.outputs)
        ]
        kept_arrays = [arrays[place] for place in task.kept_positions]
        yield pa.RecordBatch.from_arrays(
            [*kept_arrays, *predictions], names=[*(names[place] for place in task.kept_positions), *task.names]
        )


def _predicted(features: pa.RecordBatch, task: SavedModelTask) -> list[pa.Array]:
    tensors = tensors_of(features, task.feeds, task.subject)  # a refused row costs no import of TensorFlow
    function = _function(task)
    import tensorflow as tf

    with tf.device(_Loaded.device):
        arguments = {feed.input.name: tf.constant(tensor) for feed, tensor in zip(task.feeds, tensors, strict=True)}
        try:
            results: Mapping[str, Any] = function(**arguments)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise DataError(f"{task.subject}: the model {task.files.url} refuses the rows: {reason}") from error
    return [_checked(results[field.name].numpy(), field, len(features), task) for field in task.outputs]


def _checked(values: NDArray[Any], field: TensorField, rows: int, task: SavedModelTask) -> pa.Array:
    if values.shape[:1] != (rows,) or values.ndim != len(field.shape) + 1:
        raise DataError(
            f"{task.subject}: output {field} of the model {task.files.url} has the shape {values.shape} for {rows} "
            "rows: a model must give one row for each"
        )
    return output_column(values, field)


def _function(task: SavedModelTask) -> Any:
    """The signature of the model, which this process loads once."""
    from sparktrain.ml.inference.backend_setup import set_up_tensorflow
    from sparktrain.ml.inference.worker import task_resources

    cpus, gpu = task_resources()
    key = (task.files.sha256, gpu or "", task.tags)
    if _Loaded.key != key:
        if _Loaded.folder is not None:
            _Loaded.folder.release()
        _Loaded.key = None
        _Loaded.model = None
        _Loaded.folder = ModelFolder.hold(task.files.sha256)
        path = task.files.fetch(_Loaded.folder)
        _Loaded.device = set_up_tensorflow(cpus, gpu)
        import tensorflow as tf

        with tf.device(_Loaded.device):
            _Loaded.model = tf.saved_model.load(str(path), tags=list(task.tags))
        _Loaded.key = key
    return _Loaded.model.signatures[task.key]


def _kind(dtype: str) -> str:
    if dtype == "string":
        return "S"
    return "f" if dtype == "bfloat16" else str(np.dtype(dtype).kind)


def check_new_names(output_names: Sequence[str], kept_names: Sequence[str], subject: str) -> None:
    """Raise DataError for a new column that Spark takes for another one."""
    if name := repeated_name(output_names, kept_names):
        raise DataError(f"{subject} would have two columns {name!r}: give the output another name")
