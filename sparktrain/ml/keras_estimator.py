"""`KerasEstimator`: trains a Keras model on a DataFrame, and those of several param maps as trials of one sweep."""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack

from pyspark.ml import Estimator
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BooleanType

from sparktrain.api import launch, run
from sparktrain.base.ids import TrialId
from sparktrain.errors import DataError, RunFailedError, SpecError
from sparktrain.ml.keras_model import KerasModel, check_columns, fitted
from sparktrain.ml.stage_files import StageReader, StageWriter, check_class
from sparktrain.ml.stage_params import EstimatorParams, KerasFitParams
from sparktrain.ml.training_function import TRAIN, VALIDATION, FitColumns
from sparktrain.ml.user_function import UserFunction, restored, stored, user_function
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

BUCKETS = 1_000_000
"""Rows are spread over so many buckets by their hash: a split is exact to a millionth."""
_OF_TRIALS = {
    "model_params": "modelParams",
    "batch_size": "batchSize",
    "epochs": "epochs",
    "shuffle": "shuffle",
    "optimizer": "optimizer",
    "learning_rate": "learningRate",
    "loss": "loss",
    "metrics": "metrics",
}
"""Params that trials of one sweep may differ in, by the parameters of the training function."""
_OF_RUNS = (
    "featuresCol", "inputCols", "stackInputs", "labelCol", "weightCol", "validationIndicatorCol", "validationSplit",
    "seed", "workers", "backend", "dir", "namePrefix", "runOptions",
)  # fmt: skip
"""Params that all trials of a sweep share: param maps that differ in them make another sweep."""


class KerasEstimator(Estimator[KerasModel], KerasFitParams, MLWritable, MLReadable["KerasEstimator"]):
    """Trains a Keras model on a Spark DataFrame, in a gang of `workers` processes on executors.

    Pass one of two functions. `model` builds a Keras model, compiled or not, from `modelParams`; the estimator fits it,
    distributes its optimizer over the gang, and exports it. `train_fn(ctx, ...)` trains as any function of
    `sparktrain.run`: it reads `ctx.dataset("train")` and, with validation data, `ctx.dataset("validation")`, and calls
    `ctx.export(model)`. It gets `modelParams` by name, and of `batch_size`, `epochs`, `shuffle`, `feature_columns`,
    `label_columns`, `weight_column`, `stack`, `optimizer`, `learning_rate`, `loss` and `metrics` those that it has
    parameters for.

    `fit` writes the columns of the features, the label and the weights once into the directory of a new run, trains,
    and blocks until the model is there. With a list of param maps, the models train as trials of one sweep, side by
    side: so do the param maps of each fold of a `CrossValidator`. It raises what `sparktrain.run` raises, and DataError
    for columns that the DataFrame lacks before any job starts.

    Raises FunctionError and SpecError for functions and params that cannot work, TypeError for a value of a wrong type.
    """

    __module__ = "sparktrain.ml"  # saved stages have this name, whichever module defines the class
    STAGE = "KerasEstimator"

    def __init__(
        self,
        model: Callable[..., Any] | None = None,
        *,
        train_fn: Callable[..., Any] | None = None,
        **params: Unpack[EstimatorParams],
    ) -> None:
        super().__init__()
        self._function: UserFunction = user_function(model, train_fn)
        self.setParams(**params)

    def fitMultiple(
        self, dataset: DataFrame, paramMaps: Sequence[Mapping[Any, Any]]
    ) -> Iterator[tuple[int, KerasModel]]:
        """Train one model for each param map, as trials of one sweep; blocks until all have ended.

        Param maps that differ in columns, data, workers, seed or options of the run make sweeps of their own, one after
        another. Returns a thread-safe iterator over the index of a param map and its model; its `next` raises
        RunFailedError in place of a model that could not be trained.
        """
        stages = [self.copy(dict(param_map)) for param_map in paramMaps]
        for stage in stages:
            stage._check()
        groups: dict[str, list[int]] = {}
        for index, stage in enumerate(stages):
            groups.setdefault(repr([stage.value(name) for name in _OF_RUNS]), []).append(index)
        models: dict[int, KerasModel | Exception] = {}
        for indices in groups.values():
            outcomes = _swept([stages[position] for position in indices], dataset)
            models.update(zip(indices, outcomes, strict=True))
        return TrainedModels([models[index] for index in range(len(stages))])

    def copy(self, extra: Mapping[Any, Any] | None = None) -> Self:
        """A copy with the values of a param map."""
        estimator: Self = super().copy(dict(extra or {}))
        return estimator

    def write(self) -> StageWriter:
        """The writer of `save`, for params and function. Raises SpecError, FunctionError for what cannot be saved."""
        check_class(self)
        extra, files = stored(self._function)
        return StageWriter(self, {"stage": self.STAGE, **extra}, files)

    @classmethod
    def read(cls) -> StageReader:
        """The reader of `load`, which runs the code of the saved function: load only what you trust."""
        return StageReader(cls)

    @classmethod
    def _restored(cls, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> Self:
        saved_function = restored(extra, files)
        return cls(saved_function.function) if saved_function.builds else cls(train_fn=saved_function.function)

    def _fit(self, dataset: DataFrame) -> KerasModel:
        self._check()
        data = datasets(self, dataset)
        result = run(
            self._function.for_run(columns_of(self)),
            self._trial(),
            spark=dataset.sparkSession,
            workers=self.getOrDefault("workers"),
            data=data,
            metric=self._metric,
            **self._options(),
        )
        return fitted(self, result.model_path, result.metrics, result.directory)

    def _check(self) -> None:
        self._function.check(self.getOrDefault("modelParams"), columns_of(self))

    @property
    def _metric(self) -> str | None:
        """What runs compare models by, where the estimator itself returns the metrics."""
        if not self._function.builds:
            return None
        return "val_loss" if columns_of(self).validated else "loss"

    def _trial(self) -> dict[str, Any]:
        """The parameters of the training function."""
        return {name: self.value(param) for name, param in _OF_TRIALS.items()}

    def _options(self) -> dict[str, Any]:
        """The options that `run` and `launch` share. Each call has another name: no run is taken for another one."""
        return {
            "name": f"{self.getOrDefault('namePrefix')}-{uuid.uuid4().hex[:12]}",
            "dir": self.getOrDefault("dir"),
            "backend": self.getOrDefault("backend"),
            "seed": self.getOrDefault("seed"),
            **self.getOrDefault("runOptions"),
        }


def _swept(stages: Sequence[KerasEstimator], dataset: DataFrame) -> list[KerasModel | Exception]:
    """Train the models of stages that differ in the params of trials alone, as one sweep; errors of trials in place of
    their models. Blocks."""
    first = stages[0]
    trials = [estimator._trial() for estimator in stages]
    result = launch(
        dataset.sparkSession,
        first._function.for_run(columns_of(first)),
        {name: [trial_params[name] for trial_params in trials] for name in _OF_TRIALS},
        workers_per_trial=first.getOrDefault("workers"),
        data=datasets(first, dataset),
        metric=first._metric,
        **first._options(),
    )
    trials_by_id = {trial_result.id: trial_result for trial_result in result.trials}
    models: list[KerasModel | Exception] = []
    for number, stage in enumerate(stages):
        trial = trials_by_id.get(TrialId(number))
        if trial is None or trial.status is not TrialStatus.SUCCEEDED:
            models.append(failed(trial, result.directory))
        else:
            models.append(fitted(stage, trial.model_path, trial.metrics, result.directory))
    return models


class TrainedModels(Iterator[tuple[int, KerasModel]]):
    """Models by index, or the error in place of one. Any thread may call `next`, which does not block."""

    def __init__(self, models: Sequence[KerasModel | Exception]) -> None:
        self._models = models
        self._next = 0
        # CrossValidator calls `next` from the threads of a pool.
        self._lock = threading.Lock()

    def __next__(self) -> tuple[int, KerasModel]:
        with self._lock:
            index = self._next
            self._next += 1
        if index >= len(self._models):
            raise StopIteration
        outcome = self._models[index]
        if isinstance(outcome, Exception):
            raise outcome
        return index, outcome


def failed(trial: TrialResult | None, directory: str | None) -> RunFailedError:
    """The error in place of the model of a trial that did not succeed, or of one that never ran."""
    if trial is None or trial.error is None:
        error = RunFailedError(
            f"the model of a param map was not trained, because the sweep at {directory} ended before: see its other "
            "trials"
        )
    else:
        error = RunFailedError(
            f"training the model of a param map failed (trial {trial.id} of {directory}): {trial.error}"
        )
        error.traceback = trial.error.traceback
        error.log_tail = trial.error.log_tail
        error.rank = trial.error.rank
        error.host = trial.error.host
        error.log = trial.log
    error.directory = directory
    return error


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
