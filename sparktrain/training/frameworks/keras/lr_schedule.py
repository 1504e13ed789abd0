"""Gradual warm-up as a schedule of Keras (Goyal et al., arXiv 1706.02677, section 2.2)."""

from typing import Any

import keras
from keras import ops

from sparktrain.training.learning_rates import check_steps, rate_of


@keras.saving.register_keras_serializable(package="sparktrain")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc] # Keras has no types
    """Rises linearly from `start` to `target` in `warmup_steps` steps, and stays at `target` (section 2.2).

    `target` is a rate, or a schedule: then the line leads to its first rate, and the schedule starts after it, at its
    step 0. `start` is the rate of one member, the argument of `scale_lr`; None: the target divided by `warmup_steps`.
    Raises SpecError.
    """

    def __init__(self, target: Any, warmup_steps: int, start: float | None = None) -> None:
        super().__init__()
        check_steps(warmup_steps, "warmup_steps")
        self._scheduled = isinstance(target, keras.optimizers.schedules.LearningRateSchedule)
        self._target: Any = target if self._scheduled else rate_of(target, "target")
        self._steps = warmup_steps
        self._start = None if start is None else rate_of(start, "start")

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
