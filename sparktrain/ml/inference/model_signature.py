"""What a model takes and gives, without Keras: the driver checks a call against it, and tasks trace by it."""

import math
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from sparktrain.base.decoding import from_json

_WIDER = {
    "float16": "float32",
    "bfloat16": "float32",
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
}
"""Types of tensors that Spark has no columns of, and the narrowest that it has."""
_ARROW = {"bool": pa.bool_(), "string": pa.string()}


class TensorField(Struct, frozen=True):
    """One input or output of a model."""

    name: str
    shape: tuple[int | None, ...]
    """Of one row: without the batch."""
    dtype: str
    """TensorFlow's name for the type."""

    @property
    def scalar(self) -> bool:
        """Whether one row is one value: a column of numbers or strings."""
        return self.shape in ((), (1,))

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column that an output becomes: a value, or nested lists of values."""
        dtype = _WIDER.get(self.dtype, self.dtype)
        kind = _ARROW.get(dtype) or pa.from_numpy_dtype(np.dtype(dtype))
        for _ in () if self.scalar else self.shape:
            kind = pa.list_(kind)
        return kind

    def column(self, values: NDArray[Any]) -> pa.Array:
        """The rows of an output as a column. `values` has the shape (rows, *shape)."""
        dtype = _WIDER.get(self.dtype)
        flat = values.reshape(-1) if dtype is None else values.astype(dtype).reshape(-1)
        array = pa.array(flat, pa.binary()).cast(pa.string()) if self.dtype == "string" else pa.array(flat)
        return array if self.scalar else nested_lists(array, values.shape)

    def __str__(self) -> str:
        return f"{self.name!r} ({self.dtype} of shape ({', '.join(['rows', *map(_dimension, self.shape)])}))"


class ModelSignature(Struct, frozen=True):
    """The inputs and outputs of a model, in its own order."""

    inputs: tuple[TensorField, ...]
    outputs: tuple[TensorField, ...]

    @classmethod
    def decoded(cls, content: bytes) -> "ModelSignature":
        """The signature in what `encoded` gives."""
        return from_json(content, cls)

    def encoded(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)


def nested_lists(flat: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    """Values that have this shape in row-major order, as rows of lists."""
    array = flat
    for axis in range(len(shape) - 1, 0, -1):
        rows = math.prod(shape[:axis])
        array = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * shape[axis]), array)
    return array


def output_type(outputs: tuple[TensorField, ...]) -> pa.DataType:
    """The type of one column for all outputs: that of the only one, or a struct with a field for each."""
    if len(outputs) == 1:
        return outputs[0].arrow
    return pa.struct([pa.field(output.name, output.arrow) for output in outputs])


def _dimension(size: int | None) -> str:
    return "any" if size is None else str(size)
