"""What an `Accelerator` gets for a trial: a tracker that reports."""

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from sparktrain.training.current_context import context


class TrialTracker(GeneralTracker):  # type: ignore[misc]  # accelerate is not installed where types are checked
    """Reports what `Accelerator.log` gets as metrics of the trial: for `Accelerator(log_with=...)`.

    Call `Accelerator.init_trackers` as for any other tracker. Parameters are those of the trial, so the configuration
    is not logged. Outside of a trial it does nothing.
    """

    name = "sparktrain"
    requires_logging_directory = False

    @property
    def tracker(self) -> Any:
        """The context of the trial; None outside of one."""
        return context()

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Report values of a step; a second call for it counts as the next one. Raises as `TrainContext.report`."""
        if (ctx := context()) is not None:
            ctx.report(max(step or 0, ctx.next_step), **values)
