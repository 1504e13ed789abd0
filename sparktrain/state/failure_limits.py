"""When failed trials end their run: the first ones all alike, too many in all, or refused arguments. Pure."""

import re
from collections.abc import Sequence

from sparktrain.base.ids import TrialId
from sparktrain.state.events import RunLimits
from sparktrain.state.outcome import LACKS_METRIC, REFUSES_ARGUMENTS, Failure, FailureKind
from sparktrain.state.trial import Trial, TrialStatus

_OF_VALUES = frozenset({FailureKind.MEMORY, FailureKind.TIMEOUT, FailureKind.HANG, FailureKind.CHECKPOINT})
"""Failures that may depend on the values of the parameters."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FRAME = re.compile(r'^ *File "[^"]+", line \d+.*$', re.MULTILINE)


def alike(failures: Sequence[Failure]) -> bool:
    """Whether all have failed in the same way, which points to the function and not to its parameters.

    That is the same exception from the same line, the same words up to numbers, or a result without the metric. A
    metric that is not finite, memory and time may depend on the values, and the first trials of a grid share most of
    them.
    """
    kinds = {failure.kind for failure in failures}
    if len(kinds) != 1 or kinds & _OF_VALUES:
        return False
    if kinds == {FailureKind.METRIC}:
        return all(LACKS_METRIC in failure.summary for failure in failures)
    if kinds == {FailureKind.RESULT}:
        return True
    places = {_place(failure) for failure in failures}
    words = {_NUMBER.sub("#", failure.summary) for failure in failures}
    return len(words) == 1 or (len(places) == 1 and None not in places)


def _place(failure: Failure) -> tuple[str, str] | None:
    """The type of an exception, and the innermost line of its traceback."""
    frames = _FRAME.findall(failure.traceback)
    return (failure.summary.partition(":")[0], frames[-1]) if frames else None


class Failures:
    """Trials of a run that have failed under this driver."""

    def __init__(self, limits: RunLimits) -> None:
        self.succeeded = False
        """Some trial of the run has succeeded, under this driver or an earlier one."""
        self._limits = limits
        self._first: dict[TrialId, Failure | None] = {}
        """The trials that started first, not counting lost ones."""
        self._count = 0

    def started(self, trial: Trial) -> None:
        """The trial has a gang."""
        if len(self._first) < (self._limits.alike_failures or 0):
            self._first.setdefault(trial.id, None)

    def ended(self, trial: Trial) -> None:
        """The trial has its final status."""
        self.succeeded = self.succeeded or trial.status is TrialStatus.SUCCEEDED
        if trial.status is TrialStatus.LOST:
            self._first.pop(trial.id, None)
        if trial.status is TrialStatus.FAILED:
            self._count += 1
            if trial.id in self._first:
                self._first[trial.id] = trial.failure

    def reason(self, last: Failure) -> str:
        """Why the run ends now that a trial has failed with `last`; empty if it continues."""
        limits = self._limits
        most = limits.spec.max_failures
        if isinstance(most, int) and self._count >= most:
            trials_text = f"{self._count} trial{'s' * (self._count > 1)}"
            return f"{trials_text} failed (max_failures={most}), the last with: {last.summary}"
        first = [failure for failure in self._first.values() if failure is not None]
        if self.succeeded or limits.alike_failures is None:
            return ""
        if REFUSES_ARGUMENTS in last.summary:  # all trials have the same options
            return f"a first trial failed with: {last.summary}"
        if len(first) < limits.alike_failures or not alike(first):
            return ""
        return f"the first {len(first)} trials failed alike, with: {first[0].summary}"
