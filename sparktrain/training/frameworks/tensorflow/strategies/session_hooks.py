"""Hooks for sessions of TensorFlow 1: they report steps, and save the variables. Imports TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sparktrain.base.clock import Clock
from sparktrain.rundir.newest_step import newest_step

v1 = tf.compat.v1

REPORT_EVERY_S = 0.5
"""How often steps are reported."""


@dataclass(frozen=True)
class Every:
    """When to save: after a number of steps, or of seconds, whichever is given."""

    steps: int | None
    seconds: float | None

    def due(self, steps: int, seconds: float) -> bool:
        """Whether a save is due `steps` and `seconds` after the one before."""
        return (self.steps is not None and steps >= self.steps) or (
            self.seconds is not None and seconds >= self.seconds
        )


def variables_of(graph: Any) -> list[Any]:
    """The variables of `graph` that members share."""
    with graph.as_default():
        return list(v1.global_variables())


class ReportSteps(v1.train.SessionRunHook):  # type: ignore[name-defined, misc]  # TensorFlow has no types
    """Reports the global step before this member's first step and after each one, every half second at most."""

    def __init__(self, report: Callable[[int, bool], None], global_step: Any, clock: Clock) -> None:
        self._report = report
        self._global_step = global_step
        self._clock = clock
        self._reported_at = float("-inf")
        self._step: int | None = None

    def before_run(self, run_context: Any) -> Any:
        """See base class."""
        if self._step is None:
            # Without it the report after the first step has no rate, and passes for that of a member that compiles.
            self._report_now(run_context.session)
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """See base class."""
        self._step = int(run_values.results)
        newest_step.mark(self._step)
        if self._clock.now() >= self._reported_at + REPORT_EVERY_S:
            self._reported_at = self._clock.now()
            self._report_now(run_context.session)

    def _report_now(self, session: Any) -> None:
        # By a call of its own: a step reads the number before it or after it has counted it, as threads have it.
        self._step = int(session.run(self._global_step))
        self._report(self._step, True)

    def end(self, session: Any) -> None:
        """See base class."""
        self._report(self._step or 0, False)


class SaveVariables(v1.train.SessionRunHook):  # type: ignore[name-defined, misc]  # as above
    """Saves all variables as a checkpoint of the run, and once more at the end."""

    def __init__(self, saver: Any, global_step: Any, every: Every, clock: Clock) -> None:
        self._saver = saver
        self._global_step = global_step
        self._every = every
        self._clock = clock
        self._saved_step: int | None = None
        self._saved_at = 0.0

    def before_run(self, run_context: Any) -> Any:
        """See base class."""
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save when that is due. Blocks while the variables are fetched from their servers."""
        step = int(run_values.results)
        now = self._clock.now()
        if self._saved_step is None:
            self._saved_step = step
            self._saved_at = now
        elif self._every.due(step - self._saved_step, now - self._saved_at):
            self.save(run_context.session)

    def end(self, session: Any) -> None:
        """See base class."""
        self.save(session)

    def save(self, session: Any) -> None:
        """Save the variables of `session` now, unless they have been saved at their step."""
        named = {variable.name: variable for variable in variables_of(session.graph)}
        step, values = session.run((self._global_step, named))
        if self._saved_step is None or int(step) > self._saved_step:
            self._saver.save(int(step), variables=values)
        self._saved_step = int(step)
        self._saved_at = self._clock.now()
