"""What may be saved beside a model."""

import json
from typing import Any

import numpy as np
import pytest

from sparktrain.training.checkpoint.extras import pack, unpack


def there_and_back(**values: Any) -> dict[str, Any]:
    packed, arrays = pack(values)
    return unpack(json.loads(json.dumps(packed)), arrays)


def test_json_comes_back_as_it_was() -> None:
    values = {"a": 1, "b": [True, None, 1.5, "ä"], "c": {"d": {"e": []}, "f": {}}}
    assert there_and_back(**values) == values


def test_tuples_become_lists() -> None:
    assert there_and_back(a=(1, (2,))) == {"a": [1, [2]]}


def test_arrays_come_back_from_anywhere() -> None:
    found = there_and_back(w=np.ones((2, 3)), layers=[{"bias": np.arange(2)}, np.float32(0.5)], position=3)
    assert found["position"] == 3
    assert found["w"].tolist() == [[1.0] * 3] * 2
    assert found["layers"][0]["bias"].tolist() == [0, 1]
    assert (found["layers"][1].dtype, found["layers"][1].shape, float(found["layers"][1])) == ("float32", (), 0.5)


def test_arrays_are_copied() -> None:
    array = np.zeros(3)
    _, [(_, copy)] = pack({"a": array})
    array += 1
    assert copy.tolist() == [0, 0, 0]


def test_read_only_arrays_are_not_copied() -> None:
    constant = np.arange(4)
    constant.flags.writeable = False
    seen = np.arange(4)
    view = seen[:]
    view.flags.writeable = False
    _, arrays = pack({"constant": constant, "view": view})
    seen += 1

    assert arrays[0][1] is constant
    assert arrays[1][1].tolist() == [0, 1, 2, 3]


def test_any_order_of_memory_comes_back() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3))[:, ::-1]
    _, [(_, copy)] = pack({"a": array})
    assert copy.flags.c_contiguous
    assert np.array_equal(copy, array)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1: 2}, "x has the key 1 of type int: keys must be strings"),
        ([{"a": object()}], "x[0]['a'] is of type object, and cannot be saved"),
        ({1, 2}, "x is of type set"),
        (np.array(["a"]), "x is an array of <U1"),
        ([np.array([None])], "x[0] is an array of object"),
        (b"", "x is of type bytes"),
    ],
)
def test_what_cannot_be_saved(value: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        pack({"x": value})
    assert str(caught.value).startswith(f"ctx.checkpoint.save(x=...): {words}")
