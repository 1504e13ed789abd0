"""Between-graph replication of TensorFlow 1 in gangs on the local engine: it trains, and resumes after kills."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.training import cluster_programs as programs


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    with st.pool(st.local(slots=5), preload=["tensorflow", "numpy"]) as made:
        yield made


@pytest.mark.parametrize(
    ("workers", "ps", "kill", "sync"),
    [
        (2, 1, "ps", False),
        pytest.param(2, 1, "chief", False, marks=pytest.mark.all),
        pytest.param(2, 1, "worker", False, marks=pytest.mark.all),
        pytest.param(3, 2, "", False, marks=pytest.mark.all),
        pytest.param(3, 2, "worker", True, marks=pytest.mark.all),
    ],
)
def test_a_cluster_trains_and_loses_no_more_than_since_its_checkpoint(
    pool: Any, tmp_path: Path, workers: int, ps: int, kill: str, sync: bool
) -> None:
    params = {"folder": str(tmp_path), "kill": kill, "sync": sync}
    result = pool.run(programs.served, params, workers=workers, ps=ps, dir=str(tmp_path / "runs"), progress=False)
    assert result.metrics["loss"] < 0.5
    assert len(result.restarts) == bool(kill)
    if kill:
        assert programs.STEPS // 2 - 40 <= result.restarts[0].resumed_from_step <= result.metrics["first"]
    assert sum(int((tmp_path / f"done-{rank}").read_text()) for rank in range(workers)) > 0
    assert any("hdfs://model" in notice for notice in result.notices)


@pytest.mark.all
def test_a_supervisor_trains(pool: Any, tmp_path: Path) -> None:
    result = pool.run(
        programs.supervised, {"folder": str(tmp_path)}, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False
    )
    assert result.metrics["total"] >= 2 * programs.STEPS


def test_a_server_that_does_not_come_is_named(pool: Any, tmp_path: Path) -> None:
    with pytest.raises(st.RunLostError, match=r"rank 2 \(ps\) at .* did not come within 1 s; it should have started"):
        pool.run(programs.without_server, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False, max_retries=0)
