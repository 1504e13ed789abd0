"""All pruning rules of one run: what they make of the reports of chiefs, as records of the journal."""

import math
from collections.abc import Iterable, Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import ASHA, PBT, AnyStopRule, Hyperband, Median, Patience, Threshold
from sparktrain.state.outcome import Report
from sparktrain.state.pruning.asha import HalvingRule
from sparktrain.state.pruning.learning_curves import MedianRule, PatienceRule, ThresholdRule
from sparktrain.state.pruning.population import PopulationRule
from sparktrain.state.pruning.promotion import PromotingRule
from sparktrain.state.pruning.rule import Aim, PruningRule
from sparktrain.state.pruning.signed_rank import WilcoxonRule
from sparktrain.state.records import HorizonLearned, RungReached, TrialPromoted

StopperRecord = RungReached | TrialPromoted | HorizonLearned
"""What rules write to the journal."""


class Stopper:
    """The rules of a run. Its state follows from the records that it made alone: `fold` takes those of a driver before.

    A trial is stopped when any rule stops it. Reports without the metric are ignored.
    """

    def __init__(self, rules: Sequence[AnyStopRule], aim: Aim | None) -> None:
        self._rules = [_rule(rule, aim) for rule in rules] if aim is not None else []
        self._aim = aim
        self._waiting: dict[TrialId, list[tuple[int, float | None]]] = {}
        """Steps and values of running trials, as long as a rule does not know how long a trial is."""

    def on_reports(self, trial: TrialId, reports: Iterable[Report]) -> list[StopperRecord]:
        """What follows from new reports of a chief: its rungs, then the trials that are promoted for them."""
        return [*self._on_reports(trial, reports), *self.promotions()]

    def _on_reports(self, trial: TrialId, reports: Iterable[Report]) -> list[RungReached]:
        records: list[RungReached] = []
        for report in reports:
            if self._aim is None or self._aim.metric not in report.metrics:
                continue
            number = report.metrics[self._aim.metric]
            value = number if math.isfinite(number) else None
            # Kept until the first trial has ended: then the rungs are known, and these are judged after all.
            if any(isinstance(rule, HalvingRule) and rule.most is None for rule in self._rules):
                self._waiting.setdefault(trial, []).append((report.step, value))
            records += self._on_value(self._rules, trial, report.step, value)
            if records and not records[-1].continues:
                break
        return records

    def on_end(self, trial: TrialId, *, succeeded: bool) -> list[StopperRecord]:
        """A trial has succeeded, or was stopped by a rule: what follows for those that run."""
        values = self._waiting.pop(trial, [])
        self.fold_end(trial, succeeded=succeeded)
        records: list[StopperRecord] = []
        unknown = [rule for rule in self._rules if isinstance(rule, HalvingRule) and rule.most is None]
        if not succeeded or not values or not unknown:
            return records
        for rule in unknown:
            rule.learn_most(rule.progress(values[-1][0]))
            records.append(HorizonLearned(rule=rule.label, most=rule.most or 0))
        waiting = self._waiting
        self._waiting = {}
        for other_trial, held in sorted(waiting.items()):
            for step, value in held:
                rungs = self._on_value(unknown, other_trial, step, value)  # the other rules have judged it when it came
                records += rungs
                if rungs and not rungs[-1].continues:
                    break
        return records

    def drop(self, trial: TrialId) -> None:
        """A trial has ended without a result: rules learn nothing of it, and neither judge it nor wait for it."""
        self._waiting.pop(trial, None)
        for rule in self._rules:
            rule.trial_dropped(trial)

    def release(self, trial: TrialId) -> None:
        """The trial is to stop for good: no rule judges what it has reported."""
        self._waiting.pop(trial, None)

    def fold(self, record: StopperRecord) -> None:
        """A driver before made this record; rules that are not among those of this run are ignored."""
        for rule in self._rules:
            if rule.label != record.rule:
                continue
            if isinstance(record, RungReached):
                rule.record(record.trial, record.rung, record.value)
            elif isinstance(record, TrialPromoted) and isinstance(rule, PromotingRule):
                rule.promote(record.trial, record.rung)
            elif isinstance(record, HorizonLearned) and isinstance(rule, HalvingRule):
                rule.learn_most(record.most)

    def promotions(self) -> list[StopperRecord]:
        """The trials that wait and may continue now; each is named once."""
        decisions = [(rule, *place) for rule in self._promoting for place in rule.promotable()]
        for rule, trial, rung in decisions:
            rule.promote(trial, rung)
        return [TrialPromoted(trial=trial, rule=rule.label, rung=rung) for rule, trial, rung in decisions]

    def promote_best(self) -> list[StopperRecord]:
        """The best trial that waits continues, whatever its place."""
        for rule in self._promoting:
            if (best := rule.best_waiting()) is not None:
                rule.promote(*best)
                return [TrialPromoted(trial=best[0], rule=rule.label, rung=best[1])]
        return []

    def next_step(self, trial: TrialId) -> int:
        """No rule judges a report of the trial below this step."""
        return min((rule.step(rule.next_due(trial)) for rule in self._rules), default=0)

    def is_whole(self, step: int) -> bool:
        """Whether a trial that reported `step` has all of its steps, as far as a rule knows."""
        lengths = [(rule.most, rule.progress(step)) for rule in self._rules if isinstance(rule, HalvingRule)]
        return any(length is not None and progress >= length for length, progress in lengths)

    @property
    def _promoting(self) -> list[PromotingRule]:
        return [rule for rule in self._rules if isinstance(rule, PromotingRule)]

    def fold_end(self, trial: TrialId, *, succeeded: bool) -> None:
        """Under a driver before, a trial has succeeded, or was stopped by a rule."""
        for rule in self._rules:
            rule.trial_ended(trial, succeeded=succeeded)

    def _on_value(
        self, rules: Sequence[PruningRule], trial: TrialId, step: int, value: float | None
    ) -> list[RungReached]:
        """All of `rules` record the value; the records of the rule that stops the trial come last."""
        going = list[RungReached]()
        stopping = list[RungReached]()
        for rule in rules:
            rungs = self._rungs(rule, trial, step, value)
            stops = bool(rungs) and not rungs[-1].continues
            # All rules record each value, also of a trial that another one stops, or what later trials are compared
            # with would depend on the order of the rules.
            if stops and (not stopping or (stopping[-1].pauses and not rungs[-1].pauses)):
                going = [*going, *stopping]
                stopping = rungs
            else:
                going += rungs
        return [*going, *stopping]

    def _rungs(self, rule: PruningRule, trial: TrialId, step: int, value: float | None) -> list[RungReached]:
        records: list[RungReached] = []
        for point in rule.due(trial, rule.progress(step)):
            why = rule.judge(trial, point, value)
            rule.record(trial, point, value)
            pauses = bool(why) and rule.pauses(value)
            verb = "paused" if pauses else "stopped"
            reason = f"{verb} at step {step}: {self._shown(value)} {why} ({rule.label})" if why else ""
            records.append(
                RungReached(
                    trial=trial, rule=rule.label, rung=point, step=step, value=value, reason=reason, pauses=pauses
                )
            )
            if why:
                break
        return records

    def _shown(self, value: float | None) -> str:
        metric = self._aim.metric if self._aim is not None else ""
        return metric if value is None else f"{metric} {value:.4g}"


def _rule(options: AnyStopRule, aim: Aim) -> PruningRule:
    match options:
        case ASHA(promote=True):
            return PromotingRule(options, aim)
        case ASHA() | Hyperband():
            return HalvingRule(options, aim)
        case Median():
            return MedianRule(options, aim)
        case Patience():
            return PatienceRule(options, aim)
        case Threshold():
            return ThresholdRule(options, aim)
        case PBT():
            return PopulationRule(options, aim)
        case _:
            return WilcoxonRule(options, aim)
