"""Bad spaces: names, values, conditions, sizes."""

import numpy as np
import pandas as pd

from sparktrain.search.grid import SpaceSampler
from sparktrain.search.sampled_space import as_space
from sparktrain.search.space import cases, grid, when, zipped
from tests.unit.bad_input.case import spec_case as space

LOOP: list[object] = []
LOOP.append(LOOP)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def function(lr: float) -> float:
    return lr


CASES = [
    space("space-empty", lambda: as_space({}), r"^grid\(\)", "empty", "at least one parameter", r"write grid\(lr="),
    space("space-none", lambda: as_space(None), "^the space", r"None \(NoneType\)", "pass a dict of lists"),
    space("space-text", lambda: as_space("lr"), "^the space", r"'lr' \(str\)", "pass a dict of lists"),
    space("space-no-values", lambda: grid(lr=[]), "'lr'", "empty list", "at least one value", "remove the name"),
    space("space-scalar", lambda: grid(lr=0.1), "'lr'", r"0\.1 \(float\)", "a list is expected", r"write \[0\.1\]"),
    space("space-string", lambda: grid(opt="sgd"), "'opt'", r"'sgd' \(str\)", "a list is expected", r"write \['sgd'\]"),
    space("space-set", lambda: grid(lr={1}), "'lr'", r"\{1\} \(set\)", "no order", "sorted"),
    space(
        "space-generator",
        lambda: grid(lr=(x for x in [1])),
        "'lr'",
        "generator",
        "a list is expected",
        r"list\(\.\.\.\)",
    ),
    space("space-dict", lambda: grid(lr={"a": 1}), "'lr'", r"\(dict\)", "values as a list"),
    space("space-matrix", lambda: grid(lr=np.ones((2, 2))), "'lr'", r"numpy\.ndarray", "tolist"),
    space("space-numpy-scalar", lambda: grid(lr=np.float64(2)), "'lr'", "a list is expected", r"write \["),
    space("space-ctx", lambda: grid(ctx=[1]), r"^grid\(\)", "'ctx' is not a hyperparameter", "choose another name"),
    space(
        "space-identifier",
        lambda: grid({"learning rate": [1]}),
        "'learning rate'",
        "cannot be the name",
        "'learning_rate'",
    ),
    space("space-keyword", lambda: grid({"lambda": [1]}), "'lambda'", "cannot be the name", "'lambda_'"),
    space("space-name-type", lambda: grid({1: [1]}), r"1 \(int\)", "not text", "write '1'"),
    space("space-twice", lambda: grid({"lr": [1]}, lr=[2]), "'lr'", "given twice", "remove one"),
    space("space-not-a-dict", lambda: grid([1]), r"^grid\(\)", r"\[1\] \(list\)", "a dict of lists is expected"),
    space("space-nan", lambda: grid(lr=[float("nan")]), "'lr'", "nan", "must be finite", "pass None"),
    space("space-inf", lambda: grid(lr=[np.float32("inf")]), "'lr'", "inf", "must be finite", "pass None"),
    space("space-big-int", lambda: grid(lr=[2**64]), "'lr'", "18446744073709551616", "64 bits", "as text"),
    space("space-surrogate", lambda: grid(lr=["\ud800"]), "'lr'", "not Unicode text", "remove"),
    space(
        "space-function",
        lambda: grid(opt=[function]),
        "'opt'",
        r"\(function\)",
        "a value is None",
        "pass a name and look it up",
    ),
    space("space-class", lambda: grid(opt=[Unprintable]), "'opt'", r"\(type\)", "a value is None", "pass a name"),
    space("space-array", lambda: grid(w=[np.ones(2)]), "'w'", r"numpy\.ndarray", "a value is None", "tolist"),
    space("space-bytes", lambda: grid(w=[b"x"]), "'w'", r"\(bytes\)", "a value is None", "decode"),
    space(
        "space-date",
        lambda: grid(w=[np.datetime64("2020-01-01")]),
        "'w'",
        r"datetime64\)",
        "a value is None",
        "pass text",
    ),
    space("space-unprintable", lambda: grid(w=[Unprintable()]), "'w'", "Unprintable", "a value is None"),
    space("space-dict-key", lambda: grid(w=[{1: 2}]), "'w'", "key 1", "keys are text", "write '1'"),
    space("space-endless", lambda: grid(w=[LOOP]), "'w'", "32 levels", "pass its path"),
    space("space-large", lambda: grid(w=["x" * 2**21]), "'w'", "2,097,154 bytes", "is the limit", "pass its path"),
    space("space-many-items", lambda: grid(w=[list(range(200_000))]), "'w'", "100,000 items", "pass its path"),
    space(
        "space-zip-lengths",
        lambda: zipped(lr=[1, 2], d=[1]),
        r"^zipped\(\)",
        "'lr' has 2, 'd' has 1",
        "equally long",
        "make",
    ),
    space("space-zip-empty", lambda: zipped(), r"^zipped\(\)", "at least one parameter", "write zipped"),
    space("space-zip-when", lambda: zipped(lr=when(bool, [1])), "'lr'", "conditions belong in a grid", "use grid"),
    space("space-cases-empty", lambda: cases([]), r"^cases\(\)", "empty list", "at least one case", "write cases"),
    space("space-cases-dict", lambda: cases({"lr": [1]}), r"^cases\(\)", r"\(dict\)", "a list of dicts"),
    space("space-cases-table", lambda: cases(pd.DataFrame({"lr": [1]})), "DataFrame", r"to_dict\('records'\)"),
    space(
        "space-cases-row",
        lambda: cases([{"lr": 1}, 2]),
        r"^cases\(\)\[1\]",
        r"2 \(int\)",
        "a dict is expected",
        "write",
    ),
    space("space-cases-value", lambda: cases([{"lr": object()}]), r"cases\(\)\[0\]: 'lr'", "object", "a value is None"),
    space(
        "space-when-function", lambda: when("x", [1]), r"^when\(\)", r"'x' \(str\)", "not a function", "such as lambda"
    ),
    space("space-when-values", lambda: when(bool, 1), r"^when\(\)", r"1 \(int\)", "a list is expected", r"write \[1\]"),
    space(
        "space-when-raises",
        lambda: grid(a=[1], b=when(lambda p: p["c"], [1])),
        "'b'",
        "KeyError: .*c",
        "{'a': 1}",
        "before it: 'a'",
    ),
    space(
        "space-where-function",
        lambda: grid(lr=[1], where=[2]),
        "where",
        r"\[2\] \(list\)",
        "not a function",
        r"grid\(\{'where'",
    ),
    space(
        "space-where-raises",
        lambda: grid(lr=[1], where=lambda p: 1 / 0),
        "where",
        "ZeroDivisionError",
        "{'lr': 1}",
        "one dict",
    ),
    space("space-where-late", lambda: list(grid(lr=[1, 0], where=lambda p: 1 / p["lr"])), "where", "{'lr': 0}"),
    space("space-where-array", lambda: grid(lr=[1], where=lambda p: np.ones(2)), "where", "ValueError: .*ambiguous"),
    space(
        "space-where-all",
        lambda: grid(a=[1, 2], where=lambda p: False),
        "refuses all 2",
        "{'a': 2}",
        "correct the condition",
    ),
    space(
        "space-too-many",
        lambda: SpaceSampler(grid(a=range(1000), b=range(1000))),
        "1,000,000",
        "1000 a x 1000 b",
        "trials=N",
    ),
]
