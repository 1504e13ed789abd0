"""The axes of parameters: their scales and ticks are those that the space declares."""

from typing import Any

import pytest

import sparktrain as st
from sparktrain.search.sampled_space import Leaf
from sparktrain.state.records import TrialAnswered
from sparktrain.views.report.views.parameter_axes import Axis, axes_of
from sparktrain.views.report.views.run_inputs import declared_leaves


def axis(values: list[Any], leaf: Leaf | None = None) -> Axis:
    [found] = axes_of([{"x": value} for value in values], {} if leaf is None else {"x": leaf})
    return found


@pytest.mark.parametrize(
    ("values", "leaf", "log", "integer", "ticks"),
    [
        ([0.01, 0.02], st.loguniform(1e-3, 1), True, False, ()),  # however near they are
        ([0.001, 0.9], st.uniform(0, 1), False, False, ()),  # however far apart they are
        ([20, 200, 35], st.randint(16, 256), False, True, ()),
        ([3, 700, 12], st.lograndint(1, 1000), True, True, ()),
        ([1, 3, 2], st.randint(1, 5), False, True, (1, 2, 3)),
        ([0.0, 0.5, 1.0], st.quniform(0, 1, 0.25), False, False, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ([16, 128, 64], st.choice([16, 32, 64, 128]), True, True, (16, 32, 64, 128)),
        ([2, 8, 4], (2, 4, 6, 8), False, True, (2, 4, 6, 8)),
        ([1, 4, 2], None, False, True, (1, 2, 4)),
        ([1e-4, 1e-1], None, True, False, ()),
        ([0.1, 0.2], None, False, False, ()),
    ],
)
def test_numbers(values: list[Any], leaf: Any, log: bool, integer: bool, ticks: tuple[float, ...]) -> None:
    found = axis(values, leaf)
    assert (found.kind, found.low, found.high) == ("number", min(values), max(values))
    assert (found.log, found.integer, found.ticks) == (log, integer, ticks)


def test_categories_are_in_the_order_of_their_list() -> None:
    assert axis(["tanh", "relu", "gelu"], st.choice(["relu", "gelu", "tanh", "elu"])).values == ("relu", "gelu", "tanh")
    assert axis(["b", "a"]).values == ("a", "b")
    assert axis([10, None, 2], (2, 10, None)).values == ("2", "10", "null")


def test_distributions_that_a_trial_has_named_itself_are_known() -> None:
    texts = {
        "lr": '{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}',
        "units": '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 16, "high": 256}}',
        "q": '{"name": "IntDistribution", "attributes": {"log": false, "step": 8, "low": 0, "high": 64}}',
        "act": '{"name": "CategoricalDistribution", "attributes": {"choices": ["relu", "gelu"]}}',
        "new": '{"name": "OtherDistribution", "attributes": {}}',
    }
    record = TrialAnswered(trial=0, params={}, memo={"distributions": texts})  # type: ignore[arg-type]
    leaves = declared_leaves(None, [record])
    assert {name: str(leaf) for name, leaf in leaves.items()} == {
        "lr": "loguniform(1e-05, 0.1)", "units": "randint(16, 256)", "q": "quniform(0, 64, 8)",
        "act": 'choice(["relu", "gelu"])',
    }  # fmt: skip
