"""A large variable gets its value in the memory that it has, and a step its memory before it starts."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparktrain.base.control_groups import Memory
from sparktrain.training.frameworks.tensorflow import variable_memory
from sparktrain.training.frameworks.tensorflow.variable_memory import assign, make_room

SHAPE = (5_000, 1_000)


def place(variable: Any) -> int:
    """Where the memory of a variable starts."""
    return int(np.asarray(variable.value.read_value()).ctypes.data)


def filled(value: float, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> Any:
    content = np.full(shape, value, dtype)
    content[-1] = 7
    return content


def test_a_large_variable_keeps_its_memory() -> None:
    variable = keras.Variable(filled(1))
    before = place(variable)
    assign(variable, filled(2))
    assert np.array_equal(variable.numpy(), filled(2))
    assert place(variable) == before


def test_a_step_reads_it_without_a_copy_afterwards() -> None:
    variable = keras.Variable(filled(1))
    assign(variable, filled(2))
    with_it = variable.value.read_value()
    assert np.asarray(with_it).ctypes.data == place(variable)


def test_a_tensor_that_was_read_before_keeps_its_value() -> None:
    variable = keras.Variable(filled(1))
    other = tf.Variable(variable.value.read_value())
    was_read = variable.value.read_value()
    assign(variable, filled(2))
    assert np.array_equal(was_read, filled(1))
    assert np.array_equal(other.read_value(), filled(1))
    assert np.array_equal(variable.numpy(), filled(2))


@pytest.mark.parametrize(
    "content",
    [filled(2, (5_000_000,)), filled(2, (2, 3)), filled(2, (1, 5_000_000)), filled(2, SHAPE, "float16"),
     filled(2, SHAPE, "int64"), np.float32(2)],
    ids=["short rows", "small", "one row", "half", "integers", "number"],
)  # fmt: skip
def test_other_variables_get_their_value_too(content: Any) -> None:
    variable = keras.Variable(np.zeros_like(content), dtype=str(content.dtype))
    assign(variable, content)
    assert np.array_equal(variable.numpy(), content)


def test_another_shape_is_refused() -> None:
    variable = keras.Variable(filled(1))
    with pytest.raises(ValueError, match="shape"):
        assign(variable, filled(2, (SHAPE[1], SHAPE[0])))
    assert np.array_equal(variable.numpy(), filled(1))


ROWS = 5_000
PAGE_BYTES = 4096


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def built(layer: Any) -> Any:
    model = keras.Sequential([keras.layers.Input((ROWS,)), layer])
    assert model.built
    return model


def test_a_step_needs_no_new_memory_beyond_what_a_thread_got_for_it() -> None:
    model = built(keras.layers.Dense(ROWS))
    room = make_room(model)
    assert room is not None
    room.join()
    before = resident()
    step = [tf.fill((ROWS, ROWS), 1.0) for _ in range(3)]
    assert resident() - before < ROWS * ROWS * 4 / 2, len(step)


def test_a_small_model_and_a_table_that_is_looked_up_need_no_room() -> None:
    assert make_room(built(keras.layers.Dense(2))) is None
    assert make_room(built(keras.layers.Embedding(ROWS, ROWS))) is None


def test_no_room_is_taken_where_memory_is_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_memory, "available_memory", lambda: Memory(2**40, 2**30))
    assert make_room(built(keras.layers.Dense(ROWS))) is None
