"""A run loses containers, nodes and masters on YARN: it recovers, names each loss, and leaves nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.submitted_jobs.follow import RunLookout
from sparktrain.runs.view import TrialView
from tests.hadoop.commands import command, kill_driver
from tests.hadoop.held import GONE_S, Held
from tests.support.hadoop import Yarn, submission
from tests.support.processes import wait_until

JOB = Path(__file__).parents[2] / "jobs" / "run_gang.py"
TRAIN = Path(__file__).with_name("yarn_hold.py")
TRAINS_S = 240.0
"""From spark-submit until members train, on a busy machine."""
AGAIN_S = 240.0
"""From a loss until the next generation trains."""
LARGER = {"spark.executor.memory": "1024m", "spark.yarn.maxAppAttempts": "2"}
"""Two such executors hold more of the label than the share of their queue."""
TRIALS = ("1", 0), ("2", 0)

pytestmark = pytest.mark.timeout(900)


@contextmanager
def held(cluster: Yarn, marks: Path, name: str, **conf: str) -> Iterator[Held]:
    marks.mkdir()
    target = [
        f"{TRAIN}:hold",
        "--workers",
        "2",
        "--backend",
        "none",
        "--param",
        f"marks={marks}",
        "--metric",
        "y",
        "--mode",
        "max",
    ]
    where = ["--preload", "numpy", "--dir", "hdfs:///runs", "--name", name, "--max-retries", "2"]
    with submission(cluster, JOB, *target, *where, conf=conf) as submitted:
        yield Held(submitted, marks)


def trials_of(cluster: Yarn, name: str) -> list[dict[str, Any]]:
    return list(json.loads(cluster.hdfs.cli("-cat", f"/runs/{name}/results.json"))["trials"])


def restarts_of(cluster: Yarn, name: str) -> list[dict[str, Any]]:
    return list(trials_of(cluster, name)[0]["restarts"])


def lose_the_node(cluster: Yarn) -> None:
    """Its NodeManager dies and comes back after YARN has given it up."""
    node = cluster.labelled_node
    cluster.nodemanagers[1].kill9()
    lost = f"{node} is lost"
    wait_until(lambda: {each["id"]: each["state"] for each in cluster.nodes()}[node] == "LOST", GONE_S, lost)
    cluster.nodemanagers[1].start()
    cluster.wait_ready()


def wait_seen(cluster: Yarn, name: str, condition: Callable[[TrialView], object], what: str) -> None:
    """Until it holds for each trial, as the run directory has it."""
    sight = RunLookout(f"{cluster.hdfs.url}/runs/{name}")

    def holds() -> bool:
        run = sight.look()
        assert run is not None
        return all(map(condition, run.trials))

    wait_until(holds, GONE_S, what)


def take_the_node_out_of_service(cluster: Yarn, name: str) -> None:
    """It is back when the run has noted that, and its NodeManager has ended."""
    [*_, nodemanager] = cluster.nodemanagers
    cluster.decommission(nodemanager)
    explained = "losses are explained"
    wait_seen(cluster, name, lambda trial: not trial.result.restarts or trial.result.restarts[-1].loss, explained)
    wait_until(lambda: not nodemanager.is_alive(), GONE_S, "the NodeManager has ended")
    cluster.recommission(nodemanager)


def restart_the_resourcemanager(cluster: Yarn) -> None:
    cluster.resourcemanager.kill9()
    cluster.resourcemanager.start()
    cluster.wait_ready()


def master_of(container: str) -> str:
    """The container of the first application master of the application that `container` is of."""
    return container.rpartition("_")[0] + "_000001"


@pytest.mark.all(
    case="a lost node, a lost application master, preemption, too much memory",
    covered_by="`hadoop/test_yarn_pool`: a killed container and a killed agent; "
    "`unit/cluster/test_executor_loss` for all of them",
)
def test_a_run_recovers_from_all_that_yarn_takes_and_only_what_it_did_not_take_costs_a_restart(
    breakable_yarn: Yarn, tmp_path: Path
) -> None:
    with held(breakable_yarn, tmp_path / "mine", "taken", **LARGER) as mine:
        mine.wait_training(TRAINS_S)
        breakable_yarn.kill_container(mine.containers[1])
        mine.wait_training(AGAIN_S)
        mine.kill_agent(0)
        mine.wait_training(AGAIN_S)
        lose_the_node(breakable_yarn)
        mine.wait_training(AGAIN_S)
        breakable_yarn.kill_container(master_of(mine.containers[0]))
        mine.wait_training(AGAIN_S)
        with held(breakable_yarn, tmp_path / "theirs", "taker", **{"spark.yarn.queue": "prio"}) as theirs:
            theirs.wait_training(TRAINS_S)
            theirs.finish()
        mine.wait_training(AGAIN_S)
        mine.eat(1)
        mine.wait_training(AGAIN_S)
        mine.finish()

    restarts = restarts_of(breakable_yarn, "taken")
    assert [each["loss"] for each in restarts] == ["killed", "other", "node", "master", "preempted", "memory"]
    assert [each["kind"] for each in restarts] == ["lost", "lost", "lost", "lost", "lost", "memory"]
    assert "used 1." in restarts[-1]["cause"]
    assert "raise spark.executor.memoryOverhead" in restarts[-1]["cause"]
    assert restarts_of(breakable_yarn, "taker") == []


@pytest.mark.all(
    case="YARN restarts a driver in its container; a decommissioned node, a restart of the ResourceManager",
    covered_by="`faults/test_driver_death`: another driver resumes; `unit/cluster/test_executor_loss` for the others",
)
def test_a_driver_that_yarn_takes_is_started_again_and_goes_on_while_resourcemanager_and_nodes_come_and_go(
    breakable_yarn: Yarn, tmp_path: Path
) -> None:
    """The driver of `sparktrain submit` restarts after its spark-submit has ended."""
    marks = tmp_path / "marks"
    marks.mkdir()
    sweep = [f"{TRAIN}:hold_one", "--grid", "x=0,1,2", "--grid", f"marks={marks}", "--metric", "y", "--mode", "max"]
    where = ["--preload", "numpy", "--max-retries", "0", "--dir", "hdfs:///runs", "--name", "driver"]
    conf = {"spark.yarn.maxAppAttempts": "2", "spark.yarn.submit.waitAppCompletion": "false"}
    assert breakable_yarn.pack is not None
    words = ["--deploy-mode", "cluster", "--pack", breakable_yarn.pack, "sweep", *sweep, *where]
    with command(breakable_yarn, tmp_path / "call", *words, **conf) as called:
        held = Held(called, marks, TRIALS)
        held.wait_training(TRAINS_S)
        saved = "each trial that trains has a checkpoint"
        wait_seen(breakable_yarn, "driver", lambda trial: trial.result.status.final or trial.checkpoint, saved)
        kill_driver(called.application)
        held.wait_training(AGAIN_S)
        restart_the_resourcemanager(breakable_yarn)
        held.wait_steps()
        take_the_node_out_of_service(breakable_yarn, "driver")
        held.wait_training(AGAIN_S)
        held.finish()
        assert called.application is not None
        assert breakable_yarn.application(called.application)["finalStatus"] == "SUCCEEDED"

    assert [path.name for path in (marks / "0").iterdir()] == ["1"], "a finished trial is not repeated"
    first, *others = trials_of(breakable_yarn, "driver")
    assert (first["metrics"], first["restarts"]) == ({"y": 0}, [])
    for each in others:
        assert each["metrics"] == {"y": 1}
        assert [restart["loss"] for restart in each["restarts"]] == [None, "decommissioned"]
        assert all(restart["resumed_from_step"] > 0 for restart in each["restarts"])


def containers_on(cluster: Yarn, node: str) -> int:
    return int({each["id"]: each["numContainers"] for each in cluster.nodes()}[node])


@pytest.mark.all(
    case="a node that YARN decommissions gracefully",
    covered_by="`unit/cluster/test_announced_losses`: what YARN answers, and what follows",
)
def test_a_gang_leaves_a_node_that_yarn_decommissions_gracefully(breakable_yarn: Yarn, tmp_path: Path) -> None:
    """Its executors are ended once they have no member; YARN keeps the node until the application has ended."""
    with held(breakable_yarn, tmp_path / "mine", "leaving", **LARGER) as mine:
        mine.wait_training(TRAINS_S)
        [*_, nodemanager] = breakable_yarn.nodemanagers
        breakable_yarn.decommission_gracefully(nodemanager, 600)
        wait_seen(breakable_yarn, "leaving", lambda trial: trial.result.restarts, "the gang has left the node")
        node = breakable_yarn.node_of(nodemanager)
        containers = "the node has no container"
        wait_until(lambda: not containers_on(breakable_yarn, node), GONE_S * 3, containers)
        breakable_yarn.cancel_decommission()
        mine.wait_training(AGAIN_S)
        mine.finish()

    [restart] = restarts_of(breakable_yarn, "leaving")
    assert (restart["drained"], restart["loss"]) == (True, None)
    assert restart["cause"].startswith("drained: YARN decommissions node ")
