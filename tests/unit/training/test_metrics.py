"""What a training function may return."""

from collections import OrderedDict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sparktrain.state.outcome import Failure
from sparktrain.state.outcome import FailureKind as Kind
from sparktrain.training.metrics import metrics_of


class Tensor:
    """What results need of a tensor of any framework."""

    def __init__(self, value: Any, dtype: str, shape: tuple[int, ...] = ()) -> None:
        self._value, self.dtype, self.shape = value, dtype, shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value}, {self.dtype}, {self.shape})"

    def __float__(self) -> float:
        return float(self._value)


class Symbolic(Tensor):
    def __float__(self) -> float:
        raise TypeError("symbolic")


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        Fraction(2),
        np.int8(2),
        np.float16(2),
        np.longdouble(2),
        np.array(2),
        np.array(2.0, dtype=">f4"),
        Tensor(2, "torch.float32"),
        Tensor(2, "bfloat16"),
        Tensor(2, "float32"),
    ],
    ids=repr,
)
def test_numbers(value: Any) -> None:
    assert metrics_of(value, None) == {"result": 2.0}
    assert metrics_of(value, "loss") == {"loss": 2.0}
    [metric] = metrics_of({"loss": value}, "loss").values()  # type: ignore[union-attr]
    assert type(metric) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (True, "True of type bool"),
        (np.True_, "and type bool"),
        (1j, "1j of type complex"),
        ("0.5", "a value of type str"),
        (Decimal(1), "a value of type Decimal"),
        ([1, 2], "a list of 2"),
        ((1,), "a tuple of 1"),
        (np.zeros((2, 3)), "a ndarray of shape (2, 3) and type float64"),
        (np.zeros(1), "a ndarray of shape (1,)"),
        (np.array("x"), "and type <U1"),
        (np.array(1j), "and type complex128"),
        (Tensor(1, "complex64"), "a Tensor of shape () and type complex64"),
        (Symbolic(1, "float32"), "(TypeError: symbolic)"),
        (10**400, "(OverflowError: int too large"),
        ({"loss": {"a": 1}}, "a dict with a value 'loss' that is a dict of 1"),
        ({"loss": [1, 2]}, "a dict with a value 'loss' that is a list of 2"),
        ({"loss": None}, "a dict with a value 'loss' that is None"),
        ({0: 1.0}, "a dict with the key 0 of type int"),
    ],
    ids=repr,
)
def test_what_is_no_result(value: Any, words: str) -> None:
    failure = metrics_of(value, "loss")

    assert isinstance(failure, Failure)
    assert failure.kind is Kind.RESULT
    assert words in failure.summary
    assert failure.summary.endswith("; return a number, or a flat dict of metric names to numbers")


def test_an_async_function_is_explained() -> None:
    async def train() -> float:
        return 1.0

    coroutine = train()
    failure = metrics_of(coroutine, None)
    coroutine.close()

    assert isinstance(failure, Failure)
    assert "asyncio.run()" in failure.summary


def test_nothing_is_enough_where_no_metric_is_asked_for() -> None:
    assert metrics_of(None, None) == {}
    assert metrics_of({}, None) == {}


def test_all_metrics_of_a_dict_are_kept() -> None:
    metrics = metrics_of(OrderedDict(loss=np.float32(0.5), worst=float("inf"), odd=float("nan")), "loss")

    assert isinstance(metrics, dict)
    assert list(metrics) == ["loss", "worst", "odd"]
    assert metrics["worst"] == float("inf")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"acuracy": 1, "loss": 2}, "lacks metric 'accuracy'; it has 'acuracy', 'loss': is 'acuracy' meant?"),
        ({"loss": 2}, "lacks metric 'accuracy'; it has 'loss'"),
        ({}, "lacks metric 'accuracy'; it is empty"),
        (float("nan"), "metric 'accuracy' is nan, and no finite number"),
        ({"accuracy": np.float32("-inf")}, "metric 'accuracy' is -inf, and no finite number"),
    ],
)
def test_the_metric_must_be_there_and_finite(returned: Any, words: str) -> None:
    failure = metrics_of(returned, "accuracy")

    assert isinstance(failure, Failure)
    assert failure.kind is Kind.METRIC
    assert words in failure.summary


def test_a_result_of_too_many_metrics_fails_with_the_limit() -> None:
    assert metrics_of({f"m{number}": number for number in range(10_000)}, None) == {
        f"m{number}": float(number) for number in range(10_000)
    }
    assert metrics_of({f"m{number}": number for number in range(300_000)}, "m1") == Failure(
        Kind.RESULT,
        "the result is too large: it has 300,000 metrics, and at most 10,000 can be sent; write them to ctx.log_dir",
    )
    assert metrics_of({"m" * 2**21: 1}, None) == Failure(
        Kind.RESULT,
        "the result is too large: it has names of metrics with 2,097,152 bytes, and at most 1,048,576 can be sent; "
        "write them to ctx.log_dir",
    )
