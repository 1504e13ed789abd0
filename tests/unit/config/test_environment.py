"""Environment variables of trials: which are valid, and the error for others, which never shows a value."""

from typing import Any

import pytest

from sparktrain.config.environment import MOST_BYTES, patterns, variables
from sparktrain.errors import SpecError

SECRET = "hunter2"


def test_text_and_numbers_are_accepted() -> None:
    assert variables({"A": "b=c d", "_x1": "", "N": 2, "F": 0.5}) == {"A": "b=c d", "_x1": "", "N": "2", "F": "0.5"}
    assert variables({}) == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["A", SECRET], "is list, a dict is expected"),
        ({"A-B": SECRET}, "'A-B' is not the name of a variable"),
        ({"1A": SECRET}, "is not the name of a variable"),
        ({3: SECRET}, "is not the name of a variable"),
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
def test_invalid_variables_are_refused_without_their_value(value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=rf"^env.*{message}") as caught:
        variables(value)
    assert SECRET not in str(caught.value)


def test_names_and_prefixes_are_accepted() -> None:
    assert patterns(["HF_HOME", "WANDB_*", "*"]) == ("HF_HOME", "WANDB_*", "*")


@pytest.mark.parametrize("value", ["HF_HOME", 3, ["A B"], ["*_KEY"], [""], [3], ["PYTHONPATH"], ["SPARKTRAIN_MEMBER"]])
def test_invalid_patterns_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^forward_env"):
        patterns(value)
