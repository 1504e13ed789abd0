"""Averages over all members at the end of an epoch: metrics, and weights that members have trained by themselves."""

import zlib
from typing import Any

import numpy as np

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import average_weights
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.metrics import NotANumberError, number


class AverageWeights(InternalCallback):
    """Averages at the end of each epoch, before it is validated: metrics, checkpoints and callbacks see one model.

    A `fit` ends with an epoch, also where a member stops it. Comes before all callbacks that read weights then. In
    gangs that average gradients it has nothing to do.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fitting = False

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._fitting = True

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        self._fitting = False

    def on_test_begin(self, logs: Any = None) -> None:
        """Raises RingError."""
        if self._fitting:
            average_weights(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises RingError."""
        average_weights(self.model)


class AverageMetrics(InternalCallback):
    """Replaces each metric of an epoch, and of a separate `evaluate`, by its mean over all members."""

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self._ring = ring
        self._fitting = False

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._fitting = True

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        self._fitting = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises SpecError if the members do not have the same metrics."""
        self._average(logs, "epoch_metrics")

    def on_test_end(self, logs: Any = None) -> None:
        """See on_epoch_end."""
        if not self._fitting:  # the metrics of the epoch include those of evaluations within fit
            self._average(logs, "test_metrics")

    def _average(self, logs: dict[str, Any] | None, name: str) -> None:
        if logs is None or self._ring.size == 1:
            return
        mine = scalars(logs)
        names = sorted(mine)
        # Gather instead of reduce: the same collective finds members with other metrics.
        sent = [len(names), zlib.crc32(repr(names).encode()), *(mine[metric] for metric in names)]
        gathered = self._ring.allgather_array(np.array(sent, "float64"), name=name)
        rows = gathered.reshape(self._ring.size, -1) if len(gathered) == self._ring.size * len(sent) else None
        if rows is None or not (rows[:, :2] == rows[0, :2]).all():
            raise SpecError(
                f"member {self._ring.rank} has the metrics {', '.join(names)}, and another member others: each member "
                "must compile the same metrics, and validate when the others do"
            )
        logs.update(zip(names, rows[:, 2:].mean(axis=0).tolist(), strict=True))


def scalars(logs: dict[str, Any]) -> dict[str, float]:
    """The numbers among the logs, as floats."""
    numbers = {}
    for name, value in logs.items():
        try:
            numbers[name] = number(value)
        except NotANumberError:
            continue
    return numbers
