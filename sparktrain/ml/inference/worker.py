"""The models of a Spark Python worker: each is loaded once, and used by all tasks that the worker runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparktrain.errors import DataError
from sparktrain.ml.inference.backend_setup import CPU, set_up
from sparktrain.ml.inference.feature_rows import complete_rows, feature_batch, tensors_of
from sparktrain.ml.inference.feeds import ColumnTable, Feed, feeds_of
from sparktrain.ml.inference.loaded_model import LoadedModel
from sparktrain.ml.inference.model_file import ModelFile
from sparktrain.ml.inference.model_folder import ModelFolder
from sparktrain.ml.inference.model_signature import output_type
from sparktrain.ml.inference.prediction_task import ModelUse, PredictionTask

WEIGHTS = "weights.bin"
MOST_MODELS = 3
"""On the CPU, so that functions of one SQL query do not replace each other's models; on a GPU it is one."""


@dataclass
class _Entry:
    """A model of this process."""

    key: tuple[str, str]
    model: LoadedModel
    folder: ModelFolder


_entries: list[_Entry] = []
loads = 0
"""How many models this process has loaded."""


def predictions(batches: Iterator[pa.RecordBatch], task: PredictionTask) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of the task and its outputs. Loads the model at the first batch with rows."""
    subject = f"{task.use.subject} (partition {_partition()})"
    for batch in batches:
        arrays = batch.columns
        features = feature_batch([batch.schema.field(place).name for place in range(len(arrays))], arrays, task.feeds)
        outputs = predicted(features, task.feeds, task.use, subject)
        chosen = outputs if task.outputs is None else [outputs[place] for place in task.outputs]
        if task.outputs is None:
            chosen = [one_column(outputs, task.use)]
        kept_arrays = [arrays[place] for place in task.kept_positions]
        yield pa.RecordBatch.from_arrays([*kept_arrays, *chosen], names=list(task.names))


def scored(arguments: Sequence[pa.Array], use: ModelUse) -> pa.Array:
    """The column of an SQL function for its arguments."""
    names = [f"argument {number}" for number in range(1, len(arguments) + 1)]
    table = ColumnTable(
        pa.schema(list(zip(names, (argument.type for argument in arguments), strict=True))), use.subject
    )
    feeds = feeds_of(use.signature, table, names)
    return one_column(predicted(feature_batch(names, arguments, feeds), feeds, use, use.subject), use)


def predicted(features: pa.RecordBatch, feeds: Sequence[Feed], use: ModelUse, subject: str) -> list[pa.Array]:
    """The outputs for all rows, as columns. Raises DataError for values that the model cannot take."""
    outputs = use.signature.outputs
    rows = complete_rows(features) if use.nulls else None
    inputs = features if rows is None or len(rows) == len(features) else features.take(rows)
    if not len(inputs):
        return [pa.nulls(len(features), output.arrow) for output in outputs]
    tensors = tensors_of(inputs, feeds, subject)
    model = _model(use.model)
    try:
        results = model.rows(tensors, use.signature, use.batch_size)
    except DataError as error:
        raise DataError(f"{subject}: {error}") from error
    for field, values in zip(outputs, results, strict=True):
        if len(values) != len(inputs):
            raise DataError(
                f"{subject}: output {field} of the model has {len(values)} rows for {len(inputs)}: a model must give "
                "one for each"
            )
    columns = [field.column(values) for field, values in zip(outputs, results, strict=True)]
    if rows is None or len(rows) == len(features):
        return columns
    places = np.full(len(features), -1)
    places[np.asarray(rows)] = np.arange(len(rows))
    indices = pa.array(places, mask=places < 0)
    return [column.take(indices) for column in columns]


def one_column(outputs: Sequence[pa.Array], use: ModelUse) -> pa.Array:
    """All outputs as one column: see `output_type`."""
    if len(outputs) == 1:
        return outputs[0]
    return pa.StructArray.from_arrays(list(outputs), fields=list(output_type(use.signature.outputs)))


def _model(file: ModelFile) -> LoadedModel:
    """The model. This process keeps those that it has used last."""
    cpus, gpu = task_resources()
    key = (file.sha256, gpu or "")
    for place, entry in enumerate(_entries):
        if entry.key == key:
            _entries.append(_entries.pop(place))
            return entry.model
    while len(_entries) >= (MOST_MODELS if gpu is None else 1):
        _entries.pop(0).folder.release()
    _entries.append(_loaded(file, key, cpus, gpu))
    return _entries[-1].model


def _loaded(file: ModelFile, key: tuple[str, str], cpus: int, gpu: str | None) -> _Entry:
    global loads
    folder = ModelFolder.hold(file.sha256)
    try:
        path = file.fetch(folder)
        device = set_up(cpus, gpu)
        model = LoadedModel(path, device, file.modules)
        if device == CPU:
            model.share_weights(folder.file(WEIGHTS, model.store_weights, LoadedModel.weights_intact))
    except BaseException:
        folder.release()
        raise
    loads += 1
    return _Entry(key, model, folder)


def task_resources() -> tuple[int, str | None]:
    """The cores of this task, and the address of its GPU if it has one."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return 1, None
    gpus = task.resources().get("gpu")
    return max(1, task.cpus()), gpus.addresses[0] if gpus is not None and gpus.addresses else None


def _partition() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return task.partitionId() if task is not None else 0
