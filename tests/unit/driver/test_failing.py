"""A sweep ends early when its first trials all fail in the same way; its result names the cause and what to do."""

import logging
from unittest.mock import patch

import pytest

from sparktrain.driver.finish import result
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.trial import TrialStatus
from tests.support.run_stages import in_store
from tests.unit.driver import drivers
from tests.unit.driver.drivers import Driver, World, play, prepared, whole

TRIALS = 20


def test_the_result_says_why_and_the_next_driver_runs_what_has_none(caplog: pytest.LogCaptureFixture) -> None:
    world, run = World(), prepared(TRIALS)
    mistake = Outcome(0.1, failure=Failure(FailureKind.EXCEPTION, "KeyError: 'lr'"))
    with patch.object(drivers, "outcome", lambda x: mistake), caplog.at_level(logging.WARNING, "sparktrain"):
        ran = play(Driver(world, run, whole, agents=3).run())
    assert ran.end.ending == Ending.FAILING
    assert ran.end.reason.startswith("the first 6 trials failed alike, with: KeyError: 'lr'; ")
    [warning] = [each.message for each in caplog.records]
    assert warning == f"run sweep has ended early: {ran.end.reason}"
    made = result(in_store(run, world.store).definition, ran, None)
    assert (made.status, made.reason) == (SweepStatus.FAILED, ran.end.reason)
    assert "KeyError: 'lr'" in str(made)
    failed = [trial.id for trial in made.trials if trial.status is TrialStatus.FAILED]
    again = play(Driver(world, run, whole, agents=3).run())
    assert again.end.ending == Ending.COMPLETE
    assert [trial.id for trial in again.trials if trial.error == mistake.failure] == failed
