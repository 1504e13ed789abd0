"""Properties of spaces: their combinations and their order."""

import doctest
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.config.param_files.load import load_params
from sparktrain.errors import SpecError
from sparktrain.search import space as module
from sparktrain.search.sampled_space import as_space, from_file
from sparktrain.search.space import Grid, ListedSpace, cases, grid, when, zipped
from tests.support.examples import examples

NAMES = some.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).map(lambda name: f"p_{name}")
VALUES = (
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
)
PLAIN = (
    VALUES
    | some.text(max_size=5)
    | some.lists(VALUES, max_size=3)
    | some.dictionaries(some.text(max_size=3), VALUES, max_size=2)
)
AXES = some.dictionaries(NAMES, some.lists(PLAIN, min_size=1, max_size=4), min_size=1, max_size=4)
some_times = examples(40)


@some_times
@given(AXES)
def test_grid_is_the_product_with_the_last_name_fastest(axes: dict[str, list[Any]]) -> None:
    space = grid(axes)
    expected = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    assert list(space) == expected
    assert [list(params) for params in space] == [list(axes)] * len(expected)
    assert space.size == math.prod(map(len, axes.values()))
    assert space.names == tuple(axes)


@some_times
@given(AXES)
def test_iterating_again_gives_the_same(axes: dict[str, list[Any]]) -> None:
    space = grid(axes)
    assert list(space) == list(space) == list(grid(axes))


@some_times
@given(AXES, some.integers(0, 2**32))
def test_where_keeps_the_order(axes: dict[str, list[Any]], salt: int) -> None:
    def keeps(params: dict[str, Any]) -> bool:
        return hash((salt, repr(params))) % 3 > 0

    every = list(grid(axes))
    kept = [params for params in every if keeps(params)]
    if kept:
        assert list(grid(axes, where=keeps)) == kept
        assert grid(axes, where=keeps).size == len(every)
    else:
        with pytest.raises(SpecError, match="refuses all"):
            grid(axes, where=keeps)


@some_times
@given(some.integers(1, 5), some.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_zipped_is_position_by_position(length: int, names: list[str]) -> None:
    columns = {name: [f"{name}{index}" for index in range(length)] for name in names}
    space = zipped(columns)
    assert list(space) == [{name: columns[name][index] for name in names} for index in range(length)]
    assert space.size == length
    assert space.names == tuple(names)


@pytest.mark.long
@some_times
@given(some.lists(some.dictionaries(NAMES, PLAIN, max_size=3), min_size=1, max_size=6))
def test_cases_are_as_listed(rows: list[dict[str, Any]]) -> None:
    space = cases(rows)
    assert list(space) == rows
    assert space.size == len(rows)
    assert set(space.names) == {name for row in rows for name in row}


@some_times
@given(AXES, some.integers(1, 3))
def test_a_condition_splits_the_grid(axes: dict[str, list[Any]], count: int) -> None:
    first = next(iter(axes))
    chosen = axes[first][0]
    extra = list(range(count))
    space = grid(axes, extra=when(lambda p: repr(p[first]) == repr(chosen), extra))
    expected = [
        params | added
        for params in grid(axes)
        for added in ([{"extra": value} for value in extra] if repr(params[first]) == repr(chosen) else [{}])
    ]
    assert list(space) == expected
    assert len(expected) <= space.size


def test_a_condition_sees_only_the_names_before_it() -> None:
    seen = []
    list(grid(a=[1, 2], b=when(lambda p: seen.append(dict(p)) or True, [3]), c=[4]))
    assert {tuple(params) for params in seen} == {("a",)}


def test_conditions_chain() -> None:
    space = grid(
        layers=[1, 2],
        second=when(lambda p: p["layers"] > 1, [32, 64]),
        skip=when(lambda p: p.get("second") == 64, [True], otherwise=False),
    )
    assert list(space) == [
        {"layers": 1, "skip": False},
        {"layers": 2, "second": 32, "skip": False},
        {"layers": 2, "second": 64, "skip": True},
    ]


def test_a_predicate_cannot_change_what_is_tried() -> None:
    def spoils(params: dict[str, Any]) -> bool:
        params.clear()
        return True

    assert list(grid(a=[1], b=when(spoils, [2]), where=spoils)) == [{"a": 1, "b": 2}]


def test_a_large_grid_is_lazy() -> None:
    space = grid({f"p{index}": range(1000) for index in range(10)})
    assert space.size == 10**30
    assert list(itertools.islice(space, 2))[1]["p9"] == 1


def test_a_condition_that_refuses_too_many_in_a_row_is_an_error() -> None:
    space = Grid((("a", tuple(range(1000))),), where=lambda p: p["a"] > 500, max_refused=100)
    with pytest.raises(SpecError, match="refused 100 combinations in a row"):
        next(iter(space))


def test_lists_of_numpy_and_pandas_become_python() -> None:
    space = grid(
        a=np.array([1, 2]), b=pd.Series([0.5]), c=range(1), d=[np.float32(0.5)], e=[(1, np.int8(2))], f=[np.True_]
    )
    params = list(space)[1]
    assert params == {"a": 2, "b": 0.5, "c": 0, "d": 0.5, "e": [1, 2], "f": True}
    assert [type(value) for value in params.values()] == [int, float, int, float, list, bool]
    assert type(params["e"][1]) is int


def test_subclasses_of_plain_types_become_plain() -> None:
    value = next(iter(grid(a=[np.str_("x")], b=[np.float64(1)])))
    assert [type(item) for item in value.values()] == [str, float]


@pytest.mark.parametrize(
    ("given_space", "expected"),
    [
        ({"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        ([{"a": 1}, {}], [{"a": 1}, {}]),
        (zipped(a=[1], b=[2]), [{"a": 1, "b": 2}]),
    ],
)
def test_as_space(given_space: Any, expected: list[dict[str, Any]]) -> None:
    assert list(as_space(given_space)) == expected


def test_a_parameter_can_be_called_where() -> None:
    assert list(grid({"where": [1]}, where=lambda p: p["where"] == 1)) == [{"where": 1}]


@pytest.mark.parametrize(("kind", "size"), [("grid", 4), ("zip", 2)])
def test_from_file(kind: str, size: int, tmp_path: Any) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(f"{kind}:\n  a: [1, 2]\n  b: [x, y]\n")
    assert from_file(load_params(path)).size == size


def test_from_file_of_cases(tmp_path: Any) -> None:
    path = tmp_path / "space.csv"
    path.write_text("a,b\n1,x\n2,\n")
    assert list(from_file(load_params(path))) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize("space", [grid(a=[1, 2], b=[3]), zipped(a=[1, 2]), cases([{"a": 1}])], ids=str)
def test_spaces_are_shown_in_words(space: ListedSpace) -> None:
    assert str(space) in ("grid of 2 a x 1 b", "zip of a", "list of 1 case")


def test_the_examples_of_the_docstrings() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 4
