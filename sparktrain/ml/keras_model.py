"""`KerasModel`: a transformer that adds the predictions of a Keras model."""

import hashlib
import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self, Unpack

from pyspark.ml import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import ArrayType, NumericType

from sparktrain.base.boundary import users_call
from sparktrain.config.param_values import described, did_you_mean
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError, FunctionError, MissingFileError, SpecError
from sparktrain.ml.prediction import predict
from sparktrain.ml.stage_files import StageReader, StageWriter, check_class
from sparktrain.ml.stage_params import KerasModelParams, ModelParams
from sparktrain.store.base import Store
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

LOADED = ".models"
"""Folder below `dir` for the files of loaded models, by digest."""
SUFFIX = ".keras"


class KerasModel(Model, KerasModelParams, MLWritable, MLReadable["KerasModel"]):
    """A trained Keras model as a stage of a pipeline: what `KerasEstimator.fit` returns.

    `transform` is lazy and adds `predictionCol`: a double for a model of one number a row, an array or a struct for
    others. With `probabilityCol`, which is for classifiers, that column has a vector with the probability of each
    class, and `predictionCol` the number of the most likely class.

    Raises SpecError for an unknown param, and TypeError for a value of a wrong type.
    """

    __module__ = "sparktrain.ml"  # saved stages have this name, whichever module defines the class
    STAGE = "KerasModel"

    def __init__(self, model_path: str | os.PathLike[str] | None = None, **params: Unpack[ModelParams]) -> None:
        """`model_path`: a `.keras` file, a path or a URL that executors read too."""
        super().__init__()
        self._model_path = None if model_path is None else os.fspath(model_path)
        self._content: bytes | None = None
        self._metrics: dict[str, float] = {}
        self.setParams(**params)

    @property
    def model_path(self) -> str | None:
        """The `.keras` file in the directory of the run that trained it; None for a model that was loaded."""
        return self._model_path

    @property
    def training_metrics(self) -> dict[str, float]:
        """The metrics that training returned; of the last epoch, for a model function."""
        return dict(self._metrics)

    @users_call
    def load_model(self, **options: Any) -> Any:
        """The Keras model itself, in this process. `options` are those of `keras.saving.load_model`.

        Imports Keras, and `customModules`. Blocks on the store. Raises OSError when the store fails, ImportError, and
        what Keras raises.
        """
        content = self._bytes()
        for name in self.getOrDefault("customModules"):
            importlib.import_module(name)
        import keras

        with held("model") as folder:
            path = folder / f"model{SUFFIX}"
            path.write_bytes(content)
            return keras.saving.load_model(path, **options)

    def write(self) -> StageWriter:
        """The writer of `save`: Spark writes params and model. Blocks on the store. Raises SpecError, OSError."""
        check_class(self)
        return StageWriter(self, {"stage": self.STAGE, "metrics": self._metrics}, {"model": self._bytes()})

    @classmethod
    def read(cls) -> StageReader:
        """The reader of `load`."""
        return StageReader(cls)

    @classmethod
    def _restored(cls, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> Self:
        model = cls()
        model._content = files["model"]
        model._metrics = dict(extra["metrics"])
        return model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        prediction = self.getOrDefault("predictionCol")
        probability = self.value("probabilityCol")
        new_columns = [prediction] if probability is None else [prediction, probability]
        check_columns(dataset, {"features": self.feature_columns}, new_columns)
        features: Any = self.feature_columns
        if len(features) > 1 and not self.stacked:
            features = {name: name for name in features}
        raw = prediction if probability is None else f"{self.uid}_output"
        size = self.getOrDefault("predictBatchSize")
        modules = self.getOrDefault("customModules")
        frame: Any = predict(dataset, self._reachable(), output=raw, batch_size=size, columns=features, modules=modules)
        kind = frame.schema[raw].dataType
        if probability is None:
            column = functions.col(raw)
            return frame.withColumn(raw, column.cast("double") if isinstance(kind, NumericType) else column)  # type: ignore[no-any-return]
        return _classified(frame, raw, kind, prediction, probability)  # type: ignore[no-any-return]

    def _reachable(self) -> str:
        """The path of the model's file for executors. Blocks on the store; writes there once for a loaded model."""
        if self._content is None:
            return self._path()
        store = open_store(StoreAddress(self.getOrDefault("dir")))
        path = f"{LOADED}/{hashlib.sha256(self._content).hexdigest()}{SUFFIX}"
        if not store.exists(path):
            _publish(store, path, self._content)
        return store.where(path)

    def _bytes(self) -> bytes:
        if self._content is not None:
            return self._content
        above, _, name = self._path().rpartition("/")
        try:
            return open_store(StoreAddress(above or "/")).read(name)
        except FileNotFoundError:
            raise MissingFileError(
                f"the model {self._path()} is gone: save a KerasModel before its run directory is deleted, or fit again"
            ) from None

    def _path(self) -> str:
        if self._model_path is None:
            raise SpecError("this KerasModel has no model: pass model_path=, or use what KerasEstimator.fit returns")
        is_url = "://" in self._model_path
        return self._model_path if is_url else os.path.abspath(os.path.expanduser(self._model_path))


def _publish(store: Store, path: str, content: bytes) -> None:
    """Write the file, unless another process has done so meanwhile: its content follows from its name."""
    with suppress(FileExistsError):
        file = store.create(path)
        try:
            file.write(content)
            file.publish()
        finally:
            file.discard()


def _classified(frame: Any, raw: str, kind: Any, prediction: str, probability: str) -> Any:
    """The columns of a classifier, in place of the model's output."""
    from pyspark.ml.functions import array_to_vector

    output = functions.col(raw)
    if isinstance(kind, NumericType):
        of_one = output.cast("double")
        classes = functions.array(1 - of_one, of_one)
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        classes = output.cast("array<double>")
    else:
        raise DataError(
            f"probabilityCol is set, and the model gives {kind.simpleString()}, which is no probability of classes: "
            "leave probabilityCol out, and select from predictionCol"
        )
    best = functions.array_position(classes, functions.array_max(classes)) - 1
    classified = frame.withColumn(probability, array_to_vector(classes)).withColumn(prediction, best.cast("double"))
    return classified.drop(raw)


def check_columns(dataset: Any, columns_by_use: Mapping[str, list[str]], new_columns: list[str] | None = None) -> None:
    """Raise DataError for columns of the params that the DataFrame lacks, and for new ones that it has already.

    `columns_by_use` has names of columns by the use for which params name them. Blocks on a Connect server for the
    schema.
    """
    columns = dataset.columns
    problems = [
        f"no column {name!r} for the {use}{did_you_mean(name, columns)}"
        for use, names in columns_by_use.items()
        for name in names
        if name not in columns
    ]
    problems += [f"a column {name!r} already, which the stage makes" for name in new_columns or () if name in columns]
    if problems:
        listed = ", ".join(map(repr, columns))
        raise DataError(f"the DataFrame has {' and '.join(problems)}; its columns are {listed}: set the params to them")


def fitted(estimator: Any, model_path: str | None, metrics: Mapping[str, float], directory: str | None) -> KerasModel:
    """The model of a run, with the params and the uid of its estimator. Raises FunctionError without a model."""
    if model_path is None:
        raise FunctionError(
            f"the training function of {estimator.uid} exported no model (run {described(directory)}): call "
            "ctx.export(model) at its end"
        )
    model = KerasModel(model_path)
    model._metrics = dict(metrics)
    model._resetUid(estimator.uid)
    copied: KerasModel = estimator._copyValues(model)
    return copied
