"""A model in the memory of the process that predicts, as a traced function. Imports TensorFlow when it is used."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain import deferred_wrappers
from sparktrain.errors import DataError, EnvironmentMismatchError
from sparktrain.inference.mapped_weights import MappedWeights
from sparktrain.inference.model_signature import ModelSignature, TensorField

CPU = "/CPU:0"


class LoadedModel:
    """A model on one device. One thread uses it."""

    def __init__(self, path: Path, device: str = CPU, modules: Sequence[str] = ()) -> None:
        """Load the `.keras` file at `path`, after `modules`. Blocks for seconds. Raises DataError when Keras cannot."""
        import keras
        import tensorflow as tf

        for name in modules:
            _import(name)

        self._device = device
        try:
            with tf.device(device):
                self._model = keras.saving.load_model(path, compile=False)
        except Exception as error:  # Keras and the user's classes have no common base
            raise DataError(
                f"Keras {keras.__version__} cannot load the model: {_first_line(error)}; layers of your own must be "
                "registered with keras.saving.register_keras_serializable, in modules that modules=[...] names"
            ) from error
        self._function: Any = None
        self._weights: MappedWeights | None = None

    def signature(self) -> ModelSignature:
        """Inputs and outputs. Raises DataError for a model without fixed inputs."""
        import tensorflow as tf

        inputs = _inputs(self._model)
        with tf.device(self._device):
            outputs = self._traced(inputs).get_concrete_function().structured_outputs
        return ModelSignature(inputs, _outputs(self._model, outputs))

    def share_weights(self, path: Path) -> None:
        """Use the weights in the file at `path`, which all processes of the host map, in place of a copy of our own."""
        self._weights = MappedWeights(path)
        self._weights.give_to(self._model)

    @staticmethod
    def weights_intact(path: Path) -> bool:
        """Whether the file for `share_weights` is as it was written. Blocks on the disk."""
        return MappedWeights.is_intact(path)

    def store_weights(self, path: Path) -> None:
        """Write the file for `share_weights`. Blocks on the disk."""
        MappedWeights.write(self._model, path)

    def rows(self, tensors: Sequence[NDArray[Any]], signature: ModelSignature, batch_size: int) -> list[NDArray[Any]]:
        """The outputs for all rows, in slices of `batch_size`; the last one is padded to a power of two.

        Raises DataError for values that a layer refuses, such as an index beyond those of an embedding.
        """
        import tensorflow as tf

        if self._function is None:
            self._function = self._traced(signature.inputs)
        total = len(tensors[0])
        parts = []
        with tf.device(self._device):
            for start in range(0, total, batch_size):
                rows = min(batch_size, total - start)
                # Few shapes, so that the function is traced and compiled for few of them.
                filled = min(batch_size, 1 << (rows - 1).bit_length())
                slices = [_padded(tensor[start : start + rows], filled) for tensor in tensors]
                try:
                    outputs = self._function(*map(tf.convert_to_tensor, slices))
                except tf.errors.InvalidArgumentError as error:
                    raise DataError(
                        f"the model refuses a row: {_reason(error.message)}; correct it in Spark"
                    ) from error
                parts.append([output.numpy()[:rows] for output in outputs])
        return [np.concatenate(chunks) if len(parts) > 1 else chunks[0] for chunks in zip(*parts, strict=True)]

    def _traced(self, inputs: Sequence[TensorField]) -> Any:
        import keras
        import tensorflow as tf

        model = self._model
        structure = input_structure(self._model)
        specs = [tf.TensorSpec((None, *field.shape), field.dtype, name=f"input_{i}") for i, field in enumerate(inputs)]

        def call(*tensors: Any) -> Any:
            packed = tensors[0] if structure is None else keras.tree.pack_sequence_as(structure, list(tensors))
            return keras.tree.flatten(model(packed, training=False))

        # `model.predict`, called for each Arrow batch, takes about ten times the processor time of a traced function.
        return tf.function(call, input_signature=specs, reduce_retracing=True)


def _reason(message: str) -> str:
    """The line of TensorFlow's message that names what is wrong: the one before the name of the node."""
    lines = [line.strip() for line in message.split("[[{{node")[0].splitlines() if line.strip()]
    return lines[-1] if lines else message


def set_up(cpus: int, gpu: str | None) -> str:
    """Give TensorFlow so many threads, and the GPU at this address of Spark; the device for `LoadedModel`.

    Raises EnvironmentMismatchError when TensorFlow does not see the GPU.
    """
    deferred_wrappers.defer()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    try:
        # Spark's task has these cores: TensorFlow would take all of the host in each of its workers.
        tf.config.threading.set_intra_op_parallelism_threads(cpus)
        tf.config.threading.set_inter_op_parallelism_threads(cpus)
        if gpu is None:
            tf.config.set_visible_devices([], "GPU")
        for device in gpus if gpu is not None else ():
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError:
        pass  # another function of this worker has used TensorFlow before: it has chosen
    if gpu is None:
        return CPU
    # In a container that shows one GPU it has number 0, whatever its address on the host is.
    index = int(gpu) if gpu.isdecimal() and len(gpus) > 1 else 0
    if index >= len(gpus):
        raise EnvironmentMismatchError(
            f"Spark assigns GPU {gpu} to the task, and TensorFlow sees {len(gpus)} GPUs: install tensorflow[and-cuda] "
            "on the executors, or predict in a session without spark.task.resource.gpu.amount"
        )
    return f"/GPU:{index}"


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise DataError(
            f"module {name!r}, which modules= names, cannot be imported on host {os.uname().nodename} ({error}): "
            "install it there, or send it with spark.addArtifacts or --py-files"
        ) from error


def input_structure(model: Any) -> Any:
    """The structure of the inputs of a functional model; None for one tensor."""
    import keras

    structure = getattr(model, "input", None) if getattr(model, "inputs", None) else None
    return structure if structure is not None and keras.tree.is_nested(structure) else None


def _inputs(model: Any) -> tuple[TensorField, ...]:
    tensors = getattr(model, "inputs", None)
    if not tensors:
        raise DataError(
            f"the model ({type(model).__name__}) has no fixed inputs: wrap it in a functional one, "
            "keras.Model(x, model(x)) with x = keras.Input(...), and save that"
        )
    names = _keys(input_structure(model), len(tensors)) or [tensor.name for tensor in tensors]
    return tuple(
        TensorField(name, tuple(tensor.shape[1:]), str(tensor.dtype))
        for name, tensor in zip(names, tensors, strict=True)
    )


def _outputs(model: Any, tensors: Sequence[Any]) -> tuple[TensorField, ...]:
    structure = getattr(model, "output", None) if getattr(model, "outputs", None) else None
    names = _keys(structure, len(tensors)) or list(getattr(model, "output_names", ()) or ())
    if len(names) != len(tensors) or len(set(names)) != len(names):
        names = [f"output_{number}" for number in range(len(tensors))]
    fields = []
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.shape.rank in (None, 0):
            raise DataError(
                f"output {name!r} of the model has no row for each row of its input: it cannot predict rows"
            )
        if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.name in ("bool", "string")):
            raise DataError(
                f"output {name!r} of the model is of type {tensor.dtype.name}, which no column of Spark has"
            )
        fields.append(TensorField(name, tuple(tensor.shape[1:]), tensor.dtype.name))
    return tuple(fields)


def _keys(structure: Any, count: int) -> list[str] | None:
    """The keys of a flat dict of tensors, in the order in which Keras flattens it; None for any other structure."""
    import keras

    if not isinstance(structure, dict) or len(structure) != count:
        return None
    numbered = {name: name for name in structure}
    return [str(key) for key in keras.tree.flatten(numbered)]


def _padded(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """So many rows; those that are missing are copies of the first, which is valid for each layer."""
    if len(rows) == count:
        return rows
    return np.concatenate([rows, np.repeat(rows[:1], count - len(rows), axis=0)])


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
