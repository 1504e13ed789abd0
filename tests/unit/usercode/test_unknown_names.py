"""An undefined name is refused before any process starts, unless it may exist or may never be read."""

import logging
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.errors import FunctionError
from sparktrain.usercode.unknown_names import check_names


def function(source: str) -> Callable[..., Any]:
    """`train` of a script."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(source), "train.py", "exec"), names)
    train: Callable[..., Any] = names["train"]
    return train


CERTAIN = {
    "np": ("def train(x):\n    return np.mean(x)", "'np' at line 2, .*; write `import numpy as np` in"),
    "json": ("def train(x):\n    return json.dumps(x)", "'json' at line 2, .*; write `import json` in the function"),
    "typo": ("def helper(x): ...\ndef train(x):\n    return helpr(x)", "'helpr' at line 3, .*'helper'"),
    "loop": ("def train(x):\n    for i in range(3):\n        total = undefined + i", "'undefined' at line 3"),
    "with": ("def train(x):\n    with open(x) as file:\n        return undefined(file)", "'undefined' at line 3"),
    "after": ("def train(x):\n    if x:\n        x = 1\n    return undefined", "'undefined' at line 4"),
    "after try": ("def train(x):\n    undefined(x)\n    try:\n        x()\n    except OSError:\n        x", "line 2"),
    "after with": ("def train(x):\n    with open(x) as y:\n        y.read()\n    return undefined", "line 4"),
    "after loop": ("def train(x):\n    for i in x:\n        print(i)\n    return undefined", "line 4"),
    "argument": ("def train(x):\n    print(x, undefined)", "'undefined' at line 2"),
}  # fmt: skip

POSSIBLE = {
    "branch": "def train(x):\n    if x:\n        return undefined\n    return 1",
    "else": "def train(x):\n    if x:\n        return 1\n    else:\n        y = 2\n    return x and undefined",
    "either": "def train(x):\n    return undefined if x else 1",
    "while": "def train(x):\n    while x:\n        x = undefined",
    "nested": "def train(x):\n    def inner():\n        return undefined\n    return 1",
    "lambda": "def train(x):\n    return sorted(x, key=lambda each: undefined)",
}

FINE = {
    "global": "later = 1\ndef train(x):\n    return later",
    "builtin": "def train(x):\n    return max(len(x), __name__)",
    "own": "def train(x):\n    import numpy as np\n    return np.mean(x)",
    "comprehension": "def train(x):\n    y = 2\n    return [y * each for each in x]",
    "try": "def train(x):\n    try:\n        unicode\n    except NameError:\n        unicode_type = str\n    return 1",
    "handler": "def train(x):\n    try:\n        return x()\n    except OSError:\n        return undefined",
    "finally": "def train(x):\n    try:\n        undefined\n    finally:\n        return 1",
    "suppressed": "from contextlib import suppress\ndef train(x):\n    with suppress(NameError):\n        undefined",
    "false": "def train(x):\n    if False:\n        undefined\n    return 1",
    "exec": "def train(x):\n    exec('y = 1', globals())\n    return y",
    "star": "from math import *\ndef train(x):\n    return sqrt(x)",
    "made by itself": "def train(x):\n    global model\n    model = x\n    return model",
    "made by another": "def setup():\n    global model\n    model = 1\ndef train(x):\n    setup()\n    return model",
    "made by a method": (
        "class Setup:\n    def make(self):\n        global model\n        model = 1\n"
        "def train(x):\n    Setup().make()\n    return model"
    ),
    "class body": "def train(x):\n    class Layer:\n        a = 1\n        b = a * 2\n    return Layer.b",
    "annotation": "def train(x):\n    y: Unknown = 1\n    return y",
    "installed": "def train(x):\n    return _('text')",
    "recursive": "def train(x):\n    return train(x - 1) if x else 0",
    "generator": "def train(x):\n    return sum(each for each in x)",
}


@pytest.mark.parametrize("case", CERTAIN)
def test_a_name_that_must_be_missing_is_refused_with_the_next_step(case: str) -> None:
    source, words = CERTAIN[case]
    with pytest.raises(FunctionError, match=words):
        check_names(function(source))


@pytest.mark.parametrize("case", POSSIBLE)
def test_a_name_that_may_be_missing_is_logged(case: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparktrain"):
        check_names(function(POSSIBLE[case]))
    [warning] = [each.message for each in caplog.records]
    assert "uses 'undefined' at line" in warning
    assert "a trial that comes to that line fails" in warning


@pytest.mark.parametrize("case", FINE)
def test_other_names_are_not_reported(case: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparktrain"):
        check_names(function(FINE[case]))
    assert not caplog.records


def test_a_librarys_function_is_not_checked() -> None:
    check_names(textwrap.dedent)
    check_names(print)


def test_a_method_and_a_partial_are_checked() -> None:
    import functools

    train = function("def train(x, y):\n    return undefined")
    with pytest.raises(FunctionError, match="undefined"):
        check_names(functools.partial(train, 1))
