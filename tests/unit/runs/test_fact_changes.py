"""What has changed between two runs is one line for each parameter and option."""

from typing import Any

import pytest

import sparktrain as st
from sparktrain.config.stoppers import encoded, rule_text, rules_of
from sparktrain.runs.fact_changes import changed_facts, changed_space
from sparktrain.search.sampled_space import as_space
from sparktrain.search.space_json import to_document

SAMPLED = {
    "lr": st.loguniform(0.0001, 0.1),
    "units": st.lograndint(8, 128),
    "layers": st.randint(1, 3),
    "dropout": st.uniform(0.0, 0.5),
    "activation": st.choice(["relu", "gelu", "tanh"]),
}

LONG = st.grid(x=list(range(100)))


def stored(space: Any) -> dict[str, Any]:
    return to_document(as_space(space), None)


def test_a_sampled_space_beside_a_grid() -> None:
    """The case of a search that was narrowed to a grid, which had 22 lines of JSON."""
    grid = {"lr": [0.01, 0.1], "units": [64]}
    assert changed_space(stored(SAMPLED), stored(grid)) == [
        "lr: loguniform(0.0001, 0.1) -> [0.01, 0.1]",
        "units: lograndint(8, 128) -> [64]",
        "- layers: randint(1, 3)",
        "- dropout: uniform(0, 0.5)",
        '- activation: choice(["relu", "gelu", "tanh"])',
    ]
    assert changed_space(stored(grid), stored({**grid, "momentum": [0.9]})) == ["+ momentum: [0.9]"]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (st.grid(x=[1, 2], y=[3, 4]), st.zipped({"x": [1, 2], "y": [3, 4]}), ["combined as: grid -> zip"]),
        (st.grid(x=[1, 2]), st.grid(x=[1, 2.0]), ["x: [1, 2] -> [1, 2.0]"]),
        (st.grid(x=[True]), st.grid(x=["true"]), ['x: [true] -> ["true"]']),
        (
            {"optimizer": {"name": "adam", "lr": st.loguniform(1e-4, 1e-1)}, "units": st.randint(1, 9)},
            {"optimizer": {"name": "sgd", "lr": st.loguniform(1e-4, 1e-2)}, "units": st.randint(1, 9)},
            ['optimizer.name: "adam" -> "sgd"', "optimizer.lr: loguniform(0.0001, 0.1) -> loguniform(0.0001, 0.01)"],
        ),
        (
            LONG,
            st.grid(x=list(range(1, 101))),
            ["x: 100 values -> 100 values: - 0; + 100"],
        ),
        (LONG, st.grid(x=list(range(99, -1, -1))), ["x: 100 values -> 100 values: in another order"]),
        (st.cases([{"x": 1}]), st.cases([{"x": 2}]), None),
        (st.cases([{"x": 1}]), st.grid(x=[1, 2]), None),
    ],
)  # fmt: skip
def test_spaces_of_each_kind(old: Any, new: Any, lines: list[str] | None) -> None:
    assert changed_space(stored(old), stored(new)) == lines


def test_a_as_space_a_newer_version_has_no_lines() -> None:
    assert changed_space({"kind": "sampled", "values": {"x": {"beta": [1, 2, 3]}}}, stored({"x": [1]})) is None


def test_facts_have_a_line_each_by_their_path() -> None:
    old = {"seed": 3, "gang": {"workers": 2, "ps": 0}, "timeout_s": None, "metric": "loss", "env": ["A"]}
    new = {"seed": 3, "gang": {"workers": 4, "ps": 0}, "timeout_s": 60.0, "mode": "min", "env": ["A", "B"]}
    assert changed_facts(old, new) == [
        "gang.workers: 2 -> 4",
        "- metric: loss",
        'env: ["A"] -> ["A", "B"]',
        "+ timeout_s: 60.0",
        "+ mode: min",
    ]
    assert changed_facts(old, old) == []


@pytest.mark.parametrize(
    ("stopper", "text"),
    [
        ("asha", "asha"),
        (st.ASHA(most=27), "asha(most=27)"),
        ([st.Median(), st.Patience(steps=3)], "median, patience(steps=3)"),
    ],
)
def test_a_stopper_is_shown_as_a_call(stopper: Any, text: str) -> None:
    assert rule_text(encoded(rules_of(stopper, "stopper"))) == text
