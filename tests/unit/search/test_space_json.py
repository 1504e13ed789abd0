"""A space as JSON gives back the same trials in the same order."""

import json

import pytest

from sparktrain.errors import SpecError
from sparktrain.search.space import Space, cases, grid, when, zipped
from sparktrain.search.space_json import from_document, to_document

SPACES: dict[str, Space] = {
    "grid": grid(x=[1, 2.5, None], y=["a", True]),
    "a parameter called where": grid({"where": [1, 2]}),
    "zipped": zipped(x=[1, 2], y=[[3], {"a": 4}]),
    "cases": cases([{"x": 1}, {"y": 2}, {"x": 1}]),
    "conditions": grid(x=[1, 2, 3], y=when(lambda p: p["x"] > 1, [4, 5]), where=lambda p: p["x"] != 3),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_space_comes_back(name: str) -> None:
    space = SPACES[name]
    again = from_document(json.loads(json.dumps(to_document(space, None))))
    assert list(again) == list(space)


@pytest.mark.parametrize("name", SPACES)
def test_the_number_of_trials_changes_nothing(name: str) -> None:
    assert to_document(SPACES[name], 2) == to_document(SPACES[name], None)


def test_of_a_large_space_with_conditions_the_start_is_kept() -> None:
    space = grid(x=list(range(1000)), y=list(range(1000)), where=lambda p: p["x"] != p["y"])
    assert list(from_document(to_document(space, 3))) == [{"x": 0, "y": 1}, {"x": 0, "y": 2}, {"x": 0, "y": 3}]
    with pytest.raises(SpecError, match="resume it by the same call"):
        from_document(to_document(space, None))


def test_a_large_grid_is_kept_whole() -> None:
    space = grid(x=list(range(1000)), y=list(range(1000)))
    assert from_document(to_document(space, 3)).size == 1_000_000
