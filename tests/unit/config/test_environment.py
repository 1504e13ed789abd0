"""Variables that trials get: what may be one, and what is said of one that may not, without its value."""

from typing import Any

import pytest

from sparktrain.config.environment import MOST_BYTES, patterns, variables
from sparktrain.errors import SpecError

SECRET = "hunter2"


def test_texts_and_numbers_are_taken() -> None:
    assert variables({"A": "b=c d", "_x1": "", "N": 2, "F": 0.5}) == {"A": "b=c d", "_x1": "", "N": "2", "F": "0.5"}
    assert variables({}) == {}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (["A", SECRET], "is list, a dict is expected"),
        ({"A-B": SECRET}, "'A-B' is no name of a variable"),
        ({"1A": SECRET}, "is no name of a variable"),
        ({3: SECRET}, "is no name of a variable"),
        ({"A": [SECRET]}, "the value of A is list, text is expected"),
        ({"A": True}, "the value of A is bool"),
        ({"A": None}, "the value of A is NoneType"),
        ({"A": f"{SECRET}\0"}, "the value of A has a NUL"),
        ({"PYTHONPATH": SECRET}, r"PYTHONPATH is read when a program starts, .* spark\.executorEnv\.PYTHONPATH"),
        ({"LD_PRELOAD": SECRET}, "LD_PRELOAD is read when a program starts"),
        ({"SPARKTRAIN_MEMBER": ""}, "is sparktrain's own"),
        ({"A": SECRET * MOST_BYTES}, f"bytes, {MOST_BYTES} can be passed on"),
    ],
)
def test_what_cannot_be_one_is_refused_without_its_value(value: Any, told: str) -> None:
    with pytest.raises(SpecError, match=rf"^env.*{told}") as caught:
        variables(value)
    assert SECRET not in str(caught.value)


def test_names_and_their_begins_are_taken() -> None:
    assert patterns(["HF_HOME", "WANDB_*", "*"]) == ("HF_HOME", "WANDB_*", "*")


@pytest.mark.parametrize("value", ["HF_HOME", 3, ["A B"], ["*_KEY"], [""], [3], ["PYTHONPATH"], ["SPARKTRAIN_MEMBER"]])
def test_what_names_no_variable_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^forward_env"):
        patterns(value)
