"""A model in the memory of the process that predicts. Imports Keras and its backend when it is used."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.base.formatting import first_line
from sparktrain.errors import DataError
from sparktrain.ml.inference.backend_setup import CPU
from sparktrain.ml.inference.mapped_weights import MappedWeights
from sparktrain.ml.inference.model_functions import EagerFunction, ModelFunction, OutputSpec, TensorFlowFunction, placed
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField

_COLUMNS = ("float", "bfloat", "int", "uint", "bool", "string")
"""The first letters of the types that columns of Spark have."""


class LoadedModel:
    """A model on one device. One thread uses it."""

    def __init__(self, path: Path, device: str = CPU, modules: Sequence[str] = ()) -> None:
        """Load the `.keras` file at `path`, after `modules`, on the device that `set_up` has returned.

        Blocks for seconds. Raises DataError when Keras cannot.
        """
        import keras

        for name in modules:
            _import(name)

        self._device = device
        try:
            with placed(device):
                self._model = keras.saving.load_model(path, compile=False)
        except Exception as error:  # Keras and the user's classes have no common base
            raise DataError(
                f"Keras {keras.__version__} cannot load the model: {first_line(error)}; layers of your own must be "
                "registered with keras.saving.register_keras_serializable, in modules that modules=[...] names"
            ) from error
        self._callable: ModelFunction | None = None
        self._weights: MappedWeights | None = None

    def signature(self) -> ModelSignature:
        """Inputs and outputs. Raises DataError for a model without fixed inputs."""
        inputs = _inputs(self._model)
        return ModelSignature(inputs, _outputs(self._model, self._function(inputs).outputs()))

    def share_weights(self, path: Path) -> None:
        """Use the weights in the file at `path`, which all processes of the host map, in place of a copy of our own.

        With TensorFlow alone: variables of other backends copy what they are given.
        """
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
        function = self._function(signature.inputs)
        total = len(tensors[0])
        parts = []
        for start in range(0, total, batch_size):
            rows = min(batch_size, total - start)
            # Few shapes, so that the function is traced and compiled for few of them.
            filled = min(batch_size, 1 << (rows - 1).bit_length())
            slices = [_padded(tensor[start : start + rows], filled) for tensor in tensors]
            parts.append([output[:rows] for output in function(slices)])
        return [np.concatenate(chunks) if len(parts) > 1 else chunks[0] for chunks in zip(*parts, strict=True)]

    def _function(self, inputs: Sequence[TensorField]) -> ModelFunction:
        if self._callable is None:
            structure = input_structure(self._model)
            if self._device:
                self._callable = TensorFlowFunction(self._model, structure, inputs, self._device)
            else:
                self._callable = EagerFunction(self._model, structure, inputs)
        return self._callable


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


def _outputs(model: Any, specs: Sequence[OutputSpec]) -> tuple[TensorField, ...]:
    structure = getattr(model, "output", None) if getattr(model, "outputs", None) else None
    names = _keys(structure, len(specs)) or list(getattr(model, "output_names", ()) or ())
    if len(names) != len(specs) or len(set(names)) != len(names):
        names = [f"output_{number}" for number in range(len(specs))]
    fields = []
    for name, (shape, kind) in zip(names, specs, strict=True):
        if not shape:
            raise DataError(
                f"output {name!r} of the model has no row for each row of its input: it cannot predict rows"
            )
        if not kind.startswith(_COLUMNS):
            raise DataError(f"output {name!r} of the model is of type {kind}, which no column of Spark has")
        fields.append(TensorField(name, tuple(shape[1:]), kind))
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
