"""Reports of libraries that log the metrics of one step in several pieces, and the answer that follows them."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from sparktrain.training.current_context import context


class LoggedMetrics:
    """Collects the metrics of a step, and reports them once. Outside of a trial it does nothing.

    For one thread of the process that trains.
    """

    def __init__(self) -> None:
        self._step = 0
        self._reported_step = -1
        self._metrics: dict[str, Any] = {}
        """Those of the step that are not reported yet."""

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add metrics of a step. Reports those of an earlier one. Raises as `TrainContext.report`."""
        if step != self._step:
            self.flush()
        self._step = step
        self.extend(metrics)

    def extend(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics of the newest step."""
        self._metrics |= metrics

    def flush(self) -> None:
        """Report what was added. Metrics that come after the report of their step get the next one. Raises as `add`."""
        ctx = context()
        metrics = self._metrics
        self._metrics = {}
        if ctx is None:
            return
        if self._step == self._reported_step:  # libraries log values of an epoch at its end, and again as a summary
            metrics = {name: value for name, value in metrics.items() if ctx.reported.get(name) != value}
        if metrics:
            self._reported_step = self._step
            ctx.report(max(self._step, ctx.next_step), **metrics)


def must_stop() -> bool:
    """Whether the run asks the trial to stop: the answer of rank 0, which all members of a gang get.

    Every member calls it after the same step, and blocks until all do; outside of a trial it is False.
    """
    ctx = context()
    if ctx is None:
        return False
    answer = [ctx.rank == 0 and ctx.should_stop()]
    if dist.is_initialized():
        dist.broadcast_object_list(answer, 0)
    return answer[0]
