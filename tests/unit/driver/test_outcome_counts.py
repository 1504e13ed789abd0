"""Counts of ended trials, and the best case so far."""

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.display.progress import RunStanding
from sparktrain.display.standing import best_line, best_part
from sparktrain.driver.progress_builder import Tally
from sparktrain.state.cases.case_end import CaseEnd
from sparktrain.state.outcome import Outcome
from sparktrain.state.trial import Trial, TrialStatus


def trial(number: int, value: float | None, status: TrialStatus = TrialStatus.SUCCEEDED) -> Trial:
    metrics = {} if value is None else {"y": value}
    return Trial(TrialId(number), {"x": number // 2}, status, outcome=Outcome(0.0, metrics))


def test_with_repeats_the_best_case_is_one_with_all_its_trials() -> None:
    tally = Tally(SweepSpec(name="s", metric="y", mode="max", repeats=2))
    tally.add(trial(3, 0.9))
    assert tally.best is None
    tally.add(trial(0, 0.25))
    tally.add(trial(1, 0.75))
    assert isinstance(tally.best, CaseEnd)
    assert (tally.best.id, tally.best.metrics) == (0, {"y": 0.5})
    tally.add(trial(2, None, TrialStatus.FAILED))
    assert (tally.best.id, tally.best.metrics) == (1, {"y": 0.9})
    tally.add(trial(4, 1.0))
    tally.add(trial(5, None, TrialStatus.PRUNED))
    assert tally.best.id == 1
    assert (tally.done, tally.counts[TrialStatus.PRUNED]) == (6, 1)


@pytest.mark.parametrize(("replicas", "named"), [(1, "trial 7"), (3, "case 7 (mean of 3 trials)")])
def test_how_the_best_is_named(replicas: int, named: str) -> None:
    standing = RunStanding(
        total=9, done=9, running=0, queued=0, failed=0, lost=0, metric="y", best=(7, 0.5), replicas=replicas
    )  # fmt: skip
    assert best_part(standing) == [f"best y 0.5000 in {named}"]
    assert named in best_line(standing, {"x": 1}, "best so far").plain
