"""Values as people read them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sparktrain.base import formatting


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9143, "0.9143"), (0.88, "0.8800"), (0, "0.0000"), (1e-5, "1.000e-05"), (12.3456, "12.35"), (-3.5, "-3.5000"),
     (98765.43, "98765.4"), (3e7, "3.000e+07"), (math.nan, "nan"), (-math.inf, "-inf")],
)  # fmt: skip
def test_number(value: float, shown: str) -> None:
    assert formatting.number(value) == shown


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ([98.0, 170.0, 5000.0, 28800.0], ["98", "170", "5000", "28800"]),
        ([0.0, -3.0, 12345678.0], ["0", "-3", "12345678"]),
        ([98.0, 170.5], ["98.00", "170.50"]),
        ([98.0, math.nan, math.inf], ["98", "nan", "inf"]),
        ([1.0, 1e15], ["1.0000", "1.000e+15"]),
        ([math.nan], ["nan"]),
        ([7], ["7"]),
        ([], []),
    ],
)
def test_a_column_of_whole_numbers_has_no_fractions(column: list[float], shown: list[str]) -> None:
    write = formatting.number_format(column)
    assert [write(value) for value in column] == shown


def test_a_large_whole_number_has_no_fraction_by_itself() -> None:
    assert [formatting.number(value) for value in (28800.0, 28800.5, 998.0)] == ["28800", "28800.5", "998.00"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.9, "0:59"), (751, "12:31"), (97200, "27:00:00"), (-1, "0:00")]
)
def test_clock(seconds: float, shown: str) -> None:
    assert formatting.clock(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1:00"), (3600, "1:00:00")],
)
def test_duration(seconds: float, shown: str) -> None:
    assert formatting.duration(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.1, "0.1"), (1e-4, "0.0001"), (0.30000000000000004, "0.3"), (64, "64"), (True, "True"), (None, "None"),
     ("adam", "adam"), ([64, 0.1], "[64, 0.1]"), ("a\nb", "a\\nb")],
)  # fmt: skip
def test_value(value: Any, shown: str) -> None:
    assert formatting.value(value) == shown


def test_params_are_shortened_from_names_to_the_end() -> None:
    of = {"learning_rate": 0.1, "augmentation_policy": "autoaugment", "units": 64}
    assert formatting.params(of) == "learning_rate=0.1 augmentation_policy=autoaugment units=64"
    assert formatting.params(of, 56) == "learning_rate=0.1 augmentation_po…=autoaugment units=64"
    assert formatting.params(of, 44) == "learn…=0.1 augme…=autoaugment units=64"
    assert formatting.params(of, 30) == "learn…=0.1 augme…=autoaugment…"
    assert formatting.params({}, 10) == ""


@given(st.dictionaries(st.text(min_size=1), st.text() | st.floats() | st.integers(), max_size=6), st.integers(1, 100))
def test_params_never_exceed_their_width(of: dict[str, Any], width: int) -> None:
    assert cell_len(formatting.params(of, width)) <= width


@given(st.text())
def test_plain_text_has_nothing_that_a_terminal_obeys(of: str) -> None:
    assert formatting.plain(of).isprintable()


def test_plain_text_keeps_what_can_be_read() -> None:
    assert formatting.plain("größe λ 模型 🙂") == "größe λ 模型 🙂"
    assert formatting.plain("\x1b[2J\u202e") == "\\x1b[2J\\u202e"
