"""What several metrics of a trial shall be: the better end of each, and bounds that a trial must keep. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparktrain.config.metric_names import Mode, metric_name, mode_of
from sparktrain.config.param_values import described, shown
from sparktrain.errors import SpecError

GRAMMAR: Final = "write METRIC <= NUMBER, with one of <=, <, >= and >, such as 'latency_ms <= 20'"
_BOUND: Final = re.compile(r"(?P<metric>[^<>=]+?)\s*(?P<operator>[<>]=?)\s*(?P<bound>[^<>=\s]+)")


@dataclass(frozen=True)
class Objective:
    """A metric, and which of its ends is better."""

    metric: str
    mode: Mode

    def loss(self, metrics: Mapping[str, float]) -> float:
        """The metric as a number that is better when smaller; NaN without it, or where it is not finite."""
        value = metrics.get(self.metric, math.nan)
        return math.nan if not math.isfinite(value) else -value if self.mode == "max" else value


@dataclass(frozen=True)
class Constraint:
    """A bound that a metric of a trial must keep, or the trial is infeasible."""

    metric: str
    operator: str
    """`<=`, `<`, `>=` or `>`."""
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.bound:.12g}"

    def excess(self, metrics: Mapping[str, float]) -> float:
        """By how much the metric is beyond the bound: at most 0 where the bound holds; NaN without the metric."""
        value = metrics.get(self.metric, math.nan)
        beyond = value - self.bound if self.operator.startswith("<") else self.bound - value
        # Optuna takes 0 for a bound that holds, and a strict one that is met exactly is broken.
        return math.ulp(self.bound) if beyond == 0 and not self.operator.endswith("=") else beyond

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether the trial keeps the bound; one without the metric, or with NaN, does not."""
        value = metrics.get(self.metric, math.nan)
        if value == self.bound:
            return self.operator.endswith("=")
        return value < self.bound if self.operator.startswith("<") else value > self.bound


def objectives(value: object, subject: str = "objectives") -> tuple[Objective, ...]:
    """`{"accuracy": "max", "latency_ms": "min"}` as objectives, in that order; also as texts such as "accuracy:max".

    None as a direction, or a text without one, is the one that the metric's name implies. Raises SpecError.
    """
    if isinstance(value, tuple) and all(isinstance(objective, Objective) for objective in value):
        return value
    if value == []:
        return ()
    directions = value
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value):
        directions = dict(_parted(text) for text in value)
        if len(directions) < len(value):
            raise SpecError(f"{subject} ({shown(list(value))}) names a metric twice; name each of them once")
    if not isinstance(directions, Mapping) or not directions:
        raise SpecError(
            f"{subject} is {described(value)}; pass a dict of at least one metric and its better end, such as "
            '{"accuracy": "max", "latency_ms": "min"}'
        )
    goals = []
    for name, way in directions.items():
        if (metric := metric_name(name, f"{subject}: the name of a metric")) is None:
            raise SpecError(f"{subject}: the name of a metric is None; name a key of the function's result")
        goals.append(Objective(metric, mode_of(metric, way, f"{subject}[{shown(metric)}]")))
    return tuple(goals)


def constraints(value: object, subject: str = "constraints") -> tuple[Constraint, ...]:
    """`["latency_ms <= 20", "size_mb < 5"]` as constraints, in that order. Raises SpecError."""
    if isinstance(value, tuple) and all(isinstance(constraint, Constraint) for constraint in value):
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(f"{subject} is {described(value)}, a list of texts is expected; {GRAMMAR}")
    return tuple(_constraint(text, f"{subject}[{number}]") for number, text in enumerate(value))


def feasible(metrics: Mapping[str, float], bounds: Sequence[Constraint]) -> bool:
    """Whether a trial with these metrics keeps all the bounds."""
    return all(bound.holds(metrics) for bound in bounds)


def _parted(text: str) -> tuple[str, str | None]:
    name, colon, way = text.rpartition(":")
    return (name, way) if colon else (text, None)


def _constraint(text: object, subject: str) -> Constraint:
    if not isinstance(text, str):
        raise SpecError(f"{subject} is {described(text)}, text is expected; {GRAMMAR}")
    parts = _BOUND.fullmatch(text.strip())
    if parts is None:
        raise SpecError(f"{subject} ({shown(text)}) is no bound of a metric; {GRAMMAR}")
    try:
        bound = float(parts["bound"])
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise SpecError(f"{subject} ({shown(text)}) has the bound {shown(parts['bound'])}, no finite number; {GRAMMAR}")
    return Constraint(parts["metric"], parts["operator"], bound)
