"""Between-graph replication of TensorFlow 1 in gangs on the local engine: it trains, and resumes after kills."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.tensorflowonspark import TFCluster
from tests.training import cluster_programs as programs
from tests.training import returning_programs as returning
from tests.training import serving_programs as serving

KILLED_CHIEF = pytest.mark.all(case="a killed chief", covered_by="a killed parameter server of two workers")
THREE_WORKERS = pytest.mark.all(
    case="three workers with two parameter servers, asynchronous and synchronous with a backup worker",
    covered_by="a killed parameter server of two workers",
)
OTHER_WORKERS = pytest.mark.all(
    case="a killed worker of three, with two parameter servers, and synchronous",
    covered_by="a killed worker of three, asynchronous, with one parameter server",
)
BETWEEN_ROUNDS = pytest.mark.all(
    case="a worker that a coordinator loses between two rounds", covered_by="within a round"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    with st.pool(st.local(slots=5), preload=["tensorflow", "numpy"]) as made:
        yield made


@pytest.mark.parametrize(
    ("workers", "ps", "kill", "sync"),
    [
        (2, 1, "ps", False),
        pytest.param(2, 1, "chief", False, marks=KILLED_CHIEF),
        pytest.param(3, 2, "", False, marks=THREE_WORKERS),
        pytest.param(3, 2, "", True, marks=THREE_WORKERS),
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


@pytest.mark.all(case="a `Supervisor`", covered_by="a cluster of two workers")
def test_a_supervisor_trains(pool: Any, tmp_path: Path) -> None:
    result = pool.run(
        programs.supervised, {"folder": str(tmp_path)}, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False
    )
    assert result.metrics["total"] >= 2 * programs.STEPS


def test_a_server_that_does_not_come_is_named(pool: Any, tmp_path: Path) -> None:
    with pytest.raises(st.RunLostError, match=r"rank 2 \(ps\) at .* did not come within 1 s; it should have started"):
        pool.run(programs.without_server, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False, max_retries=0)


@pytest.mark.parametrize(
    ("ps", "sync"),
    [
        (1, False),
        pytest.param(2, False, marks=OTHER_WORKERS),
        pytest.param(1, True, marks=OTHER_WORKERS),
        pytest.param(2, True, marks=OTHER_WORKERS),
    ],
)
def test_a_killed_worker_returns_to_the_living_servers(pool: Any, tmp_path: Path, ps: int, sync: bool) -> None:
    """The others keep their processes and steps, and the new process trains at the step of the servers."""
    params = {"folder": str(tmp_path), "victim": 2, "sync": sync}
    result = pool.run(returning.trained, params, workers=3, ps=ps, dir=str(tmp_path / "runs"), progress=False)
    [restart] = result.restarts
    assert restart.alone, restart
    assert (restart.rank, str(restart.kind)) == (2, "killed")
    assert [len(returning.processes(tmp_path, rank)) for rank in range(3 + ps)] == [1, 1, 2, *[1] * ps]
    killed_at, killed_step = map(float, (tmp_path / "killed").read_text().split())
    ranks = [returning.processes(tmp_path, rank) for rank in range(3)]
    for process in (process for found in ranks for process in found):
        steps = [step for _, step in returning.steps_of(process)]
        assert steps == sorted(steps), f"the global step went back: {process}"
    again = returning.steps_of(ranks[2][1])
    assert len(again) >= returning.STEPS_AGAIN
    assert again[0][1] >= killed_step
    meanwhile = [at for at, _ in returning.steps_of(ranks[1][0]) if killed_at < at < again[0][0]]
    assert meanwhile, "the other worker waited"
    print(f"{ps} ps, {'sync' if sync else 'async'}: next step after {again[0][0] - killed_at:.2f} s")


@pytest.mark.all(
    case="a killed worker of a TFCluster",
    covered_by="a killed worker of three; `spark/test_tfcluster`: a killed member",
)
def test_a_killed_worker_of_a_tfcluster_returns_to_the_living_servers(pool: Any, tmp_path: Path) -> None:
    params, runs = {"folder": str(tmp_path), "victim": 1}, tmp_path / "runs"
    cluster = TFCluster.run(
        pool, returning.clustered, params, 3, 1, input_mode=TFCluster.InputMode.TENSORFLOW, dir=str(runs), name="tf"
    )
    cluster.shutdown(grace_secs=120)
    [restart] = st.load(str(runs / "tf")).restarts
    assert restart.alone, restart
    assert (restart.rank, str(restart.kind)) == (1, "killed")
    assert [len(returning.processes(tmp_path, rank)) for rank in range(3)] == [1, 2, 1], "the chief, the worker, the ps"
    killed_step = float((tmp_path / "killed").read_text().split()[1])
    steps = [step for _, step in returning.steps_of(returning.processes(tmp_path, 1)[1])]
    assert len(steps) >= returning.STEPS_AGAIN
    assert steps[0] >= killed_step
    assert steps == sorted(steps)


@pytest.mark.parametrize("kill", ["within", pytest.param("between", marks=BETWEEN_ROUNDS)])
def test_a_killed_worker_returns_to_the_coordinator(pool: Any, tmp_path: Path, kill: str) -> None:
    """The chief and the parameter server keep their processes, and so the variable its value."""
    params = {"folder": str(tmp_path), "kill": kill}
    result = pool.run(serving.coordinated, params, workers=3, ps=1, dir=str(tmp_path / "runs"), progress=False)
    [restart] = result.restarts
    assert restart.alone, restart
    [rounds] = tmp_path.glob("rounds-*")
    pids = [set(map(int, line.split())) for line in rounds.read_text().splitlines()]
    victim = int(result.metrics["victim"])
    lost_at = max(number for number, found in enumerate(pids) if victim in found)
    assert len(set.union(*pids)) == 3, "no step ran in the worker's next process"
    assert all(victim not in found for found in pids[lost_at + 1 :])
    assert result.metrics["total"] >= result.metrics["scheduled"]


@pytest.mark.all(case="the agent of a killed worker", covered_by="a killed worker of three")
def test_a_worker_of_a_killed_agent_returns_on_another_one_of_its_host(tmp_path: Path) -> None:
    params = {"folder": str(tmp_path), "victim": 1, "kills": "agent"}
    with st.pool(st.local(slots=4), preload=["tensorflow", "numpy"]) as pool:
        result = pool.run(returning.trained, params, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False)
    [restart] = result.restarts
    assert restart.alone, restart
    assert (restart.rank, str(restart.kind)) == (1, "lost")
    assert [len(returning.processes(tmp_path, rank)) for rank in range(3)] == [1, 2, 1]
    assert len(returning.steps_of(returning.processes(tmp_path, 1)[1])) >= returning.STEPS_AGAIN


@pytest.mark.all(
    case="a chief that does not initialise the variables", covered_by="a server that does not come is named"
)
def test_a_chief_that_does_not_initialise_is_named(pool: Any, tmp_path: Path) -> None:
    with pytest.raises(st.RunLostError, match=r"rank 0 \(chief\) at .* did not initialise the variables within 1 s"):
        pool.run(programs.without_chief, workers=2, ps=1, dir=str(tmp_path / "runs"), progress=False, max_retries=0)
