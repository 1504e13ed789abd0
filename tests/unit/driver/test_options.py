"""From the options of a call to what they mean."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.call_option import settled
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.option_catalog import LaunchKeywords
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.config.stoppers import ASHA
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.errors import SpecError
from sparktrain.runs.plan import spec_fields
from sparktrain.usercode.framework_imports import NO_IMPORTS


def test_an_option_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(
        SpecError, match=r"no option 'trial_timout'.*did you mean 'trial_timeout'.*its options are mode, backend"
    ):
        SweepOptions(metric="y", mode="max", trial_timout=5)
    asked = {"metric": "y", "mode": "max", "max_retries": 1}
    assert SweepOptions(**asked).keywords == settled(LaunchKeywords, asked)


def test_a_sweep_trains_each_trial_in_one_process_unless_told_otherwise() -> None:
    assert SweepOptions().gang() == GangSpec()
    gang = SweepOptions(workers_per_trial=2, backend="none").gang()
    assert gang == GangSpec(workers=2, backend=Backend.NONE)


def test_what_limits_a_run_and_a_sweep() -> None:
    options = RunOptions(workers=2, max_retries=5)
    spec = options.spec(options.gang(), "f")
    assert (spec.max_retries, spec.recovers, options.limits()) == (5, True, {})
    assert SweepOptions(trials=4, trial_timeout="1m").limits() == {
        "trials": 4, "trial_timeout_s": 60.0, "report_timeout_s": None,
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
        options.choice(options.gang(), lambda: NO_IMPORTS, lambda: ("", ""), strategy=True)


def test_scalars_and_arrays_of_numpy_are_python_values_in_every_option(tmp_path: Path) -> None:
    given = {
        "target": np.float32(2), "trials": np.int64(4), "timeout": np.float32(20), "max_retries": np.int8(1),
        "seed": np.uint32(3), "log_limit": np.int64(2**20), "tensorboard": np.bool_(False), "progress": np.bool_(True),
        "preload": np.array(["json"]), "env": {"LEVEL": np.int64(3)}, "gpu_memory": np.int64(2**30), "dir": tmp_path,
        "stopper": ASHA(eta=np.int64(4), most=np.int32(9), promote=np.bool_(False)), "name": np.str_("n"),  # type: ignore[arg-type]
        "max_concurrent_trials": np.array(2), "repeats": np.int16(2), "plateau": np.int64(5),
    }  # fmt: skip
    options = SweepOptions(metric="y", mode="max", **given)
    kinds = {name: type(getattr(options.keywords, name)) for name in given}
    assert {name: kind for name, kind in kinds.items() if kind.__module__ == "numpy"} == {}
    msgspec.json.encode(spec_fields(options.spec(options.gang(), "f")))
    assert options.environment() == {"LEVEL": "3"}
    assert str(options.keywords.stopper[0]) == "asha(most=9, eta=4)"
    assert (options.keywords.target, options.keywords.preload) == (2.0, ("json",))
