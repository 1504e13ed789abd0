"""Settings of a sweep, and the seeds of trials."""

import dataclasses
import doctest
import hashlib
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.config import sweep_spec as module
from sparktrain.config.quantities import seconds
from sparktrain.config.sweep_spec import SweepSpec, trial_seed
from sparktrain.errors import SpecError
from tests.support.examples import examples

SEEDS = some.integers(0, 2**63 - 1)
TRIALS = some.integers(0, 100_000)
some_times = examples(40)


@some_times
@given(SEEDS, TRIALS)
def test_a_trial_seed_fits_numpy_and_keras(seed: int, trial: int) -> None:
    assert 0 <= trial_seed(seed, trial) < 2**31
    np.random.RandomState(trial_seed(seed, trial))


@some_times
@given(SEEDS, TRIALS)
def test_a_trial_seed_is_a_function(seed: int, trial: int) -> None:
    assert trial_seed(seed, trial) == trial_seed(seed, trial)


@some_times
@given(SEEDS)
def test_trials_of_a_sweep_have_different_seeds(seed: int) -> None:
    seeds = {trial_seed(seed, trial) for trial in range(1000)}
    assert len(seeds) >= 999  # two of a thousand collide once in 4000 sweeps


def test_seeds_never_change_between_releases() -> None:
    assert doctest.testmod(module).failed == 0
    assert trial_seed(2**63 - 1, 99_999) == 274880627
    assert trial_seed(5, 6) == int(hashlib.sha256(b"sparktrain:5:6").hexdigest()[:8], 16) // 2


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (None, None),
        (90, 90.0),
        (0.5, 0.5),
        (np.float32(2), 2.0),
        (np.int64(3), 3.0),
        (Fraction(1, 2), 0.5),
        (timedelta(minutes=2), 120.0),
        ("90", 90.0),
        ("90s", 90.0),
        (" 1.5m ", 90.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
    ],
)
def test_seconds(given_value: Any, expected: float | None) -> None:
    assert seconds(given_value, "timeout") == expected


@pytest.mark.parametrize("text", ["", "s", "-5", "5 m", "5M", "1e3", "nan", "inf", "5m-", "٣s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(SpecError, match=r"^timeout \("):
        seconds(text, "timeout")


@some_times
@given(some.floats(min_value=1e-9, allow_infinity=False))
def test_seconds_of_a_number_are_the_number(value: float) -> None:
    assert seconds(value, "timeout") == value


def test_a_spec_has_plain_values() -> None:
    spec = SweepSpec(name="mnist-1", trials=np.int64(4), timeout_s=5, seed=np.uint8(3))
    assert (type(spec.trials), type(spec.timeout_s), type(spec.seed)) == (int, float, int)
    assert (spec.mode, spec.max_retries, spec.start_timeout_s) == ("max", 3, 300.0)
    assert spec.member_options.log_limit == 2**30


def test_a_spec_is_frozen_and_checked_when_changed() -> None:
    spec = SweepSpec(name="mnist")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.trials = 3  # type: ignore[misc]
    assert dataclasses.replace(spec, trials=3).trials == 3
    with pytest.raises(SpecError, match="trials"):
        dataclasses.replace(spec, trials=0)


@some_times
@given(some.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?", fullmatch=True))
def test_run_names(name: str) -> None:
    assert SweepSpec(name=name).name == name


@some_times
@given(some.text(max_size=140))
def test_a_proposed_run_name_is_one(name: str) -> None:
    try:
        SweepSpec(name=name)
    except SpecError as error:
        proposed = str(error).rpartition("use ")[2]
        assert SweepSpec(name=proposed.strip("'")).name
