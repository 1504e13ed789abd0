"""The params of `pipeline.TFEstimator` and `pipeline.TFModel`, and the namespace that training functions get."""

import argparse
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.ml.param import Param, Params, TypeConverters

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError

TENSORFLOW = 0
SPARK = 1
"""The values of `TFCluster.InputMode`."""
_SPELLED = {"ps": "PS", "tfrecord": "TFRecord"}
"""Words of a param that its setter spells in another way."""


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


class TFParams(Params):
    """Params beside a namespace of arguments."""

    args: Namespace

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the setters and getters

    def merge_args_params(self) -> Namespace:
        """A copy of the arguments with the values of all params. Raises KeyError for a param without a value."""
        merged = copy.copy(self.args)
        vars(merged).update((param.name, self.getOrDefault(param.name)) for param in self.params)
        return merged


def _param(name: str, doc: str, converter: Any) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)


def accessors(kind: type[Any]) -> type[Any]:
    """The class with the setter and the getter of each of its own params that it does not define."""
    for name, param in list(vars(kind).items()):
        if isinstance(param, Param):
            ending = "".join(_SPELLED.get(word, word.capitalize()) for word in name.split("_"))
            for accessor in (_setter(ending, param), _getter(ending, param)):
                if accessor.__name__ not in vars(kind):
                    setattr(kind, accessor.__name__, accessor)
    return kind


def _setter(ending: str, param: Any) -> Any:
    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{param.name: value})

    set_value.__name__ = f"set{ending}"
    set_value.__doc__ = f"Set {param.name}: {param.doc}. Raises TypeError for a value of another type."
    return set_value


def _getter(ending: str, param: Any) -> Any:
    def get_value(self: Any) -> Any:
        return self.getOrDefault(param.name)

    get_value.__name__ = f"get{ending}"
    get_value.__doc__ = f"The value of {param.name}: {param.doc}."
    return get_value


@accessors
class HasBatchSize(Params):
    """`batch_size`."""

    batch_size = _param("batch_size", "rows of a batch", TypeConverters.toInt)


@accessors
class HasClusterSize(Params):
    """`cluster_size`."""

    cluster_size = _param("cluster_size", "members of the cluster", TypeConverters.toInt)


@accessors
class HasEpochs(Params):
    """`epochs`."""

    epochs = _param("epochs", "how often the rows are sent", TypeConverters.toInt)


@accessors
class HasGraceSecs(Params):
    """`grace_secs`."""

    grace_secs = _param(
        "grace_secs", "how long members may take after their last row; where it is not set, as long as they need",
        TypeConverters.toInt,
    )  # fmt: skip


@accessors
class HasInputMapping(Params):
    """`input_mapping`."""

    input_mapping = _param("input_mapping", "tensors by columns of the DataFrame", TFTypeConverters.toDict)


@accessors
class HasInputMode(Params):
    """`input_mode`."""

    input_mode = _param("input_mode", "where members get their rows: 1, from Spark", TypeConverters.toInt)

    def setInputMode(self, value: int) -> Any:
        """Set input_mode. Raises SpecError for InputMode.TENSORFLOW: `fit` sends the rows of its DataFrame."""
        if value == TENSORFLOW:
            raise SpecError(
                "InputMode.TENSORFLOW is deprecated: fit(df) sends the rows of df; where members read files, call "
                "TFCluster.run(...) in place of a TFEstimator"
            )
        return self._set(input_mode=value)


@accessors
class HasMasterNode(Params):
    """`master_node`."""

    master_node = _param("master_node", "job name of the first worker", TypeConverters.toString)


@accessors
class HasModelDir(Params):
    """`model_dir`."""

    model_dir = _param("model_dir", "folder of checkpoints", TypeConverters.toString)


@accessors
class HasNumPS(Params):
    """`num_ps` and `driver_ps_nodes`."""

    num_ps = _param("num_ps", "members that are parameter servers", TypeConverters.toInt)
    driver_ps_nodes = _param("driver_ps_nodes", "refused: parameter servers in the driver", TypeConverters.toBoolean)


@accessors
class HasOutputMapping(Params):
    """`output_mapping`."""

    output_mapping = _param("output_mapping", "new columns by tensors", TFTypeConverters.toDict)


@accessors
class HasProtocol(Params):
    """`protocol`."""

    protocol = _param("protocol", "network protocol of TensorFlow: grpc", TypeConverters.toString)


@accessors
class HasReaders(Params):
    """`readers`."""

    readers = _param("readers", "threads that read, for the training function", TypeConverters.toInt)


@accessors
class HasSteps(Params):
    """`steps`."""

    steps = _param("steps", "most steps, for the training function", TypeConverters.toInt)


@accessors
class HasTensorboard(Params):
    """`tensorboard`."""

    tensorboard = _param("tensorboard", "whether TensorBoard is started", TypeConverters.toBoolean)


@accessors
class HasTFRecordDir(Params):
    """`tfrecord_dir`."""

    tfrecord_dir = _param(
        "tfrecord_dir", "folder of TFRecord files, for the training function", TypeConverters.toString
    )


@accessors
class HasExportDir(Params):
    """`export_dir`."""

    export_dir = _param("export_dir", "folder of the SavedModel, or a .keras file", TypeConverters.toString)


@accessors
class HasSignatureDefKey(Params):
    """`signature_def_key`."""

    signature_def_key = _param("signature_def_key", "signature of the SavedModel", TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(signature_def_key=None)


@accessors
class HasTagSet(Params):
    """`tag_set`."""

    tag_set = _param("tag_set", "comma-separated tags of a graph of the SavedModel", TypeConverters.toString)
