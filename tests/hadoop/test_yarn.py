"""sparktrain under spark-submit on YARN, with a label: members run on labelled nodes, and the exit code is the run's.

The ResourceManager reports the node of each container.
"""

import json
from pathlib import Path

import pytest

from tests.conf import CONF, for_two_gpus
from tests.hadoop.following import wait_running
from tests.support.hadoop import Hdfs, Submission, Yarn, submission, submit

JOBS = CONF.parent / "jobs"
TRAIN = Path(__file__).with_name("yarn_train.py")
TRAINS_S = 80.0
"""From spark-submit until members train, on a busy machine."""

pytestmark = pytest.mark.timeout(480)


def seen(marks: Path) -> dict[str, list[str]]:
    """Container and working directory of each member that has started."""
    return {path.name: path.read_text().split() for path in marks.iterdir() if not path.name.startswith(".")}


def check_places(cluster: Yarn, submitted: Submission, marks: Path) -> None:
    """All members were in containers of this application on the labelled node, and the application master was not."""
    members = {container for container, _ in seen(marks).values()}
    assert members
    assert {submitted.containers[each] for each in members} == {cluster.labelled_node}
    masters = [each for each in submitted.containers if each.endswith("_01_000001")]
    assert [submitted.containers[each] for each in masters] == [cluster.node_of(cluster.nodemanagers[0])]


def result_of(hdfs: Hdfs, path: str) -> dict[str, object]:
    return dict(json.loads(hdfs.cli("-cat", f"{path}/results.json")))


@pytest.mark.all(
    case="Spark's executors have GPUs of their own",
    covered_by="`hadoop/test_yarn_pool`: members have GPUs of their own",
)
def test_each_executor_has_a_gpu_of_its_own_on_the_labelled_node(yarn_cluster: Yarn, tmp_path: Path) -> None:
    submitted = submit(
        yarn_cluster,
        TRAIN.with_name("yarn_gpus.py"),
        str(tmp_path / "report"),
        conf=for_two_gpus(tmp_path / "claims"),
        properties=CONF / "yarn-gpu.conf",
    )

    assert submitted.exit_code == 0, submitted.output
    report = dict(json.loads((tmp_path / "report").read_text()))
    assert sorted(report.values()) == [["0"], ["1"]]
    assert {submitted.containers[each] for each in report} == {yarn_cluster.labelled_node}


@pytest.mark.all(
    case="rings of TensorFlow and Horovod on YARN from a pack",
    covered_by="`hadoop/test_yarn_pool`: a gang without a ring; `training/test_rings`",
)
def test_rings_train_where_the_label_is_and_checkpoint_to_hdfs(packed_yarn: Yarn, marks: Path, tmp_path: Path) -> None:
    conf = {"spark.task.maxFailures": "1000", "spark.executor.memory": "640m"}
    job = TRAIN.with_name("yarn_gangs.py")
    submitted = submit(packed_yarn, job, str(marks), str(tmp_path / "report"), conf=conf, timeout_s=TRAINS_S + 60.0)

    assert submitted.exit_code == 0, submitted.output
    report = dict(json.loads((tmp_path / "report").read_text()))
    assert set(seen(marks)) == {f"{backend}-{rank}" for backend in report for rank in range(2)}
    check_places(packed_yarn, submitted, marks)
    for backend in ("horovod", "tensorflow"):
        metrics = report[backend]["metrics"]
        assert metrics["members"] == 2
        assert (round(metrics["weight"], 2), round(metrics["bias"], 2)) == (3.0, 1.0)
        files = packed_yarn.hdfs.cli("-ls", "-R", f"/runs/{backend}")
        assert report[backend]["model"].removeprefix(packed_yarn.hdfs.url) in files
        assert "manifest" in files


@pytest.mark.all(
    case="a failed sweep in cluster mode, with dynamic allocation",
    covered_by="`hadoop/test_submit`: a call that the driver refuses, in cluster mode; "
    "`unit/driver/submitted_jobs/test_verdict`; `hadoop/test_yarn_roles`: dynamic allocation",
)
def test_a_failed_sweep_is_a_failed_application_in_cluster_mode_with_dynamic_allocation(
    yarn_cluster: Yarn, marks: Path
) -> None:
    target = [f"{TRAIN.name}:double", "--grid", "x=-1,-2", "--grid", f"marks={marks}", "--metric", "y", "--mode", "max"]
    where = ["--preload", "numpy", "--dir", "hdfs:///runs", "--name", "bad"]
    conf = {
        "spark.files": str(TRAIN),
        "spark.executor.instances": "0",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
    }
    submitted = submit(yarn_cluster, JOBS / "grid_search.py", *target, *where, mode="cluster", conf=conf)

    assert submitted.exit_code == 1, submitted.output
    assert "User application exited with status 3" in submitted.diagnostics
    assert "trial 0 failed: ValueError: x (-1) is below zero" in submitted.output
    check_places(yarn_cluster, submitted, marks)
    assert result_of(yarn_cluster.hdfs, "/runs/bad")["status"] == "failed"
    # What members leave goes with their container.
    assert all(where.startswith(f"{yarn_cluster.folder}/local/") for _, where in seen(marks).values())


@pytest.mark.all(case="a gang that does not fit fails in 30 s", covered_by="`unit/cluster/test_yarn_capacity`")
def test_a_gang_that_does_not_fit_says_so_within_30_s_of_its_session(yarn_cluster: Yarn, marks: Path) -> None:
    target = [
        f"{TRAIN}:stand",
        "--workers",
        "6",
        "--backend",
        "none",
        "--param",
        f"marks={marks}",
        "--metric",
        "y",
        "--mode",
        "max",
    ]
    where = ["--preload", "numpy", "--dir", "hdfs:///runs", "--name", "wide"]
    problem = "4 of 6 executors fit nodes with label gpu in queue default now; capacity 4 x (896 MB, 1 core)"
    conf = {"spark.executor.instances": "6"}
    with submission(yarn_cluster, JOBS / "run_gang.py", *target, *where, conf=conf) as submitted:
        for words, within_s in (("waiting for agents (", TRAINS_S), (problem, 30.0)):
            wait_running(submitted, lambda: words in submitted.output, within_s, words)  # noqa: B023

    assert not seen(marks)


def test_a_queue_that_may_not_use_the_label_is_refused_before_anything_is_submitted(
    yarn_cluster: Yarn, marks: Path
) -> None:
    target = [f"{TRAIN}:double", "--grid", "x=1", "--grid", f"marks={marks}", "--metric", "y", "--mode", "max"]
    where = ["--dir", "hdfs:///runs", "--name", "refused"]
    submitted = submit(yarn_cluster, JOBS / "grid_search.py", *target, *where, conf={"spark.yarn.queue": "nogpu"})

    assert submitted.exit_code == 2, submitted.output
    assert "error: queue nogpu may not use label gpu" in submitted.output
    assert "set spark.yarn.queue to one that may: default, prio" in submitted.output
    assert submitted.application is None
