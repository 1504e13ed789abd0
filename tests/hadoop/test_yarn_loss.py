"""YARN takes away what a run has, in every way that it knows: the run recovers, says which it was, leaves nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.testing.hadoop import Submission, Yarn, submission
from sparktrain.testing.processes import Sighted, wait_until

JOB = Path(__file__).parents[2] / "jobs" / "run_gang.py"
TRAIN = Path(__file__).with_name("yarn_hold.py")
TRAINS_S = 120.0
"""From spark-submit until members train, on a busy machine."""
AGAIN_S = 90.0
"""From a loss until the next generation trains."""
GONE_S = 20.0
LARGER = {"spark.executor.memory": "1024m", "spark.yarn.maxAppAttempts": "2"}
"""Two such executors hold more of the label than the share of their queue."""

pytestmark = pytest.mark.timeout(600)


class Held:
    """A gang of two that trains until it is enough, and its processes, those in sessions of their own too."""

    def __init__(self, submitted: Submission, marks: Path) -> None:
        self._submitted = submitted
        self._marks = marks
        self._generation = 0
        self._seen: list[Sighted] = []

    def wait_training(self, timeout_s: float) -> None:
        """The next generation trains; of the one before, no process is left."""
        self._generation += 1
        paths = [self._marks / f"{self._generation}-{rank}" for rank in range(2)]
        what = f"generation {self._generation} trains"
        wait_until(lambda: all(map(Path.exists, paths)) or self._submitted.exit_code is not None, timeout_s, what)
        assert self._submitted.exit_code is None, self._submitted.output
        for before in self._seen:
            before.wait_gone(GONE_S)
        self._containers = [path.read_text().split()[0] for path in paths]
        self._seen.append(Sighted(int(pid) for path in paths for pid in path.read_text().split()[1:]))

    def container_of(self, rank: int) -> str:
        return self._containers[rank]

    def goes_on(self) -> None:
        """The same processes make more steps."""
        path = self._marks / "step"
        before = int(path.read_text())
        wait_until(lambda: int(path.read_text()) > before + 5, 10.0, "steps go on")
        assert len(self._seen[-1].alive()) == 4

    def eat(self, rank: int) -> None:
        (self._marks / f"eat-{self._generation}-{rank}").touch()

    def finish(self) -> None:
        """It is enough: the run succeeds, and no process is left."""
        (self._marks / "enough").touch()
        assert self._submitted.wait(TRAINS_S) == 0, self._submitted.output
        self._seen[-1].wait_gone(GONE_S)


@contextmanager
def held(cluster: Yarn, marks: Path, name: str, **conf: str) -> Iterator[Held]:
    marks.mkdir()
    target = [f"{TRAIN}:hold", "--workers", "2", "--backend", "none", "--param", f"marks={marks}", "--metric", "y"]
    where = ["--preload", "numpy", "--dir", "hdfs:///runs", "--name", name, "--max-restarts", "1"]
    with submission(cluster, JOB, *target, *where, conf=conf) as submitted:
        yield Held(submitted, marks)


def restarts_of(cluster: Yarn, name: str) -> list[dict[str, Any]]:
    result = json.loads(cluster.hdfs.cli("-cat", f"/runs/{name}/results.json"))
    return list(result["trials"][0]["restarts"])


def lose_the_node(cluster: Yarn) -> None:
    """Its NodeManager dies and comes back after YARN has given it up."""
    node = cluster.labelled_node
    cluster.nodemanagers[1].kill9()
    lost = f"{node} is lost"
    wait_until(lambda: {each["id"]: each["state"] for each in cluster.nodes()}[node] == "LOST", GONE_S, lost)
    cluster.nodemanagers[1].start()
    cluster.wait_ready()


def restart_the_resourcemanager(cluster: Yarn) -> None:
    cluster.resourcemanager.kill9()
    cluster.resourcemanager.start()
    cluster.wait_ready()


def master_of(container: str) -> str:
    """The container of the first application master of the application that `container` is of."""
    return container.rpartition("_")[0] + "_000001"


def test_a_run_recovers_from_all_that_yarn_takes_and_only_its_own_memory_costs_a_restart(
    breakable_yarn: Yarn, tmp_path: Path
) -> None:
    with held(breakable_yarn, tmp_path / "mine", "taken", **LARGER) as mine:
        mine.wait_training(TRAINS_S)
        breakable_yarn.kill_container(mine.container_of(1))
        mine.wait_training(AGAIN_S)
        lose_the_node(breakable_yarn)
        mine.wait_training(AGAIN_S)
        restart_the_resourcemanager(breakable_yarn)
        mine.goes_on()
        breakable_yarn.kill_container(master_of(mine.container_of(0)))
        mine.wait_training(AGAIN_S)
        with held(breakable_yarn, tmp_path / "theirs", "taker", **{"spark.yarn.queue": "prio"}) as theirs:
            theirs.wait_training(TRAINS_S)
            theirs.finish()
        mine.wait_training(AGAIN_S)
        mine.eat(1)
        mine.wait_training(AGAIN_S)
        mine.finish()

    restarts = restarts_of(breakable_yarn, "taken")
    assert [each["loss"] for each in restarts] == ["killed", "node", "master", "preempted", "memory"]
    assert [each["kind"] for each in restarts] == ["lost", "lost", "lost", "lost", "memory"]
    assert "used 1." in restarts[-1]["cause"]
    assert "raise spark.executor.memoryOverhead" in restarts[-1]["cause"]
    assert restarts_of(breakable_yarn, "taker") == []
