"""A loaded Keras model as a function of arrays, on the backend that Keras runs on. Imports it when it is used."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from numpy.typing import NDArray

from sparktrain.base.formatting import first_line
from sparktrain.errors import DataError
from sparktrain.ml.inference.model_signature import TensorField

OutputSpec = tuple[tuple[int, ...] | None, str]
"""Of one output: the shape with its rows, None where it is unknown or has none; and the name of its type."""


class ModelFunction(ABC):
    """A model without its training, in slices of rows. One thread uses it."""

    def __init__(self, model: Any, structure: Any, inputs: Sequence[TensorField]) -> None:
        """`structure` is that of the model's inputs; None for one tensor."""
        self.model = model
        self.structure = structure
        self.inputs = inputs

    @abstractmethod
    def outputs(self) -> list[OutputSpec]:
        """What the model returns, as Keras flattens it."""

    @abstractmethod
    def __call__(self, slices: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for these rows. Raises DataError for values that a layer refuses."""

    def packed(self, tensors: Sequence[Any]) -> Any:
        """`tensors` as the argument of the model."""
        import keras

        return tensors[0] if self.structure is None else keras.tree.pack_sequence_as(self.structure, list(tensors))


class TensorFlowFunction(ModelFunction):
    """A traced function on one device."""

    def __init__(self, model: Any, structure: Any, inputs: Sequence[TensorField], device: str) -> None:
        super().__init__(model, structure, inputs)
        self._device = device
        self._function = self._traced()

    def outputs(self) -> list[OutputSpec]:
        """See base class."""
        with placed(self._device):
            tensors = self._function.get_concrete_function().structured_outputs
        return [
            (tuple(tensor.shape) if tensor.shape.rank is not None else None, tensor.dtype.name) for tensor in tensors
        ]

    def __call__(self, slices: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """See base class."""
        import tensorflow as tf

        with placed(self._device):
            try:
                outputs = self._function(*map(tf.convert_to_tensor, slices))
            except tf.errors.InvalidArgumentError as error:
                raise DataError(f"the model refuses a row: {_reason(error.message)}; correct it in Spark") from error
            return [output.numpy() for output in outputs]

    def _traced(self) -> Any:
        import keras
        import tensorflow as tf

        specs = [
            tf.TensorSpec((None, *field.shape), field.dtype, name=f"input_{number}")
            for number, field in enumerate(self.inputs)
        ]

        def call(*tensors: Any) -> Any:
            return keras.tree.flatten(self.model(self.packed(tensors), training=False))

        # `model.predict`, called for each Arrow batch, takes about ten times the processor time of a traced function.
        return tf.function(call, input_signature=specs, reduce_retracing=True)


class EagerFunction(ModelFunction):
    """Keras's own function for one batch, which JAX compiles once for each number of rows."""

    def outputs(self) -> list[OutputSpec]:
        """See base class."""
        return [(tuple(tensor.shape), str(tensor.dtype)) for tensor in self.model.outputs]

    def __call__(self, slices: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """See base class."""
        import keras

        try:
            outputs = self.model.predict_on_batch(self.packed(slices))
        except (IndexError, ValueError) as error:
            raise DataError(f"the model refuses a row: {first_line(error)}; correct it in Spark") from error
        return keras.tree.flatten(outputs)  # type: ignore[no-any-return]


def placed(device: str) -> AbstractContextManager[object]:
    """The context in which TensorFlow uses `device`; nothing where `device` is empty, as for other backends."""
    if not device:
        return nullcontext()
    import tensorflow as tf

    return tf.device(device)  # type: ignore[no-any-return]


def _reason(message: str) -> str:
    """The line of TensorFlow's message that names what is wrong: the one before the name of the node."""
    lines = [line.strip() for line in message.split("[[{{node")[0].splitlines() if line.strip()]
    return lines[-1] if lines else message
