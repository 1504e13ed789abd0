"""Members that need no GPU, on YARN: they hold none, where YARN can give them executors of their own."""

from pathlib import Path
from typing import Any

import pytest

from tests.conf import CONF, for_two_gpus
from tests.hadoop.following import wait_running
from tests.support.hadoop import Yarn, submission

JOBS = CONF.parent / "jobs"
TRAIN = Path(__file__).with_name("yarn_train.py")
FORMS_S = 80.0
"""From spark-submit until all agents are there, on a busy machine."""

pytestmark = pytest.mark.timeout(480)


@pytest.mark.all(
    case="an evaluator holds no GPU", covered_by="`unit/cluster/test_preflight`: which members can do without"
)
def test_an_evaluator_has_an_executor_without_a_gpu(yarn_cluster: Yarn, tmp_path: Path) -> None:
    conf = {
        **for_two_gpus(tmp_path / "claims"),
        "spark.executor.instances": "0",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "1",
    }
    shape = ["--workers", "1", "--evaluator", "--backend", "tensorflow", "--preload", "numpy", "--gpus", "1"]
    target = [f"{TRAIN}:stand", *shape, "--param", f"marks={tmp_path}", "--metric", "y", "--mode", "max"]
    where = ["--dir", f"{yarn_cluster.hdfs.url}/runs", "--name", "roles"]
    job, properties = JOBS / "run_gang.py", CONF / "yarn-gpu.conf"
    with submission(yarn_cluster, job, *target, *where, conf=conf, properties=properties) as submitted:
        wait_running(submitted, lambda: "agents 2 of 2" in submitted.output, FORMS_S, "the gang is formed")
        submitted.look()
        application = yarn_cluster.application(submitted.application or "")

    [labelled] = [each["used"] for each in held_by(application) if each["partitionName"] == "gpu"]
    gpus = {each["name"]: each["value"] for each in labelled["resourceInformations"]["resourceInformation"]}
    assert (gpus["yarn.io/gpu"], labelled["vCores"]) == (1, 2)


def held_by(application: dict[str, Any]) -> list[dict[str, Any]]:
    """What an application holds on the nodes with each label, as the ResourceManager reports it."""
    return list(application["resourceInfo"]["resourceUsagesByPartition"])
