"""The params of `pipeline.TFEstimator` and `pipeline.TFModel`, and the namespace that training functions get."""

import argparse
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.ml.param import TypeConverters

from sparktrain.cluster.dataframes.ml_params import StageParams, stage_param
from sparktrain.config.param_values import described
from sparktrain.errors import SpecError

TENSORFLOW = 0
SPARK = 1
"""The values of `TFCluster.InputMode`."""


class TFTypeConverters:
    """Converters of values of params."""

    @staticmethod
    def toDict(value: Any) -> dict[str, Any]:
        """The dict itself. Raises TypeError for anything else."""
        if type(value) is not dict:
            raise TypeError(f"Could not convert {value!r} to a dict; pass one, such as {{'column': 'tensor'}}")
        return value


class Namespace:
    """Arguments as attributes, from a dict, an `argparse.Namespace` or another Namespace; or a list as `argv`.

    Raises SpecError for anything else.
    """

    argv: list[str] | None = None

    def __init__(self, d: Any) -> None:
        if isinstance(d, list):
            self.argv = d
        elif isinstance(d, dict):
            vars(self).update(d)
        elif isinstance(d, argparse.Namespace | Namespace):
            vars(self).update(vars(d))
        else:
            raise SpecError(
                f"Unsupported Namespace args: {described(d)}; pass a dict, a list of arguments, an argparse.Namespace "
                "or a Namespace"
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the arguments

    def __iter__(self) -> Iterator[str]:
        return iter(self.argv or vars(self))

    def __contains__(self, name: object) -> bool:
        return name in (self.argv or vars(self))

    def __repr__(self) -> str:
        if self.argv:
            return str(self.argv)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in sorted(vars(self).items()))})"

    def __eq__(self, other: object) -> bool:
        mine: Any = self.argv or vars(self)
        if isinstance(other, Namespace):
            return bool(mine == (other.argv or vars(other)))
        return bool(mine == (vars(other) if isinstance(other, argparse.Namespace) else other))

    __hash__ = None  # type: ignore[assignment]  # it can be changed


class TFParams(StageParams):
    """Params beside a namespace of arguments."""

    args: Namespace

    def merge_args_params(self) -> Namespace:
        """A copy of the arguments with the values of all params. Raises KeyError for a param without a value."""
        merged = copy.copy(self.args)
        vars(merged).update((param.name, self.getOrDefault(param.name)) for param in self.params)
        return merged


class HasBatchSize(StageParams):
    """`batch_size`."""

    batch_size = stage_param("rows of a batch", TypeConverters.toInt)


class HasClusterSize(StageParams):
    """`cluster_size`."""

    cluster_size = stage_param("members of the cluster", TypeConverters.toInt)


class HasEpochs(StageParams):
    """`epochs`."""

    epochs = stage_param("how often the rows are sent", TypeConverters.toInt)


class HasGraceSecs(StageParams):
    """`grace_secs`."""

    grace_secs = stage_param(
        "how long members may take after their last row; where it is not set, as long as they need",
        TypeConverters.toInt,
    )


class HasInputMapping(StageParams):
    """`input_mapping`."""

    input_mapping = stage_param("tensors by columns of the DataFrame", TFTypeConverters.toDict)


class HasInputMode(StageParams):
    """`input_mode`."""

    input_mode = stage_param("where members get their rows: 1, from Spark", TypeConverters.toInt)

    def setInputMode(self, value: int) -> Any:
        """Set input_mode. Raises SpecError for InputMode.TENSORFLOW: `fit` sends the rows of its DataFrame."""
        if value == TENSORFLOW:
            raise SpecError(
                "InputMode.TENSORFLOW is deprecated: fit(df) sends the rows of df; where members read files, call "
                "TFCluster.run(...) in place of a TFEstimator"
            )
        return self._set(input_mode=value)


class HasMasterNode(StageParams):
    """`master_node`."""

    master_node = stage_param("job name of the first worker", TypeConverters.toString)


class HasModelDir(StageParams):
    """`model_dir`."""

    model_dir = stage_param("folder of checkpoints", TypeConverters.toString)


class HasNumPS(StageParams):
    """`num_ps` and `driver_ps_nodes`."""

    num_ps = stage_param("members that are parameter servers", TypeConverters.toInt)
    driver_ps_nodes = stage_param("refused: parameter servers in the driver", TypeConverters.toBoolean)


class HasOutputMapping(StageParams):
    """`output_mapping`."""

    output_mapping = stage_param("new columns by tensors", TFTypeConverters.toDict)


class HasProtocol(StageParams):
    """`protocol`."""

    protocol = stage_param("network protocol of TensorFlow: grpc", TypeConverters.toString)


class HasReaders(StageParams):
    """`readers`."""

    readers = stage_param("threads that read, for the training function", TypeConverters.toInt)


class HasSteps(StageParams):
    """`steps`."""

    steps = stage_param("most steps, for the training function", TypeConverters.toInt)


class HasTensorboard(StageParams):
    """`tensorboard`."""

    tensorboard = stage_param("whether TensorBoard is started", TypeConverters.toBoolean)


class HasTFRecordDir(StageParams):
    """`tfrecord_dir`."""

    tfrecord_dir = stage_param("folder of TFRecord files, for the training function", TypeConverters.toString)


class HasExportDir(StageParams):
    """`export_dir`."""

    export_dir = stage_param("folder of the SavedModel, or a .keras file", TypeConverters.toString)


class HasSignatureDefKey(StageParams):
    """`signature_def_key`."""

    signature_def_key = stage_param("signature of the SavedModel", TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(signature_def_key=None)


class HasTagSet(StageParams):
    """`tag_set`."""

    tag_set = stage_param("comma-separated tags of a graph of the SavedModel", TypeConverters.toString)
