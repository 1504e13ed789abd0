"""Reports to callbacks what happens in a run, from its state to their events."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sparktrain.base.boundary import message_of
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import CHIEF, Member
from sparktrain.driver.prepare.attached_run import AttachedRun
from sparktrain.driver.tracking.callback import TrackedEnd, TrackedReport, TrackedResult, TrackedRun, TrackedTrial
from sparktrain.driver.tracking.delivery import Delivery
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import best_of
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.outcome import Report

FLUSH_S = 30.0
"""How long the end of a run waits for all its callbacks together."""
STUCK_S = 1.0
"""How long one method may take once the user has pressed Ctrl-C."""


class CallbackFeed:
    """The callbacks of one run. `placed`, `reported` and `trial_ended` belong to the coordinator's event loop, and do
    not block."""

    def __init__(self, run: TrackedRun, callbacks: Sequence[Any], flush_s: float) -> None:
        self._run = run
        self._deliveries = [Delivery(callback) for callback in callbacks]
        self._flush_s = flush_s
        self._trials: dict[int, TrackedTrial] = {}
        self._reports: Counter[int] = Counter()
        self._over = False
        self._announce("run_started", run)

    def placed(self, member: Member, params: Mapping[str, Any]) -> None:
        """A member starts."""
        tracked_trial = self._trials.get(member.trial)
        if not self._deliveries or (tracked_trial is not None and tracked_trial.generation == member.generation):
            return
        started = TrackedTrial(
            id=self._id(member.trial), number=member.trial, params=dict(params), generation=member.generation
        )
        self._trials[member.trial] = started
        self._announce("trial_started", started)

    def reported(self, member: Member, reports: Sequence[Report]) -> None:
        """A member has reported; only the chief's reports count."""
        trial = self._trials.get(member.trial)
        if member.rank != CHIEF or trial is None:
            return
        self._reports[member.trial] += len(reports)
        passed = tuple(
            TrackedReport(
                generation=member.generation, step=report.step, time=report.time, metrics=dict(report.metrics)
            )
            for report in reports
        )
        for delivery in self._deliveries:
            delivery.report(trial, passed)

    def trial_ended(self, trial: TrialResult) -> None:
        """A trial has its final status."""
        self._announce("trial_ended", self._end_of(trial))
        self._trials.pop(trial.id, None)

    def ended(self, sweep_result: SweepResult) -> None:
        """The run is over. Any thread; does not block."""
        best = best_of(sweep_result.trials, sweep_result.metric, sweep_result.mode, sweep_result.constraints)
        self._finish(
            status=sweep_result.status.value,
            reason=sweep_result.reason or "",
            seconds=sweep_result.seconds,
            best=None if best is None else int(best.id),
            trials=tuple(map(self._end_of, sweep_result.trials)),
        )

    def broken(self, error: BaseException) -> None:
        """The call raises `error`; only the first end counts. Any thread; does not block."""
        reason = (message_of(error).strip() or type(error).__name__).splitlines()[0]
        self._finish(status="error", reason=reason, seconds=0.0, best=None)

    def close(self, stuck_s: float | None = None) -> None:
        """Let all callbacks handle what waits. Blocks for the limit of `FLUSH_S` at most, and not for a callback that
        is in one method for more than `stuck_s` seconds."""
        clock = SystemClock()
        deadline = clock.now() + self._flush_s
        for delivery in self._deliveries:
            delivery.expect_end(self._flush_s)
        for delivery in self._deliveries:
            delivery.close(max(0.0, deadline - clock.now()), stuck_s)

    def _finish(self, **result: Any) -> None:
        if not self._over:
            self._over = True
            self._announce("run_ended", TrackedResult(run=self._run, **result))

    def _announce(self, method: str, event: Any) -> None:
        for delivery in self._deliveries:
            delivery.add(method, event)

    def _id(self, trial: int) -> str:
        return f"{self._run.id}-{trial}"

    def _end_of(self, trial: TrialResult) -> TrackedEnd:
        return TrackedEnd(
            id=self._id(trial.id),
            number=trial.id,
            params=dict(trial.params),
            generation=trial.generations,
            status=trial.status.value,
            metrics=dict(trial.metrics),
            seconds=trial.seconds,
            error="" if trial.error is None else trial.error.summary,
            reports=self._reports[trial.id],
        )


def tracked(run: AttachedRun, run_id: str) -> TrackedRun:
    """The run of this id as callbacks know it; it has its `run.json`. Blocks on the store. Raises OSError."""
    definition = run.definition
    started = json.loads(definition.store.read(definition.layout.spec)).get("started") or 0.0
    spec = definition.spec
    return TrackedRun(
        id=run_id,
        name=spec.name,
        directory=definition.where,
        kind=definition.plan.kind,
        function=definition.plan.function,
        metric=spec.metric,
        mode=spec.mode,
        started=started,
        resumed=run.stored_run is not None,
    )


@contextmanager
def listening(run: AttachedRun, run_id: str) -> Iterator[CallbackFeed | None]:
    """What reports to the callbacks of the run, until it is over and they have handled that; None without callbacks.

    Blocks on the store at first, and for `FLUSH_S` at the end; after Ctrl-C not for a callback that is stuck.
    """
    callbacks = run.call.observers.callbacks
    if not callbacks:
        yield None
        return
    feed = CallbackFeed(tracked(run, run_id), callbacks, FLUSH_S)
    stuck_s = None
    try:
        yield feed
    except BaseException as error:
        # After Ctrl-C the user waits too: a server that hangs must not hold the end of the call for the full flush.
        stuck_s = STUCK_S if isinstance(error, KeyboardInterrupt) else None
        feed.broken(error)
        raise
    finally:
        feed.close(stuck_s)
