"""What a program reaches of the trial that runs it without an argument: for scripts, which get none."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext

_current: "TrainContext | None" = None


def enter(context: "TrainContext") -> None:
    """Make `context` that of this process. A member calls it once, before code of the user runs."""
    global _current
    _current = context


def context() -> "TrainContext | None":
    """The context of the trial that runs this process: what functions get as `ctx`. None outside of a trial.

    For scripts and libraries, which get no argument. Any thread may call it; does not block.
    """
    return _current


def report(step: int | None = None, /, **metrics: float) -> None:
    """Report metrics of a finished step, as `ctx.report` does. Outside of a trial it does nothing.

    Without a step, the step is the one after the last that was reported. So one script trains by itself and in a sweep.
    In a gang each member may call it, and the chief's reports count. Any thread may call it; does not block. Raises as
    `TrainContext.report`.
    """
    if _current is None:
        return
    if step is None and "step" not in metrics:
        step = _current.next_step
    _current.report(step, **metrics)
