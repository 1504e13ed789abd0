"""The name of a metric, and which of its ends is better. Pure."""

from typing import Literal, cast

from sparktrain.config.param_values import described, shown
from sparktrain.errors import SpecError

Mode = Literal["max", "min"]


def metric_name(value: object, subject: str = "metric") -> str | None:
    """`value` when it is None or can name a metric. Raises SpecError."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise SpecError(
            f"{subject} is {described(value)}, text is expected; name a key of what the training function returns"
        )
    if not value or value != value.strip():
        raise SpecError(
            f"{subject} ({shown(value)}) is empty or has spaces at its ends; name a key of what the training function "
            "returns"
        )
    return value


def mode(value: object, subject: str = "mode") -> Mode:
    """`value` when it is "max" or "min". Raises SpecError."""
    if not isinstance(value, str) or value not in ("max", "min"):
        raise SpecError(f"{subject} ({shown(value)}) must be 'max' or 'min': name the better end of the metric")
    return cast(Mode, value)
