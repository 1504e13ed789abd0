"""Checks the return value of a training function, and reads its metrics. Pure."""

import difflib
import inspect
import math
import numbers
import operator
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktrain.state.outcome import LACKS_METRIC, Failure, FailureKind
from sparktrain.training.agent_pipe import sendable
from sparktrain.training.extra_values import bounded

UNNAMED = "result"
"""Name of a bare number where the run names no metric."""

_MAX_COUNT = 2**63 - 1
"""The largest integer that messages and files carry."""
MAX_METRICS = 10_000
"""The most metrics in one result or report: all are sent in messages and stay in the journal. Arrays go to files."""
MAX_NAMES_BYTES = 2**20
"""The most bytes of all metric names together."""

MAX_NAMED = 5
"""So many values that are no numbers are named in the notice about them."""

ALLOWED = "return a number, or a flat dict of metric names to numbers"

_REAL_DTYPE = re.compile(r"(^|\.)(u?int|b?float)\d")


class NotANumberError(TypeError):
    """A value is not a real number; the message describes the value."""


class FunctionResult(Struct, frozen=True):
    """What a training function returned: its numbers, and what is beside them."""

    metrics: dict[str, float]
    extra: dict[str, Any] = {}
    """Values that are no numbers, as `extra_values.bounded` has them."""
    notice: str = ""
    """Names these values, in one line; empty without any."""


def number(value: Any) -> float:
    """`value` as a float: a real number, a numpy scalar, or an array or tensor with one element.

    Raises NotANumberError for all else: bool, complex and str are none, nor are arrays with more elements.
    """
    if isinstance(value, bool) or not (isinstance(value, numbers.Real) or _is_real_scalar(value)):
        raise NotANumberError(_described(value))
    try:
        return float(_element(value))
    except Exception as error:
        raise NotANumberError(f"{_described(value)} ({type(error).__name__}: {error})") from error


def size_problem(metrics: Mapping[str, float]) -> str:
    """Why there are too many `metrics` for one message; empty when there are not."""
    if len(metrics) > MAX_METRICS:
        return f"{len(metrics):,} metrics, and at most {MAX_METRICS:,} can be sent"
    if (names := sum(len(name.encode()) for name in metrics)) > MAX_NAMES_BYTES:
        return f"names of metrics with {names:,} bytes, and at most {MAX_NAMES_BYTES:,} can be sent"
    return ""


def read_result(returned: Any, metric: str | None) -> FunctionResult | Failure:
    """What a training function returned; a failure when that has no finite `metric`, or does not fit in a message.

    The training is over by then, so a value that is no number costs nothing but itself: it becomes an extra value.
    """
    if returned is None and metric is None:
        return FunctionResult({})
    if inspect.isawaitable(returned) or inspect.isgenerator(returned):  # the body of the function has not run
        return Failure(FailureKind.RESULT, f"the function returned {_described(returned)}; {ALLOWED}")
    if isinstance(returned, Mapping):
        return _read_mapping(returned, metric)
    try:
        return _with(metric, FunctionResult({metric or UNNAMED: number(returned)}))
    except NotANumberError as error:
        if metric is not None:
            return Failure(FailureKind.RESULT, f"the function returned {error}; {ALLOWED}")
        return FunctionResult({}, *_extra({UNNAMED: returned}, [f"{UNNAMED!r} ({error})"]))


def _read_mapping(returned: Mapping[Any, Any], metric: str | None) -> FunctionResult | Failure:
    metrics: dict[str, float] = {}
    non_numbers: dict[Any, Any] = {}
    described: list[str] = []
    for name, value in returned.items():
        try:
            if not isinstance(name, str):
                raise NotANumberError(f"its key is of type {type(name).__name__}")
            metrics[sendable(name)] = number(value)
        except NotANumberError as error:
            if name == metric:
                problem = f"{LACKS_METRIC} {metric!r} as a number: it is {error}"
                return Failure(FailureKind.METRIC, f"{problem}; {ALLOWED}")
            non_numbers[name] = value
            described.append(f"{name!r:.100} ({error})")
    if problem := size_problem(metrics):
        return Failure(FailureKind.RESULT, f"the result is too large: it has {problem}; write them to ctx.log_dir")
    return _with(metric, FunctionResult(metrics, *(_extra(non_numbers, described) if non_numbers else ())))


def _extra(values: Mapping[Any, Any], described: list[str]) -> tuple[dict[str, Any], str]:
    extra, left_out = bounded(values)
    named = ", ".join(described[:MAX_NAMED])
    excess = f" and {len(described) - MAX_NAMED} more" if len(described) > MAX_NAMED else ""
    where = "`extra` of the trial has them" + (
        f", without the last {left_out}: too many or too large" if left_out else ""
    )
    return extra, f"the function returned values that are no numbers, so they are no metrics: {named}{excess}; {where}"


def _with(metric: str | None, result: FunctionResult) -> FunctionResult | Failure:
    metrics = result.metrics
    if metric is None:
        return result
    if metric not in metrics:
        return Failure(FailureKind.METRIC, f"{LACKS_METRIC} {metric!r}; {_alternatives(metric, metrics)}")
    if not math.isfinite(metrics[metric]):
        problem = f"metric {metric!r} is {metrics[metric]}, and no finite number"
        return Failure(FailureKind.METRIC, f"{problem}: did the training diverge? A lower learning rate may help")
    return result


def _alternatives(metric: str, metrics: dict[str, float]) -> str:
    if not metrics:
        return "it is empty"
    present = f"it has {', '.join(map(repr, metrics))}"
    near = difflib.get_close_matches(metric, metrics, n=1)
    return f"{present}: is {near[0]!r} meant?" if near else present


def _is_real_scalar(value: Any) -> bool:
    """Whether `value` is one number of numpy, TensorFlow, Keras, JAX or torch; none of them is imported."""
    shape = _attribute(value, "shape")
    dtype = _attribute(value, "dtype")
    try:
        single = shape is not None and all(length == 1 for length in shape)
    except Exception:  # a shape that is unknown, or of another kind
        return False
    return single and _REAL_DTYPE.search(str(getattr(dtype, "name", dtype))) is not None


def _element(value: Any) -> Any:
    """The only element of an array or tensor with dimensions: numpy deprecates `float` of those."""
    if not _attribute(value, "shape"):
        return value
    if callable(getattr(value, "item", None)):
        return value.item()
    return value.numpy().item()


def _attribute(value: Any, name: str) -> Any:
    """The attribute; None without it, or where reading it fails, as of a deleted array of JAX."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _described(value: Any) -> str:
    kind = type(value).__name__
    shape = _attribute(value, "shape")
    if value is None:
        return "None"
    if inspect.isawaitable(value):
        return f"a {kind}, because the function is async: await inside of it, by asyncio.run()"
    if inspect.isgenerator(value):
        return f"a {kind}, because the function has a yield: it must return its result"
    if isinstance(value, Mapping | list | tuple | set):
        return f"a {kind} of {len(value)}"
    if shape is not None:
        return f"a {kind} of shape {shape} and type {_attribute(value, 'dtype') or 'unknown'}"
    if isinstance(value, bool | complex | str | bytes):
        return f"{value!r:.100} of type {kind}"
    return f"a value of type {kind}"


def passed_count(value: Any, call: str, name: str) -> int:
    """A number from 0, such as a step, that a function passes to `call` as `name`.

    Raises TypeError or ValueError, which name both.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise TypeError(f"{call}({name}={value!r:.100}): an integer is needed, not {type(value).__name__}")
    if count < 0:
        raise ValueError(f"{call}({name}={count}): counts from 0")
    # The number itself is not in the message: Python refuses to write one of more than 4,300 digits.
    if count > _MAX_COUNT:
        raise ValueError(f"{call}(): {name} has {count.bit_length()} bits, and must be below 2**63")
    return count


def reported_metrics(values: Mapping[str, Any], metric: str | None) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers that a function passes to `ctx.report`, and of all other values, by name, what they are.

    Raises TypeError, which names the call, where the metric of the run is no number.
    """
    metrics: dict[str, float] = {}
    non_numbers: dict[str, str] = {}
    for name, value in values.items():
        try:
            metrics[sendable(name)] = number(value)
        except NotANumberError as error:
            if name == metric:
                raise TypeError(f"ctx.report(): metric {name!r} is {error}, and must be a number") from error
            non_numbers[sendable(name)] = str(error)
    return metrics, non_numbers
