"""What a training function may return."""

from collections import OrderedDict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sparktrain.state.outcome import Failure
from sparktrain.state.outcome import FailureKind as Kind
from sparktrain.training.metrics import FunctionResult, read_result


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


class Single(Tensor):
    """A tensor with dimensions, as numpy and torch have it: `float` warns."""

    def __float__(self) -> float:
        raise DeprecationWarning

    def item(self) -> Any:
        return self._value


class Eager(Tensor):
    """A tensor of TensorFlow with dimensions."""

    def __float__(self) -> float:
        raise DeprecationWarning

    def numpy(self) -> Any:
        return np.full(self.shape, self._value)


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
        np.array([2]),
        np.array([[2.0]], dtype=np.float32),
        Single(2, "torch.float32", (1,)),
        Eager(2, "float32", (1, 1)),
    ],
    ids=repr,
)
def test_numbers(value: Any) -> None:
    assert read_result(value, None) == FunctionResult({"result": 2.0})
    assert read_result(value, "loss") == FunctionResult({"loss": 2.0})
    [metric] = read_result({"loss": value}, "loss").metrics.values()  # type: ignore[union-attr]
    assert type(metric) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "returned None;"),
        (True, "True of type bool"),
        (np.True_, "and type bool"),
        (1j, "1j of type complex"),
        ("0.5", "'0.5' of type str"),
        (Decimal(1), "a value of type Decimal"),
        ([1, 2], "a list of 2"),
        ((1,), "a tuple of 1"),
        (np.zeros((2, 3)), "a ndarray of shape (2, 3) and type float64"),
        (np.zeros(0), "a ndarray of shape (0,)"),
        (np.array("x"), "and type <U1"),
        (np.array([1j]), "and type complex128"),
        (Tensor(1, "complex64"), "a Tensor of shape () and type complex64"),
        (Symbolic(1, "float32"), "(TypeError: symbolic)"),
        (10**400, "(OverflowError: int too large"),
    ],
    ids=repr,
)
def test_what_is_no_result(value: Any, words: str) -> None:
    whole, entry = read_result(value, "loss"), read_result({"accuracy": 1, "loss": value}, "loss")

    assert isinstance(whole, Failure)
    assert isinstance(entry, Failure)
    assert (whole.kind, entry.kind) == (Kind.RESULT, Kind.METRIC)
    assert words in whole.summary
    assert words.removeprefix("returned ") in entry.summary
    assert entry.summary.startswith("the result lacks metric 'loss' as a number: it is ")
    for failure in (whole, entry):
        assert failure.summary.endswith("; return a number, or a flat dict of metric names to numbers")


def test_values_that_are_no_numbers_are_kept_beside_the_metrics() -> None:
    returned = {"loss": 0.5, "note": "warmed up", "best_epoch": None, "curve": [1, 0.5], "model": object(), 3: 0.25}
    result = read_result(returned, "loss")

    assert isinstance(result, FunctionResult)
    assert result.metrics == {"loss": 0.5}
    assert result.extra == {
        "note": "warmed up", "best_epoch": None, "curve": [1, 0.5], "model": "object", "3": 0.25,
    }  # fmt: skip
    assert result.notice == (
        "the function returned values that are no numbers, so they are no metrics: 'note' ('warmed up' of type str), "
        "'best_epoch' (None), 'curve' (a list of 2), 'model' (a value of type object), 3 (its key is of type int); "
        "`extra` of the trial has them"
    )


def test_a_notice_names_the_first_values_and_counts_the_others() -> None:
    result = read_result({f"note{number}": "x" for number in range(200)}, None)

    assert isinstance(result, FunctionResult)
    assert len(result.extra) == 100
    assert result.notice.endswith(
        "'note4' ('x' of type str) and 195 more; `extra` of the trial has them, without the last 100: too many or too "
        "large"
    )


def test_without_a_metric_any_result_is_one() -> None:
    assert read_result("done", None) == FunctionResult(
        {},
        {"result": "done"},
        "the function returned values that are no numbers, so they are no metrics: 'result' ('done' of type str); "
        "`extra` of the trial has them",
    )


def test_a_value_that_cannot_be_described_costs_only_itself() -> None:
    class Deleted:
        @property
        def shape(self) -> tuple[int, ...]:
            raise RuntimeError("array has been deleted")

    result = read_result({"loss": 1, "odd": Deleted()}, "loss")

    assert isinstance(result, FunctionResult)
    assert (result.metrics, result.extra) == ({"loss": 1.0}, {"odd": "Deleted"})


def test_an_async_function_is_explained() -> None:
    async def train() -> float:
        return 1.0

    coroutine = train()
    failure = read_result(coroutine, None)
    coroutine.close()

    assert isinstance(failure, Failure)
    assert "asyncio.run()" in failure.summary


def test_a_function_with_a_yield_is_explained() -> None:
    failure = read_result((1.0 for _ in range(2)), None)

    assert isinstance(failure, Failure)
    assert "because the function has a yield: it must return its result" in failure.summary


def test_nothing_is_enough_where_no_metric_is_asked_for() -> None:
    assert read_result(None, None) == FunctionResult({})
    assert read_result({}, None) == FunctionResult({})


def test_all_metrics_of_a_dict_are_kept() -> None:
    result = read_result(OrderedDict(loss=np.float32(0.5), worst=float("inf"), odd=float("nan")), "loss")

    assert isinstance(result, FunctionResult)
    assert list(result.metrics) == ["loss", "worst", "odd"]
    assert result.metrics["worst"] == float("inf")


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
    failure = read_result(returned, "accuracy")

    assert isinstance(failure, Failure)
    assert failure.kind is Kind.METRIC
    assert words in failure.summary


@pytest.mark.long
def test_a_result_of_too_many_metrics_fails_with_the_limit() -> None:
    assert read_result({f"m{number}": number for number in range(10_000)}, None) == FunctionResult(
        {f"m{number}": float(number) for number in range(10_000)}
    )
    assert read_result({f"m{number}": number for number in range(300_000)}, "m1") == Failure(
        Kind.RESULT,
        "the result is too large: it has 300,000 metrics, and at most 10,000 can be sent; write them to ctx.log_dir",
    )
    assert read_result({"m" * 2**21: 1}, None) == Failure(
        Kind.RESULT,
        "the result is too large: it has names of metrics with 2,097,152 bytes, and at most 1,048,576 can be sent; "
        "write them to ctx.log_dir",
    )
