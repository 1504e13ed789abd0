"""Members that need no GPU, on YARN: they hold none, where YARN can tell their executors from the others."""

from pathlib import Path

import pytest

from sparktrain.testing.hadoop import Yarn, submission
from sparktrain.testing.processes import wait_until
from tests.conf import CONF

JOBS = CONF.parent / "jobs"
TRAIN = Path(__file__).with_name("yarn_train.py")
TRAINS_S = 80.0
"""From spark-submit until members train, on a busy machine."""

pytestmark = pytest.mark.timeout(240)


def test_an_evaluator_has_an_executor_without_a_gpu(yarn_cluster: Yarn, tmp_path: Path) -> None:
    conf = {
        "spark.yarn.queue": "default",
        "spark.files": str(CONF / "gpu-discovery.sh"),
        "spark.task.cpus": "1",
        "spark.executor.memoryOverhead": "384m",
        "spark.driver.memoryOverhead": "384m",
        "spark.executorEnv.SPARKTRAIN_GPU_ADDRESSES": "0 1",
        "spark.executorEnv.SPARKTRAIN_GPU_CLAIMS": str(tmp_path / "claims"),
        "spark.executor.instances": "0",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "1",
    }
    marks, properties = tmp_path / "marks", CONF / "yarn-gpu.conf"
    marks.mkdir()
    shape = ["--workers", "1", "--evaluator", "--backend", "tensorflow", "--preload", "numpy"]
    target = [f"{TRAIN}:wait", *shape, "--param", f"marks={marks}", "--metric", "y", "--gpus", "1"]
    where = ["--dir", f"{yarn_cluster.hdfs.url}/runs", "--name", "roles"]
    with submission(yarn_cluster, JOBS / "run_gang.py", *target, *where, conf=conf, properties=properties) as submitted:
        both = lambda: len(list(marks.glob("[!.]*"))) == 2 or submitted.exit_code is not None  # noqa: E731
        wait_until(both, TRAINS_S, "both members train")
        assert submitted.exit_code is None, submitted.output
        submitted.look()
        held = yarn_cluster.application(submitted.application or "")["resourceInfo"]["resourceUsagesByPartition"]
        (marks / ".enough").touch()
        assert submitted.wait(TRAINS_S) == 0, submitted.output

    visible = {path.name: path.read_text() for path in marks.glob("[!.]*")}
    assert set(visible) == {"chief", "evaluator"}
    assert visible["evaluator"] == ""
    assert visible["chief"] in ("0", "1")
    [labelled] = [each["used"] for each in held if each["partitionName"] == "gpu"]
    gpus = {each["name"]: each["value"] for each in labelled["resourceInformations"]["resourceInformation"]}
    assert (gpus["yarn.io/gpu"], labelled["vCores"]) == (1, 2)
