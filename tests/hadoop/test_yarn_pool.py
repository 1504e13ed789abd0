"""One application on YARN, as a notebook has it: each executor has a GPU of its own on the labelled node, the doctor
finds nothing wrong, and what a gang loses costs a restart."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.ops.doctor.examine import ClusterExaminer, ExaminationRequest
from tests.conf import for_two_gpus, properties
from tests.hadoop.held import Held
from tests.hadoop.sessions import BackgroundCall, yarn_session
from tests.hadoop.yarn_hold import hold
from tests.support.hadoop import LABEL, Yarn
from tests.support.processes import wait_until

TRAINS_S = 80.0
"""Until members train, or train again, on a busy machine."""

pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def session(yarn_cluster: Yarn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Of conf/yarn-gpu.conf, as small as the nodes of tests; both executors have started."""
    folder = tmp_path_factory.mktemp("spark")
    small = ("spark.executor.instances", "spark.executor.cores", "spark.executor.memory", "spark.driver.memory")
    ours = {key: value for key, value in properties("yarn-gpu.conf").items() if key not in small}
    conf = {**ours, **for_two_gpus(folder / "claims"), "spark.submit.deployMode": "client"}
    with yarn_session(yarn_cluster, folder, conf) as spark:
        known: Any = spark.sparkContext._jsc
        wait_until(lambda: known.sc().getExecutorMemoryStatus().size() == 3, TRAINS_S, "driver and executors are there")
        yield spark


@pytest.fixture(scope="module")
def pool(session: SparkSession) -> Iterator[st.Pool]:
    """Two warm agents, which start after the doctor has left."""
    with st.pool(session, agents=2, preload=["numpy"]) as made:
        yield made


def tell(x: int, marks: str, ctx: Any) -> dict[str, float]:
    """Where a member is, and what it has."""
    report = {
        "container": os.environ["CONTAINER_ID"],
        "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
        "folder": os.getcwd(),
    }
    Path(marks, f"{x}-{ctx.rank}").write_text(json.dumps(report))
    if x < 0:
        raise ValueError(f"x ({x}) is below zero")
    if ctx.rank == 0:
        ctx.checkpoint.save(1)
    return {"y": 2 * x}


def test_the_doctor_finds_that_executors_of_yarn_can_train(session: SparkSession, yarn_cluster: Yarn) -> None:
    asked = ExaminationRequest(f"{yarn_cluster.hdfs.url}/doctor-pool", lambda: nullcontext(session))
    examination = ClusterExaminer(asked, 1).examine()
    findings = {each.check: (str(each.level), each.message) for each in examination.findings}
    passing = ("spark", "slots", "store", "executors", "driver reachable", "ports", "store on executors", "yarn")
    assert {check: findings.get(check, ("",))[0] for check in passing} == dict.fromkeys(passing, "pass"), findings
    assert findings["yarn"][1].startswith("room for 2 executors; 2 running nodes; ")
    assert f"labels: {LABEL}" in findings["yarn"][1]


def test_each_member_has_a_gpu_of_its_own_on_the_labelled_node(
    session: SparkSession, pool: st.Pool, yarn_cluster: Yarn, tmp_path: Path
) -> None:
    result = pool.sweep(
        tell, {"x": [1, -1], "marks": [str(tmp_path)]}, metric="y", mode="max", workers_per_trial=2, gpus=1,
        backend="none", dir="hdfs:///runs", name="places", progress=False,
    )  # fmt: skip

    assert [each.status.value for each in result.trials] == ["succeeded", "failed"], result.trials
    assert "x (-1) is below zero" in str(result.trials[1].error)
    reports = [json.loads((tmp_path / f"1-{rank}").read_text()) for rank in range(2)]
    assert sorted(each["gpus"] for each in reports) == ["0", "1"]
    nodes = yarn_cluster.containers_of(session.sparkContext.applicationId)
    assert {nodes[each["container"]] for each in reports} == {yarn_cluster.labelled_node}
    [master] = [each for each in nodes if each.endswith("_01_000001")]
    assert nodes[master] == yarn_cluster.node_of(yarn_cluster.nodemanagers[0])
    assert all(each["folder"].startswith(f"{yarn_cluster.folder}/local/") for each in reports)
    assert "manifest" in yarn_cluster.hdfs.cli("-ls", "-R", "/runs/places")


def test_a_killed_container_and_a_killed_agent_cost_a_restart_each_with_its_loss(
    pool: st.Pool, yarn_cluster: Yarn, tmp_path: Path
) -> None:
    params = {"marks": str(tmp_path)}
    call = BackgroundCall(
        lambda: pool.run(
            hold, params, workers=2, backend="none", dir="hdfs:///runs", name="lost", max_retries=2, progress=False
        )
    )
    held = Held(call, tmp_path)
    try:
        held.wait_training(TRAINS_S)
        yarn_cluster.kill_container(held.containers[1])
        held.wait_training(TRAINS_S)
        held.kill_agent(0)
        held.wait_training(TRAINS_S)
    finally:
        (tmp_path / "enough").touch()
    held.finish()

    assert [each.loss for each in call.result.restarts] == ["killed", "other"]
    assert [each.kind for each in call.result.restarts] == ["lost", "lost"]
    assert all(each.resumed_from_step for each in call.result.restarts)
