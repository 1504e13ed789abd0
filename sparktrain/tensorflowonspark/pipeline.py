"""`TFEstimator` and `TFModel`: stages of Spark ML around a cluster that trains, and a SavedModel that predicts."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import TypeConverters
from pyspark.sql import DataFrame

from sparktrain.base.boundary import users_call
from sparktrain.cluster.dataframes.ml_params import stage_param
from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import DataError, SpecError
from sparktrain.tensorflowonspark.map_functions import check_map_function
from sparktrain.tensorflowonspark.paths import LOCAL, default_fs, path_for
from sparktrain.tensorflowonspark.pipeline_params import (
    SPARK,
    HasBatchSize,
    HasClusterSize,
    HasEpochs,
    HasExportDir,
    HasGraceSecs,
    HasInputMapping,
    HasInputMode,
    HasMasterNode,
    HasModelDir,
    HasNumPS,
    HasOutputMapping,
    HasProtocol,
    HasReaders,
    HasSignatureDefKey,
    HasSteps,
    HasTagSet,
    HasTensorboard,
    HasTFRecordDir,
    Namespace,
    TFParams,
    TFTypeConverters,
)
from sparktrain.tensorflowonspark.single_warnings import warn_once

_FOLDERS = ("model_dir", "export_dir", "tfrecord_dir")


class TFEstimator(
    Estimator["TFModel"], TFParams, HasInputMapping, HasClusterSize, HasNumPS, HasInputMode, HasMasterNode, HasProtocol,
    HasGraceSecs, HasTensorboard, HasModelDir, HasExportDir, HasTFRecordDir, HasBatchSize, HasEpochs, HasReaders,
    HasSteps,
):  # fmt: skip
    """Trains by `train_fn(args, ctx)` in the members of a cluster that gets the rows of a DataFrame.

    `args` has `tf_args` and the values of all params. Members take rows by `ctx.get_data_feed(input_mapping=
    args.input_mapping)`; the columns are those of `input_mapping`, sorted by name. `fit` blocks until the members have
    returned, and gives a `TFModel` with the same params: `train_fn` exports the model to `args.export_dir`, by
    `compat.export_saved_model`. Relative folders are beneath the driver's working directory.

    `options` are those of `TFCluster.run`, such as dir, name and hang_timeout. Raises FunctionError for a `train_fn`
    that does not take two arguments, SpecError for an `export_fn`, and `fit` what `TFCluster.run` and `train` raise.
    """

    def __init__(
        self, train_fn: Callable[..., Any], tf_args: Any, export_fn: Callable[..., Any] | None = None, **options: Any
    ) -> None:
        super().__init__()
        check_map_function(train_fn, "train_fn")
        if export_fn is not None:
            raise SpecError(
                "export_fn is called by no version of TensorFlow 2: export in train_fn, by "
                "compat.export_saved_model(model, args.export_dir, ctx.job_name == 'chief')"
            )
        self.train_fn = train_fn
        self.args = Namespace(tf_args)
        self._options = options
        self._setDefault(
            input_mapping={}, cluster_size=1, num_ps=0, driver_ps_nodes=False, input_mode=SPARK, master_node="chief",
            protocol="grpc", tensorboard=False, model_dir=None, export_dir=None, tfrecord_dir=None, batch_size=100,
            epochs=1, readers=1, steps=1000, grace_secs=30,
        )  # fmt: skip

    @users_call
    def _fit(self, dataset: DataFrame) -> "TFModel":
        from sparktrain.tensorflowonspark import TFCluster

        columns = _columns(dataset, self.getOrDefault("input_mapping"))
        if self.getOrDefault("protocol") != "grpc":
            warn_once(f"TFEstimator.setProtocol({self.getOrDefault('protocol')!r}) means nothing: TensorFlow has grpc")
        args = self._arguments(dataset)
        cluster = TFCluster.run(
            dataset.sparkSession, self.train_fn, args.argv or args, args.cluster_size, args.num_ps, args.tensorboard,
            TFCluster.InputMode.SPARK, master_node=args.master_node, driver_ps_nodes=args.driver_ps_nodes,
            **self._options,
        )  # fmt: skip
        try:
            cluster.train(dataset.select(*map(_quoted, columns)), args.epochs)
        except BaseException as error:
            with suppress(Exception):  # the members may have ended by the same error
                # No other code has this cluster: its members would wait for rows as long as the session lives.
                cluster.cancel(f"TFEstimator.fit() could not send its rows: {error}")
                cluster.shutdown()
            raise
        # The default of 30 s is the original's, and would end a member that still exports its model: only a value that
        # the user has set is a limit.
        cluster.shutdown(grace_secs=args.grace_secs if self.isSet("grace_secs") else 0)
        model: TFModel = self._copyValues(TFModel(self.args))
        for name in ("model_dir", "export_dir"):
            if self.isSet(name):
                model._set(**{name: getattr(args, name)})
        return model

    def _arguments(self, dataset: DataFrame) -> Namespace:
        """What `train_fn` gets, with absolute paths of folders: members work in folders of their own."""
        merged = self.merge_args_params()
        if default_fs(dataset.sparkSession) == LOCAL:
            for name in _FOLDERS:
                value = getattr(merged, name)
                if value is not None and "://" not in value:
                    setattr(merged, name, os.path.abspath(value))
        return merged


class TFModel(
    Model, TFParams, HasInputMapping, HasOutputMapping, HasBatchSize, HasModelDir, HasExportDir, HasSignatureDefKey,
    HasTagSet,
):  # fmt: skip
    """Predicts with the SavedModel in `export_dir`, or a `.keras` file there, in Spark's Python workers.

    `transform` is lazy. The result has the columns of `output_mapping` alone, sorted by tensor, and all others too with
    `keep_columns`. An output with one value a row is a column of numbers, any other one of lists; floats are doubles,
    integers bigints, strings binary. Outputs of a `.keras` file are as those of `sparktrain.predict`. A model with one
    input, or one output, has it under any name.

    `transform` raises SpecError for params that the model does not fit, DataError for columns, MissingFileError where
    there is no model, and OSError when the store fails; Spark raises its own error for values, with ours in it.
    """

    keep_columns = stage_param("whether the result has the columns of the DataFrame too", TypeConverters.toBoolean)

    def __init__(self, tf_args: Any) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={}, output_mapping={}, batch_size=100, model_dir=None, export_dir=None, tag_set=None,
            keep_columns=False,
        )  # fmt: skip

    @users_call
    def _transform(self, dataset: DataFrame) -> DataFrame:
        from sparktrain.tensorflowonspark.model_frame import ModelMapping, transformed

        mapping = self.getOrDefault("input_mapping")
        outputs = self.getOrDefault("output_mapping")
        _columns(dataset, mapping)
        if not outputs:
            raise SpecError("TFModel has no output_mapping: call setOutputMapping({'tensor': 'new column'})")
        if self.getOrDefault("export_dir") is None:
            raise SpecError(
                "TFModel has no export_dir: call setExportDir(folder of a SavedModel, or a .keras file); a checkpoint "
                "in model_dir has weights alone"
            )
        size = self.getOrDefault("batch_size")
        if size < 1:
            raise SpecError(f"batch_size ({size}) must be at least 1: call setBatchSize(n)")
        model_mapping = ModelMapping(
            url=_reachable(dataset, self.getOrDefault("export_dir")),
            inputs=dict(mapping),
            outputs=dict(sorted(outputs.items())),
            batch_size=size,
            tag_set=self.getOrDefault("tag_set"),
            key=self.getOrDefault("signature_def_key"),
            keep=self.getOrDefault("keep_columns"),
        )
        frame: DataFrame = transformed(dataset, model_mapping)
        return frame


def _reachable(dataset: DataFrame, path: str) -> str:
    """The path as `_arguments` gives it to the training function, or as a URL of the default file system."""
    if "://" in path:
        return path
    return os.path.abspath(path) if default_fs(dataset.sparkSession) == LOCAL else path_for(dataset.sparkSession, path)


def _columns(dataset: DataFrame, mapping: dict[str, str]) -> list[str]:
    """The columns of the mapping, sorted. Raises SpecError for none, DataError for those that the DataFrame lacks."""
    if not mapping:
        raise SpecError(
            "input_mapping is empty: call setInputMapping({'column': 'tensor'}) with columns of the DataFrame"
        )
    columns = dataset.columns
    if missing := [name for name in sorted(mapping) if name not in columns]:
        raise DataError(
            f"input_mapping names the column {missing[0]!r}, which the DataFrame lacks"
            f"{did_you_mean(missing[0], columns)}; its columns are {', '.join(map(repr, columns))}"
        )
    return sorted(mapping)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


__all__ = [
    "HasBatchSize", "HasClusterSize", "HasEpochs", "HasExportDir", "HasGraceSecs", "HasInputMapping", "HasInputMode",
    "HasMasterNode", "HasModelDir", "HasNumPS", "HasOutputMapping", "HasProtocol", "HasReaders", "HasSignatureDefKey",
    "HasSteps", "HasTFRecordDir", "HasTagSet", "HasTensorboard", "Namespace", "TFEstimator", "TFModel", "TFParams",
    "TFTypeConverters",
]  # fmt: skip
