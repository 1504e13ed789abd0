"""The trials that repeats and folds make of each case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.config.replication import Replica, Replication
from sparktrain.config.stoppers import ASHA
from sparktrain.config.sweep_spec import SweepSpec, trial_seed
from sparktrain.errors import SpecError

numbers = st.integers(1, 12)


@given(numbers, numbers, st.integers(0, 500))
def test_case_repeat_and_fold_follow_from_the_number(repeats: int, folds: int, case: int) -> None:
    shape = Replication(repeats, folds)
    trials = list(shape.trials(case))
    assert [shape.case(trial) for trial in trials] == [case] * (repeats * folds)
    expected = [Replica(repeat, fold, repeats, folds) for repeat in range(repeats) for fold in range(folds)]
    assert [shape.replica(trial) for trial in trials] == expected
    assert trials[-1] + 1 == shape.trials(case + 1)[0]


@given(numbers, numbers, st.integers(0, 50), st.integers(0, 50))
def test_seeds_differ_between_repeats_alone(repeats: int, folds: int, one: int, other: int) -> None:
    spec = SweepSpec(name="s", seed=7, repeats=repeats, folds=folds)
    shape = spec.replication
    if shape.size == 1:
        assert spec.seed_of(one) == trial_seed(7, one)
        return
    seeds = [[spec.seed_of(trial) for trial in shape.trials(case)] for case in (one, other)]
    assert seeds[0] == seeds[1], "the same repeats of all cases have the same seeds"
    assert len(set(seeds[0])) == repeats
    assert all(len(set(seeds[0][at : at + folds])) == 1 for at in range(0, shape.size, folds))


def test_how_many_trials_there_are() -> None:
    assert Replication(3, 5).counted(40) == "40 sets of parameters x 3 repeats x 5 folds = 600 trials"
    assert Replication(1, 2).counted(1) == "1 set of parameters x 2 folds = 2 trials"
    assert Replication(2, 1).counted(3) == "3 sets of parameters x 2 repeats = 6 trials"
    assert Replication().counted(1) == "1 trial"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repeats": 0}, "repeats.*0"),
        ({"folds": 0}, "folds.*0"),
        ({"repeats": 2.5}, "repeats"),
        ({"folds": True}, "folds"),
        ({"repeats": 50, "folds": 21}, "1050 trials for each set of parameters, and must be at most 1000"),
        ({"repeats": 2, "metric": "y", "stopper": ASHA(most=9, promote=True)}, "pass promote=False"),
    ],
)
def test_bad_numbers_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SweepSpec(name="s", **fields)  # type: ignore[arg-type]
