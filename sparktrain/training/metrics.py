"""Checks the return value of a training function, and reads its metrics. Pure."""

import difflib
import inspect
import math
import numbers
import operator
import re
from collections.abc import Mapping
from typing import Any

from sparktrain.state.outcome import LACKS_METRIC, Failure, FailureKind
from sparktrain.training.agent_pipe import sendable

UNNAMED = "result"
"""Name of a bare number where the run names no metric."""

MAX_STEP = 2**63 - 1
"""The largest integer that messages and files carry."""
MAX_METRICS = 10_000
"""The most metrics in one result or report: all are sent in messages and stay in the journal. Arrays go to files."""
MAX_NAMES_BYTES = 2**20
"""The most bytes of all metric names together."""

ALLOWED = "return a number, or a flat dict of metric names to numbers"

_REAL_DTYPE = re.compile(r"(^|\.)(u?int|b?float)\d")


class NotANumberError(TypeError):
    """A value is not a real number; the message describes the value."""


def number(value: Any) -> float:
    """`value` as a float: a real number, a numpy scalar, or an array or tensor without dimensions.

    Raises NotANumberError for all else: bool, complex and str are none, nor are arrays with dimensions.
    """
    if isinstance(value, bool) or not (isinstance(value, numbers.Real) or _is_real_scalar(value)):
        raise NotANumberError(_described(value))
    try:
        return float(value)
    except Exception as error:
        raise NotANumberError(f"{_described(value)} ({type(error).__name__}: {error})") from error


def size_problem(metrics: Mapping[str, float]) -> str:
    """Why there are too many `metrics` for one message; empty when there are not."""
    if len(metrics) > MAX_METRICS:
        return f"{len(metrics):,} metrics, and at most {MAX_METRICS:,} can be sent"
    if (names := sum(len(name.encode()) for name in metrics)) > MAX_NAMES_BYTES:
        return f"names of metrics with {names:,} bytes, and at most {MAX_NAMES_BYTES:,} can be sent"
    return ""


def metrics_of(returned: Any, metric: str | None) -> dict[str, float] | Failure:
    """The metrics that a training function returned; a failure when it returned none, or no finite `metric`."""
    if returned is None and metric is None:
        return {}
    try:
        metrics = _mapped(returned) if isinstance(returned, Mapping) else {metric or UNNAMED: number(returned)}
    except NotANumberError as error:
        return Failure(FailureKind.RESULT, f"the function returned {error}; {ALLOWED}")
    if problem := size_problem(metrics):
        return Failure(FailureKind.RESULT, f"the result is too large: it has {problem}; write them to ctx.log_dir")
    return metrics if metric is None else _with(metric, metrics)


def _mapped(returned: Mapping[Any, Any]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, value in returned.items():
        if not isinstance(name, str):
            raise NotANumberError(f"a dict with the key {name!r:.100} of type {type(name).__name__}")
        try:
            metrics[sendable(name)] = number(value)
        except NotANumberError as error:
            raise NotANumberError(f"a dict with a value {name!r:.100} that is {error}") from error
    return metrics


def _with(metric: str, metrics: dict[str, float]) -> dict[str, float] | Failure:
    if metric not in metrics:
        return Failure(FailureKind.METRIC, f"{LACKS_METRIC} {metric!r}; {_alternatives(metric, metrics)}")
    if not math.isfinite(metrics[metric]):
        problem = f"metric {metric!r} is {metrics[metric]}, and no finite number"
        return Failure(FailureKind.METRIC, f"{problem}: did the training diverge? A lower learning rate may help")
    return metrics


def _alternatives(metric: str, metrics: dict[str, float]) -> str:
    if not metrics:
        return "it is empty"
    present = f"it has {', '.join(map(repr, metrics))}"
    near = difflib.get_close_matches(metric, metrics, n=1)
    return f"{present}: is {near[0]!r} meant?" if near else present


def _is_real_scalar(value: Any) -> bool:
    """Whether `value` is a numpy, TensorFlow, Keras, JAX or torch scalar of a real type; none of them is imported."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    try:
        scalar = shape is not None and len(shape) == 0
    except Exception:  # a shape that is unknown
        return False
    return scalar and _REAL_DTYPE.search(str(getattr(dtype, "name", dtype))) is not None


def _described(value: Any) -> str:
    kind = type(value).__name__
    shape = getattr(value, "shape", None)
    if value is None:
        return "None"
    if inspect.isawaitable(value):
        return f"a {kind}, because the function is async: await inside of it, by asyncio.run()"
    if isinstance(value, Mapping | list | tuple | set):
        return f"a {kind} of {len(value)}"
    if shape is not None:
        return f"a {kind} of shape {shape} and type {getattr(value, 'dtype', 'unknown')}"
    return f"{value!r} of type {kind}" if isinstance(value, bool | complex) else f"a value of type {kind}"


def reported_step(value: Any) -> int:
    """The step that a function passes to `ctx.report`. Raises TypeError or ValueError, which name the call."""
    try:
        step = operator.index(value)
    except TypeError:
        step = None
    if step is None or isinstance(value, bool):
        raise TypeError(f"ctx.report(step={value!r:.100}): a step is an integer, not {type(value).__name__}")
    if step < 0:
        raise ValueError(f"ctx.report(step={step}): steps count from 0")
    if step > MAX_STEP:
        raise ValueError(f"ctx.report(): a step of {step.bit_length()} bits is too large: steps must be below 2**63")
    return step


def reported_metric(name: str, value: Any) -> float:
    """The value of a metric that a function passes to `ctx.report`. Raises TypeError, which names the call."""
    try:
        return number(value)
    except NotANumberError as error:
        raise TypeError(f"ctx.report(): metric {name!r} is {error}, and must be a number") from error
