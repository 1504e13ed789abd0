"""What several metrics of a trial shall be: the better end of each, and bounds that a trial must keep. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparktrain.config.direction import mode_of
from sparktrain.config.param_values import described, shown
from sparktrain.config.sweep_spec import Mode, metric_name
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

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether the trial keeps the bound; one without the metric, or with NaN, does not."""
        value = metrics.get(self.metric, math.nan)
        if value == self.bound:
            return self.operator.endswith("=")
        return value < self.bound if self.operator.startswith("<") else value > self.bound


def objectives(value: object, subject: str = "objectives") -> tuple[Objective, ...]:
    """`{"accuracy": "max", "latency_ms": "min"}` as objectives, in that order.

    None as a direction is the one that the metric's name implies. Raises SpecError.
    """
    if not isinstance(value, Mapping) or not value:
        raise SpecError(
            f"{subject} is {described(value)}; pass a dict of at least one metric and its better end, such as "
            '{"accuracy": "max", "latency_ms": "min"}'
        )
    found = []
    for name, way in value.items():
        if (metric := metric_name(name, f"a metric of {subject}")) is None:
            raise SpecError(f"a metric of {subject} is None; name a key of what the training function returns")
        found.append(Objective(metric, mode_of(metric, way, f"{subject}[{shown(metric)}]")))
    return tuple(found)


def constraints(value: object, subject: str = "constraints") -> tuple[Constraint, ...]:
    """`["latency_ms <= 20", "size_mb < 5"]` as constraints, in that order. Raises SpecError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(f"{subject} is {described(value)}, a list of texts is expected; {GRAMMAR}")
    return tuple(_constraint(each, f"{subject}[{number}]") for number, each in enumerate(value))


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
