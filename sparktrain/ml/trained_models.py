"""The models of a sweep, for Spark's tuning."""

import threading
from collections.abc import Iterator, Sequence

from sparktrain.errors import RunFailedError
from sparktrain.ml.keras_model import KerasModel
from sparktrain.runs.trial_result import TrialResult


class TrainedModels(Iterator[tuple[int, KerasModel]]):
    """Models by index, or the error in place of one. Any thread may call `next`, which does not block."""

    def __init__(self, models: Sequence[KerasModel | Exception]) -> None:
        self._models = models
        self._next = 0
        # CrossValidator calls `next` from the threads of a pool.
        self._lock = threading.Lock()

    def __next__(self) -> tuple[int, KerasModel]:
        with self._lock:
            index = self._next
            self._next += 1
        if index >= len(self._models):
            raise StopIteration
        outcome = self._models[index]
        if isinstance(outcome, Exception):
            raise outcome
        return index, outcome


def failed(trial: TrialResult | None, directory: str | None) -> RunFailedError:
    """The error in place of the model of a trial that did not succeed, or of one that never ran."""
    if trial is None or trial.error is None:
        error = RunFailedError(
            f"the model of a param map was not trained, because the sweep at {directory} ended before: see its other "
            "trials"
        )
    else:
        error = RunFailedError(
            f"training the model of a param map failed (trial {trial.id} of {directory}): {trial.error}"
        )
        error.traceback = trial.error.traceback
        error.log_tail = trial.error.log_tail
        error.rank = trial.error.rank
        error.host = trial.error.host
        error.log = trial.log
    error.directory = directory
    return error
