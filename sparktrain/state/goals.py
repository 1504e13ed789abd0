"""When a search has found enough, or has cost enough: limits of the whole sweep. Pure."""

import math
from collections.abc import Iterable

from sparktrain.config.objectives import feasible
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state.cases.case_end import CaseEnd
from sparktrain.state.ending import Ending, Stop
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.trial import Trial, TrialStatus


class Goals:
    """The best value of a run, how many trials did not improve it, and the time of its slots."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._sign = -1.0 if spec.mode == "max" else 1.0
        self._best: Trial | CaseEnd | None = None
        self._since_best = 0
        """Cases with a result since the best one."""
        self._word = "trial" if spec.replication.size == 1 else "case"
        self._spent_s = 0.0
        """Time of slots in gangs that are over."""

    def case_ended(self, case: Trial | CaseEnd) -> None:
        """All trials of the case have results, under this driver or an earlier one; a case of one trial is that."""
        value = self._value(case)
        if value is not None and (self._best is None or value < (self._value(self._best) or 0.0)):
            self._best = case
            self._since_best = 0
        else:
            self._since_best += 1

    def gang_ended(self, gang: Gang, at: float) -> None:
        """The gang has given back its slots."""
        self._spent_s += self._held(gang, at)

    def recover_slots(self, seconds: float) -> None:
        """Under an earlier driver a gang has held slots for `seconds` in all, as far as that is recorded."""
        self._spent_s += seconds

    def reached(self) -> Stop | None:
        """Why no further trial is needed, if so."""
        spec = self._spec
        best = self._best
        if spec.metric is None or best is None:
            return None
        value = best.metrics[spec.metric]
        if spec.target is not None and self._sign * value <= self._sign * spec.target:
            reason = f"{self._word} {best.id} reached the target: {spec.metric} {value:.6g} (target={spec.target:g})"
            return Stop(reason, Ending.TARGET)
        if spec.plateau is not None and self._since_best >= spec.plateau:
            reason = (
                f"none of the last {self._since_best} {self._word}s was better than {self._word} {best.id} "
                f"({spec.metric} {value:.6g}; plateau={spec.plateau})"
            )
            return Stop(reason, Ending.PLATEAU)
        return None

    def spent(self, running: Iterable[Gang], at: float) -> Stop | None:
        """Why the run ends, where its slots have trained for as long as they may."""
        budget = self._spec.budget_s
        if budget is None or self._spent_s + sum(self._held(gang, at) for gang in running) < budget:
            return None
        return Stop(f"its slots have trained for the budget of {budget / 3600:g} slot-hours", Ending.BUDGET)

    def _held(self, gang: Gang, at: float) -> float:
        return gang.size * max(0.0, at - gang.attendance.formed_at)

    def _value(self, case: Trial | CaseEnd) -> float | None:
        """The metric as a number that is better when smaller; None where the case has no end that counts."""
        value = case.metrics.get(self._spec.metric or "", math.nan)
        counts = case.status is TrialStatus.SUCCEEDED and feasible(case.metrics, self._spec.constraints)
        return self._sign * value if counts and math.isfinite(value) else None
