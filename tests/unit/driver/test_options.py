"""From the options of a call to what they mean."""

from typing import Any

import pytest

from sparktrain.config.gang_spec import Backend, GangSpec
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.errors import SpecError


def test_an_option_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(
        SpecError, match=r"no option 'trial_timout'.*did you mean 'trial_timeout'.*its options are mode, backend"
    ):
        SweepOptions(metric="y", mode="max", trial_timout=5)
    assert SweepOptions(metric="y", mode="max", max_retries=1) == SweepOptions(metric="y", mode="max", max_retries=1)


def test_a_sweep_trains_each_trial_in_one_process_unless_told_otherwise() -> None:
    assert SweepOptions().gang() == GangSpec()
    gang = SweepOptions(workers_per_trial=2, backend="none").gang()
    assert gang == GangSpec(workers=2, backend=Backend.NONE)


def test_what_limits_a_run_and_a_sweep() -> None:
    assert RunOptions(workers=2, max_retries=5).limits() == {"max_retries": 5, "recovers": True}
    assert SweepOptions(max_retries=1, trials=4, trial_timeout="1m").limits() == {
        "trials": 4, "trial_timeout_s": 60.0, "report_timeout_s": None, "max_retries": 1,
        "repeats": 1, "folds": 1, "racing": True,
        "max_failures": "auto", "stopper": (), "other_metrics": (), "constraints": (),
        "target": None, "plateau": None, "budget_s": None,
    }  # fmt: skip


def test_a_gang_of_a_run() -> None:
    options = RunOptions(workers=2, ps=1, evaluator=True, backend="tensorflow", hang_timeout="5m")
    expected = GangSpec(workers=2, ps=1, evaluator=True, backend=Backend.TENSORFLOW, hang_timeout_s=300.0)
    assert options.gang() == expected
    served = RunOptions(workers=3, ps=2, backend="parameter-server", ps_mode="sync", backup_workers=1).gang()
    assert served.servers == ServerSettings(ServerMode.SYNC, 3, 1)
    assert RunOptions(workers=3, min_workers=2).gang() == GangSpec(workers=3, min_workers=2)


def test_gangs_of_runs_and_of_sweeps_average_weights() -> None:
    assert RunOptions(workers=3, local_steps=8).gang() == GangSpec(workers=3, local_steps=8)
    assert SweepOptions(workers_per_trial=2, local_steps=4).gang() == GangSpec(workers=2, local_steps=4)
    served = RunOptions(workers=3, ps=2, backend="parameter-server", ps_mode="local-sgd", local_steps=8).gang()
    assert served.servers == ServerSettings(ServerMode.LOCAL_SGD, 3)


@pytest.mark.parametrize("backend", ["auto", "tensorflow"])
def test_local_steps_beside_a_strategy_are_refused(backend: Any) -> None:
    options = RunOptions(workers=2, backend=backend, local_steps=8)
    with pytest.raises(SpecError, match="local_steps=8 with a function that makes a strategy of TensorFlow"):
        options.choice(options.gang(), strategy=True)
