"""What each rule decides, against definitions written a second time, and against values worked out by hand."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import (
    ASHA,
    AnyStopRule,
    Hyperband,
    Median,
    Patience,
    Threshold,
    Wilcoxon,
)
from sparktrain.state.outcome import Report
from sparktrain.state.pruning.asha import HalvingRule
from sparktrain.state.pruning.rule import GRID, Aim, newest_point
from sparktrain.state.pruning.stopper import Stopper
from sparktrain.state.records import HorizonLearned, RungReached

LOSS, ACCURACY = Aim("loss", largest=False), Aim("accuracy", largest=True)


class Trials:
    """Trials that report to the rules of one run."""

    def __init__(self, *rules: AnyStopRule, aim: Aim = LOSS) -> None:
        self.aim = aim
        self.stopper = Stopper(rules, aim)
        self.records: list[RungReached | HorizonLearned] = []

    def report(self, trial: int, step: int, value: float) -> str:
        """Why the trial stops; empty if it continues."""
        found = self.stopper.on_reports(TrialId(trial), [Report(step, {self.aim.metric: value})])
        self.records += found
        return found[-1].reason if found else ""

    def end(self, trial: int, *, succeeded: bool = True) -> None:
        self.records += self.stopper.on_end(TrialId(trial), succeeded=succeeded)

    def stopped(self) -> list[int]:
        return [each.trial for each in self.records if isinstance(each, RungReached) and not each.continues]


def test_rungs_are_late_unless_the_user_wants_them_early() -> None:
    assert ASHA().rungs(27) == (3, 9)
    assert ASHA(first=1).rungs(27) == (1, 3, 9)
    assert ASHA(eta=4).rungs(64) == (4, 16)
    assert ASHA().rungs(2) == (1,)
    assert [Hyperband().rungs(81, each) for each in range(3)] == [(3, 9, 27), (9, 27), (27,)]


def test_the_first_ones_and_ties_continue_and_the_reason_has_the_numbers() -> None:
    trials = Trials(ASHA(most=27), aim=ACCURACY)
    assert trials.report(0, 1, 0.1) == ""  # before the rung
    assert [trials.report(trial, 2, 0.5) for trial in range(3)] == ["", "", ""]
    reason = trials.report(3, 2, 0.4)
    assert reason == "stopped at step 2: accuracy 0.4 is below the best third of 4 (asha(most=27))"
    assert trials.report(4, 2, 0.6) == ""
    assert trials.report(5, 2, math.nan) == "stopped at step 2: accuracy is not finite (asha(most=27))"


def test_a_step_that_a_restart_reports_again_changes_nothing() -> None:
    trials = Trials(ASHA(most=27))
    for trial in range(6):
        trials.report(trial, 2, float(trial < 2))
    before = list(trials.records)
    assert trials.report(0, 2, 99.0) == ""
    assert trials.report(0, 1, 99.0) == ""
    assert trials.records == before


def test_a_trial_that_skips_rungs_is_recorded_at_each_one_and_meets_none_again() -> None:
    trials = Trials(ASHA(most=27))
    assert trials.report(0, 10, 1.0) == ""
    assert [each.rung for each in trials.records if isinstance(each, RungReached)] == [3, 9]
    assert trials.report(0, 11, 0.0) == ""
    assert len(trials.records) == 2


def test_steps_may_count_from_one() -> None:
    assert Trials(ASHA(most=27)).stopper.on_reports(TrialId(0), [Report(2, {"loss": 1.0})]) != []
    later = Stopper([ASHA(most=27, steps_from=1)], LOSS)
    assert later.on_reports(TrialId(0), [Report(2, {"loss": 1.0})]) == []
    assert [each.rung for each in later.on_reports(TrialId(0), [Report(3, {"loss": 1.0})])] == [3]


def test_without_a_length_the_first_success_shows_it_and_what_was_reported_counts_then() -> None:
    trials = Trials(ASHA())
    for step in range(9):
        assert trials.report(0, step, 0.0) == ""
        for trial in (1, 2, 3):
            assert trials.report(trial, step, float(trial)) == ""
    assert trials.records == []
    trials.end(3, succeeded=False)  # pruned by another rule: no measure of a whole trial
    assert trials.records == []
    trials.end(0)
    [learned, *rungs] = trials.records
    assert learned == HorizonLearned(rule="asha", most=9)
    assert [(each.trial, each.rung) for each in rungs if isinstance(each, RungReached)] == [
        (1, 1),
        (1, 3),
        (2, 1),
        (2, 3),
    ]
    assert trials.stopped() == []  # two of them: fewer than eta
    assert trials.report(4, 0, 9.0) != ""


def test_hyperband_compares_within_brackets_and_has_more_trials_in_the_aggressive_ones() -> None:
    trials = Trials(Hyperband(most=27))
    for trial in range(300):
        trials.report(trial, 26, float(trial))
    first = [min(each.rung for each in trials.records if isinstance(each, RungReached) and each.trial == trial)
             for trial in range(300)]  # fmt: skip
    counts = [first.count(rung) for rung in (1, 3, 9)]
    assert sum(counts) == 300
    assert counts[0] > counts[1] > counts[2] > 20


@pytest.mark.long
def test_the_median_rule_equals_its_definition() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        options = Median(warmup=draw.randint(0, 3), min_trials=draw.randint(1, 4))
        trials, curves = Trials(options), dict[int, list[float]]()
        ended: list[int] = []
        for trial in range(12):
            curves[trial] = []
            for step in range(draw.randint(1, 10)):
                value = draw.choice([math.nan, *(draw.randint(0, 6) / 2 for _ in range(9))])
                curves[trial].append(value)
                means = [
                    statistics.fmean(finite)
                    for other in ended
                    if len(curves[other]) > step
                    and (finite := [each for each in curves[other][: step + 1] if not math.isnan(each)])
                ]
                best = min((each for each in curves[trial] if not math.isnan(each)), default=math.inf)
                enough = step + 1 > options.warmup and len(means) >= options.min_trials
                expected = enough and best > statistics.median(means) + 1e-12
                assert bool(trials.report(trial, step, value)) == expected
                if expected:
                    break
            if draw.random() < 0.9:
                trials.end(trial, succeeded=draw.random() < 0.8)
                ended.append(trial)


def test_patience_counts_steps_without_an_improvement_that_is_large_enough() -> None:
    trials = Trials(Patience(steps=3, min_delta=0.1), aim=ACCURACY)
    values = [0.5, 0.55, 0.7, 0.75, math.nan, 0.79]
    assert [bool(trials.report(0, step, value)) for step, value in enumerate(values)] == [False] * 5 + [True]
    assert trials.stopped() == [0]
    assert "accuracy 0.79 has not improved for 3 steps" in trials.records[-1].reason  # type: ignore[union-attr]


def test_a_threshold_bounds_values_after_its_warmup() -> None:
    trials = Trials(Threshold(lower=0.2, upper=0.9, warmup=2))
    assert [trials.report(0, step, 5.0) for step in (0, 1)] == ["", ""]
    assert "loss 5 is above 0.9" in trials.report(0, 2, 5.0)
    assert "loss 0.1 is below 0.2" in trials.report(1, 2, 0.1)
    assert trials.report(2, 2, 0.9) == ""
    assert "is not finite" in Trials(Threshold()).report(0, 0, math.inf)


def test_wilcoxon_compares_with_the_best_trial_over_common_steps() -> None:
    pytest.importorskip("scipy")
    trials = Trials(Wilcoxon())
    for step in range(8):
        assert trials.report(0, step, 1.0 + step) == ""
    trials.end(0)
    better = [trials.report(1, step, 0.5 + step) for step in range(8)]
    assert better == [""] * 8
    worse = [trials.report(2, step, 1.5 + step) for step in range(8)]
    stop = next(step for step, reason in enumerate(worse) if reason)
    assert stop == 3  # p = 1/16 of four differences of one sign
    assert "loss 4.5 is above the best trial at 4 common steps (p = 0.062)" in worse[stop]


def test_any_rule_stops_and_the_first_one_is_named() -> None:
    trials = Trials(Threshold(upper=10), ASHA(most=27), aim=LOSS)
    for trial in range(3):
        trials.report(trial, 2, 1.0)
    reason = trials.report(3, 2, 99.0)
    assert "threshold(upper=10)" in reason
    assert {each.rule for each in trials.records[-2:]} == {"threshold(upper=10)", "asha(most=27)"}


def test_reports_without_the_metric_are_ignored() -> None:
    trials = Trials(ASHA(most=27))
    assert trials.stopper.on_reports(TrialId(0), [Report(5, {"accuracy": 0.1})]) == []


rules = st.sampled_from(
    [ASHA(most=9), ASHA(), ASHA(eta=2, most=8, first=1), Hyperband(most=27), Median(min_trials=2), Patience(steps=2),
     Threshold(upper=3.5)]
)  # fmt: skip
events = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["report", "report", "report", "skip", "end", "prune"]),
              st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, math.nan])),
    max_size=60,
)  # fmt: skip


class Journalled(Trials):
    """Trials with a journal of their records and ends, in order."""

    def __init__(self, *rules: AnyStopRule) -> None:
        super().__init__(*rules)
        self.journal: list[RungReached | HorizonLearned | tuple[int, bool]] = []

    def take(self, trial: int, step: int, what: str, value: float) -> None:
        """The trial reports or ends."""
        before = len(self.records)
        if what in ("end", "prune"):
            self.journal.append((trial, what == "end"))
            self.end(trial, succeeded=what == "end")
        else:
            self.report(trial, step, value)
        self.journal += self.records[before:]

    def successor(self, *rules: AnyStopRule) -> "Journalled":
        """What a driver knows that takes over."""
        other = Journalled(*rules)
        for each in self.journal:
            if isinstance(each, tuple):
                other.stopper.fold_end(TrialId(each[0]), succeeded=each[1])
            else:
                other.stopper.fold(each)
        return other

    @property
    def knows_lengths(self) -> bool:
        """No rule waits for the first success: what came before it is not journalled."""
        waiting = [each for each in self.stopper._rules if isinstance(each, HalvingRule) and each.most is None]
        return not waiting


@given(st.lists(rules, min_size=1, max_size=3, unique=True), events, st.integers(0, 60))
def test_a_driver_that_takes_over_decides_as_the_one_before(
    chosen: list[AnyStopRule], history: list[tuple[int, str, float]], cut: int
) -> None:
    trials, other = Journalled(*chosen), None
    steps, over, taken = dict.fromkeys(range(6), -1), set[int](), 0
    for number, (trial, what, value) in enumerate(history):
        if trial in over or trial in trials.stopped():
            continue
        if other is None and number >= cut and trials.knows_lengths:
            other, taken = trials.successor(*chosen), len(trials.records)
        steps[trial] += {"report": 1, "skip": 3}.get(what, 0)
        for each in filter(None, (trials, other)):
            each.take(trial, steps[trial], what, value)
        if what in ("end", "prune"):
            over.add(trial)
    if other is not None:
        assert other.records == trials.records[taken:]


@pytest.mark.parametrize("progress", [0, 1, 99, 100, 101, 5_000, 10**9, 2**62])
def test_points_of_curves_are_each_step_and_later_a_hundredth(progress: int) -> None:
    point = newest_point(progress)
    assert point <= progress
    assert (progress <= 100 and point == progress) or progress - point <= progress / 100
    assert len([each for each in GRID if each <= 10**9]) < 1_800
