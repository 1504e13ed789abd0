"""Programs that were written for Horovod, unchanged, in a gang: equal to one process, or refused with what to write."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.testing import local_context
from tests.training import horovod_programs
from tests.training.gangs import run_gang

EQUAL = 1e-6
TRAINED = ["keras_fit", "tensorflow_keras_fit_of_lazy_model", "a_loop"]
REFUSED = {
    "a_sum_of_gradients": "op is hvd.Sum, and members average their gradients",
    "several_passes": "write gradient_accumulation_steps=4 in the Keras optimizer",
    "another_root": "root_rank is 1 (int), and the chief has the values: pass 0",
    "a_hook": "write hvd.broadcast_variables(model.variables, root_rank=0)",
    "a_sampler": "hvd.elastic.ElasticSampler is not there: pass each member its share by ctx.shard(data)",
    "a_misspelt_option": "TypeError: hvd.DistributedOptimizer got an unexpected keyword argument 'compresion'",
}
OTHERS = ["warm_up", "values", "other_weights_meet_at_the_first_step"]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    (found,) = run_gang(horovod_programs.run, 1, "none", names=[*TRAINED, *OTHERS])
    return found


@pytest.fixture(scope="module")
def gang() -> list[dict[str, Any]]:
    return run_gang(horovod_programs.run, 2, "horovod", names=[*TRAINED, *OTHERS, *REFUSED])


@pytest.mark.parametrize("name", TRAINED)
def test_a_gang_trains_what_one_process_trains(name: str, gang: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    expected = alone[name]["result"]["weights"]
    for member in gang:
        assert "error" not in member[name]
        np.testing.assert_allclose(member[name]["result"]["weights"], expected, rtol=0, atol=EQUAL)


def test_metrics_are_means_over_members_and_xla_is_off(gang: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    first, second = (member["keras_fit"]["result"] for member in gang)
    assert first["mae"] == second["mae"] == pytest.approx(alone["keras_fit"]["result"]["mae"], abs=1e-6)
    assert first["compiled"] is second["compiled"] is False


def test_the_callback_gives_all_members_the_weights_of_the_chief(gang: list[dict[str, Any]]) -> None:
    first, second = (member["other_weights_meet_at_the_first_step"]["result"]["weights"] for member in gang)
    assert first == second


def test_the_learning_rate_rises_in_each_step(gang: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    rates = gang[0]["warm_up"]["result"]["rates"]
    assert rates == pytest.approx([0.0625, 0.075, 0.0875, 0.1, 0.01, 0.01])
    assert alone["warm_up"]["result"]["rates"] == pytest.approx([0.1] * 4 + [0.01] * 2)
    assert "Epoch 2: finished gradual learning rate warmup to 0.1." in gang[0]["warm_up"]["printed"]
    assert "finished" not in gang[1]["warm_up"]["printed"]


def test_values(gang: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    expected = {"mean": 0.5, "sum": 1.0, "gathered": [0, 1], "broadcast": 5, "tensor": [1.0], "object": {"rank": 0}}
    assert [member["values"]["result"] for member in gang] == [{**expected, "size": [2, 2, 2]}] * 2
    assert alone["values"]["result"]["size"] == [1, 1, 1]
    assert alone["values"]["result"]["gathered"] == [0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gang_does_otherwise_is_refused_with_what_to_write(name: str, gang: list[dict[str, Any]]) -> None:
    for member in gang:
        assert REFUSED[name] in member[name]["error"]


def test_a_local_context_serves_the_names_and_puts_back_those_of_horovod(tmp_path: Path) -> None:
    import horovod.keras
    import horovod.tensorflow

    before = horovod.keras, horovod.tensorflow.init, horovod.tensorflow.size
    for size in (1, 2):
        with local_context(size=size, mirrored=size > 1, backend="horovod", directory=tmp_path / str(size)) as ctx:
            ended = ctx.call(horovod_programs.train)
        assert ended["size"] == size
        assert ended["averages"] == (size > 1)
    assert (horovod.keras, horovod.tensorflow.init, horovod.tensorflow.size) == before
    assert importlib.import_module("horovod.keras") is before[0]


def test_a_gang_without_horovod_says_what_to_pass() -> None:
    for member in run_gang(horovod_programs.run, 2, "tensorflow", names=["start"]):
        assert "this one has backend 'tensorflow': pass backend='horovod'" in member["start"]["error"]
