"""What a trial keeps of values that are no numbers."""

import json
from typing import Any

import numpy as np
import pytest

from sparktrain.training.extra_values import MAX_BYTES, bounded


def containing_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def growing() -> list[Any]:
    """2**64 items, in 64 lists."""
    value: list[Any] = [0]
    for _ in range(64):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        ("\udcff", "\\udcff"),
        ("x" * 10**6, "x" * 1997 + "..."),
        (10**30, "int"),
        (2**63, "int"),
        (-(2**63), -(2**63)),
        (float("nan"), None),
        (np.float32(0.5), 0.5),
        (np.float64("inf"), None),
        (np.longdouble(1), "longdouble"),
        (np.datetime64("2026-01-01"), "datetime64"),
        (np.int64(3), 3),
        (np.True_, True),
        (np.zeros(3), "ndarray"),
        ((1, [2, {"a": (3,)}]), [1, [2, {"a": [3]}]]),
        ({1: 2, None: 3, (4,): 5, "x": {6}}, {"1": 2, "None": 3, "tuple": 5, "x": "set"}),
        (list(range(2000)), list(range(2000))),
        (list(range(2001)), "list of 2,001"),
        ([[0] * 1000] * 3, "list of 3"),
        (dict.fromkeys(range(10_000)), "dict of 10,000"),
        (containing_itself(), "list of 1"),
        (growing(), "list of 2"),
        (b"bytes", "bytes"),
        (len, "builtin_function_or_method"),
    ],
    ids=lambda value: f"{value!r:.30}" if not isinstance(value, list) else f"{type(value).__name__} of {len(value)}",
)
def test_a_value(value: Any, kept: Any) -> None:
    assert bounded({"value": value}) == ({"value": kept}, 0)


def test_what_is_kept_can_be_sent_and_written() -> None:
    extra, left_out = bounded({"a": [1, {"b": None}], 5: "\ud800", "nan": [float("nan")]})

    assert left_out == 0
    assert json.loads(json.dumps(extra, allow_nan=False)) == extra


def test_all_together_are_bounded() -> None:
    extra, left_out = bounded(dict.fromkeys(range(99), "x" * 10**6))

    assert len(json.dumps(extra)) <= MAX_BYTES
    assert len(extra) + left_out == 99


def test_two_keys_with_one_text_are_two_values() -> None:
    assert bounded({"1": "a", 1: "b"}) == ({"1": "a", "1 (int)": "b"}, 0)
