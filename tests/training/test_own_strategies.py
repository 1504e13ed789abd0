"""Programs that connect their gang by TF_CONFIG themselves, on the local engine: they train as one process does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.training import cluster_programs as programs
from tests.training import local_gang

KILLED_LOOP = pytest.mark.all(case="a loop with a killed member", covered_by="`fit` in a helper")

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


@pytest.fixture(scope="module")
def pool(gang_pool: Any) -> Any:
    return gang_pool


def run(pool: Any, folder: Path, function: Any, **options: Any) -> st.RunResult:
    params = {"folder": str(folder), **options.pop("params", {})}
    result: st.RunResult = pool.run(function, params, dir=str(folder / "runs"), progress=False, **options)
    return result


@pytest.mark.parametrize(
    ("function", "restarts"),
    [(programs.fit_by_helper, 0), pytest.param(programs.loop, 1, marks=KILLED_LOOP)],
)
def test_own_strategies_train_what_one_process_trains(pool: Any, tmp_path: Path, function: Any, restarts: int) -> None:
    weights, losses = local_gang.train_alone()
    result = run(pool, tmp_path, function, workers=2)
    assert result.metrics["ranks"] == 1, "ctx.allreduce works beside the strategy"
    assert len(result.restarts) == restarts
    for rank in range(2):
        member = np.load(tmp_path / f"rank-{rank}.npz")
        np.testing.assert_allclose(member["weights"], weights, rtol=0, atol=EQUAL)
        np.testing.assert_allclose(member["losses"], losses, rtol=0, atol=EQUAL)


def refused(pool: Any, folder: Path, function: Any, **options: Any) -> str:
    with pytest.raises(st.RunFailedError) as caught:
        pool.run(function, {}, workers=2, dir=str(folder), progress=False, **options)
    return str(caught.value)


def test_refusals_name_the_line(pool: Any, tmp_path: Path) -> None:
    text = refused(pool, tmp_path, programs.asked_late, backend="tensorflow")
    assert "cluster_programs.py:91 in asked_late()) came after TensorFlow had started: " in text
    assert "making_strategies.py:18 in computed() started it: move that line below" in text
    text = refused(pool, tmp_path, programs.mirrored_by_horovod, backend="horovod")
    assert "MultiWorkerMirroredStrategy() (" in text
    assert "making_strategies.py:9 in mirrored()) in a gang with backend 'horovod'" in text
    text = refused(pool, tmp_path, programs.asked_by_horovod, backend="horovod")
    assert "ctx.strategy('multi_worker_mirrored') (" in text
    assert "making_strategies.py:13 in asked()) in a gang with backend 'horovod'" in text
    assert "or replace that line by ctx.distribute(optimizer)" in text
    text = refused(pool, tmp_path, programs.distributed_twice, backend="tensorflow")
    assert "in distributed_twice()) averages over the members, and tf.distribute.MultiWorkerMirrored" in text


def test_the_strategy_of_the_context_uses_the_ring_that_is_there(pool: Any, tmp_path: Path) -> None:
    result = pool.run(programs.asked_in_helper, {}, workers=2, backend="tensorflow", dir=str(tmp_path), progress=False)
    assert result.metrics == {"replicas": 2.0}


@pytest.mark.all(case="ParameterServerStrategy with servers of its own", covered_by="`training/test_strategy`")
def test_a_coordinator_with_servers_of_its_own_ends(pool: Any, tmp_path: Path) -> None:
    result = pool.run(programs.coordinated, workers=2, ps=1, dir=str(tmp_path), progress=False)
    assert result.metrics == {"total": 20.0}
