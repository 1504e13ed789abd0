"""Learning rates of a gang: the linear scaling rule and gradual warm-up (Goyal et al., arXiv 1706.02677, 2.1, 2.2)."""

from typing import Any

import keras
from keras import ops

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError


def scale_lr(lr: float, size: int) -> float:
    """`lr` times the number of members: a step uses `size` times the examples (section 2.1). Raises SpecError."""
    return _rate(lr, "lr") * size


@keras.saving.register_keras_serializable(package="sparktrain")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc] # Keras has no types
    """Rises linearly from `start` to `target` in `warmup_steps` steps, and stays at `target` (section 2.2).

    `target` is a rate, or a schedule: then the line leads to its first rate, and the schedule starts after it, at its
    step 0. `start` is the rate of one member, the argument of `scale_lr`; None: the target divided by `warmup_steps`.
    Raises SpecError.
    """

    def __init__(self, target: Any, warmup_steps: int, start: float | None = None) -> None:
        super().__init__()
        if type(warmup_steps) is not int or warmup_steps < 1:
            raise SpecError(f"warmup_steps is {described(warmup_steps)}; pass a number of steps, 1 or more")
        self._scheduled = isinstance(target, keras.optimizers.schedules.LearningRateSchedule)
        self._target: Any = target if self._scheduled else _rate(target, "target")
        self._steps = warmup_steps
        self._start = None if start is None else _rate(start, "start")

    def __call__(self, step: Any) -> Any:
        """The rate of `step`, from 0."""
        step = ops.cast(step, "float32")
        goal = ops.cast(self._after(ops.zeros_like(step)), "float32")
        start = goal / self._steps if self._start is None else self._start
        rising = start + (goal - start) * step / self._steps
        later = ops.cast(self._after(ops.maximum(step - self._steps, 0)), "float32")
        return ops.where(step < self._steps, rising, later)

    def get_config(self) -> dict[str, Any]:
        """See base class."""
        target = keras.saving.serialize_keras_object(self._target) if self._scheduled else self._target
        return {"target": target, "warmup_steps": self._steps, "start": self._start}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Warmup":
        """See base class."""
        target = config["target"]
        if isinstance(target, dict):
            config = config | {"target": keras.saving.deserialize_keras_object(target)}
        return cls(**config)

    def _after(self, step: Any) -> Any:
        return self._target(step) if self._scheduled else ops.full(ops.shape(step), self._target, "float32")


def _rate(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise SpecError(f"{name} is {described(value)}; pass a learning rate, such as 0.1")
    return float(value)
