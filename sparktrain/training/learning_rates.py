"""Learning rates of a gang: the linear scaling rule and gradual warm-up (arXiv 1706.02677, 2.1, 2.2)."""

import importlib
from typing import Any

from sparktrain.base.model_kinds import named_kind
from sparktrain.config.param_values import described
from sparktrain.errors import SpecError
from sparktrain.training.frameworks.imported import owner


def scale_lr(lr: float, size: int) -> float:
    """`lr` times the number of members: a step uses `size` times the examples (section 2.1). Raises SpecError."""
    return rate_of(lr, "lr") * size


def warmup_lr(optimizer: Any, steps: int, size: int) -> Any:
    """The schedule of `TrainContext.warmup_lr` in a gang of `size` members, by the framework of `optimizer`.

    Raises SpecError for an optimizer of a framework that has none, and for less than one step.
    """
    framework = owner(optimizer)
    if framework is None or framework.schedules is None:
        raise SpecError(
            f"ctx.warmup_lr() got {named_kind(optimizer)}, and takes an optimizer of PyTorch: for Keras pass warmup= "
            "to ctx.keras_callbacks(), or sparktrain.Warmup(rate, steps) as the learning rate"
        )
    return importlib.import_module(framework.schedules).warmup_lr(optimizer, steps, size)


def warmup_factor(step: int, steps: int, size: int) -> float:
    """What step number `step` multiplies the rate of `size` members by: a line from that of one in `steps` steps."""
    return 1.0 if step >= steps else 1 / size + (1 - 1 / size) * step / steps


def rate_of(value: Any, name: str) -> float:
    """`value` as a learning rate. Raises SpecError, which calls it `name`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise SpecError(f"{name} is {described(value)}; pass a learning rate, such as 0.1")
    return float(value)


def check_steps(value: Any, name: str) -> None:
    """Raise SpecError unless `value` is a number of steps, which the error calls `name`."""
    if type(value) is not int or value < 1:
        raise SpecError(f"{name} is {described(value)}; pass a number of steps, 1 or more")
