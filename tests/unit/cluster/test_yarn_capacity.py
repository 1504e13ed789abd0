"""What YARN has for executors, by recorded answers of a real ResourceManager.

They are of a cluster of two nodes with 4096 MB and 4 cores each. One has the label `gpu`, and 2 GPUs; queues `default`
and `prio` may use it, `nogpu` may not. In `idle` nothing runs; in `waiting` a holder in `prio` has two executors with
the label, and a run in `default` has two of the six that it wants.
"""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparktrain.cluster.yarn_capacity import (
    LABEL_KEY,
    QUEUE_KEY,
    Demand,
    YarnStatus,
    demand_of,
    outlook,
    refusal,
    summary,
)

SMALL = {"spark.executor.memory": "512m"}
LABELLED = {**SMALL, LABEL_KEY: "gpu"}
HOLDER, RUN = "application_1795280325843_0001", "application_1795280325843_0002"


def recorded(name: str) -> YarnStatus:
    return msgspec.json.decode((Path(__file__).parent / "yarn" / f"{name}.json").read_bytes(), type=YarnStatus)


def demand(conf: dict[str, str], **more: str) -> Demand:
    return demand_of({**conf, **more})


def labelled_node(status: YarnStatus) -> dict[str, Any]:
    return next(node for node in status.nodes if node.get("nodeLabels") == ["gpu"])


@pytest.mark.parametrize(
    ("conf", "memory"),
    [
        ({}, 1024 + 384),
        ({"spark.executor.memory": "8g"}, 8192 + 819),
        ({"spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.4"}, 8192 + 3276),
        ({"spark.executor.memory": "2048"}, 2048 + 384),
        ({"spark.executor.memory": "1GiB", "spark.executor.memoryOverhead": "100"}, 1024 + 100),
        ({"spark.executor.pyspark.memory": "1g"}, 1024 + 384 + 1024),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1073741824"}, 1024 + 384 + 1024),
        ({"spark.memory.offHeap.size": "1g"}, 1024 + 384),
    ],
)
def test_memory_is_what_spark_asks_for(conf: dict[str, str], memory: int) -> None:
    assert demand_of(conf).amounts == {"memory-mb": memory, "vcores": 1}


def test_a_demand_has_cores_and_gpus_and_place() -> None:
    conf = {"spark.executor.cores": "4", "spark.executor.resource.gpu.amount": "2", QUEUE_KEY: "prio", LABEL_KEY: "gpu"}
    asked = demand_of({**conf, "spark.app.id": RUN})
    assert asked.amounts == {"memory-mb": 1408, "vcores": 4, "yarn.io/gpu": 2}
    assert (asked.queue, asked.label, asked.application) == ("prio", "gpu", RUN)


REFUSED = {
    "queue": (
        {QUEUE_KEY: "prior"},
        "YARN has no queue prior (spark.yarn.queue): set it to one of default, nogpu, prio",
    ),
    "parent": (
        {QUEUE_KEY: "root"},
        "YARN has no queue root (spark.yarn.queue): set it to one of default, nogpu, prio",
    ),
    "label": (
        {LABEL_KEY: "tpu"},
        "no node of YARN has label tpu (spark.yarn.executor.nodeLabelExpression): there are gpu; set it to one of "
        "these",
    ),
    "access": (
        {LABEL_KEY: "gpu", QUEUE_KEY: "root.nogpu"},
        "queue nogpu may not use label gpu (spark.yarn.executor.nodeLabelExpression), its labels: none; set "
        "spark.yarn.queue to one that may: default, prio",
    ),
    "memory": (
        {"spark.executor.memory": "8g"},
        "an executor needs 9011 MB, and YARN gives a container at most 4096 MB: lower spark.executor.memory",
    ),
    "cores": (
        {"spark.executor.cores": "5"},
        "an executor needs 5 cores, and YARN gives a container at most 4 cores: lower spark.executor.cores",
    ),
    "gpus": (
        {LABEL_KEY: "gpu", "spark.executor.resource.gpu.amount": "3"},
        "an executor needs 3 GPUs, and no node with label gpu has more than 2 GPUs: lower "
        "spark.executor.resource.gpu.amount",
    ),
    "gpus elsewhere": (
        {"spark.executor.resource.gpu.amount": "1"},
        "an executor needs 1 GPU, and no node without label has more than 0 GPUs: lower "
        "spark.executor.resource.gpu.amount",
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_yarn_never_gives_is_refused(wrong: str) -> None:
    conf, reason = REFUSED[wrong]
    assert refusal(demand_of(conf), recorded("idle")) == reason
    assert outlook(demand_of(conf), 1, recorded("idle")) == reason


@pytest.mark.parametrize("conf", [SMALL, LABELLED, {**LABELLED, QUEUE_KEY: "root.prio"}, {QUEUE_KEY: "nogpu"}])
def test_what_yarn_may_give_is_not_refused(conf: dict[str, str]) -> None:
    assert refusal(demand_of(conf), recorded("idle")) == ""
    assert refusal(demand_of(conf), recorded("waiting")) == ""


def test_a_queue_that_is_stopped_is_refused() -> None:
    status = recorded("idle")
    for queue in status.scheduler["queues"]["queue"]:
        queue["state"] = "STOPPED"
    assert refusal(demand_of({}), status) == "queue default of YARN is STOPPED: set spark.yarn.queue to another"


def test_another_scheduler_is_not_judged() -> None:
    status = recorded("idle")
    status.scheduler["type"] = "fairScheduler"
    assert refusal(demand_of({QUEUE_KEY: "root.users.me"}), status) == ""
    assert outlook(demand(LABELLED), 4, status) == ""


def test_nothing_is_reported_when_all_fit() -> None:
    assert outlook(demand(LABELLED), 4, recorded("idle")) == ""
    assert outlook(demand(SMALL), 4, recorded("idle")) == ""


def test_the_number_that_fits_an_idle_cluster_is_reported() -> None:
    status = recorded("idle")
    assert outlook(demand(LABELLED), 8, status) == (
        "4 of 8 executors fit nodes with label gpu in queue default now; capacity 4 x (896 MB, 1 core)"
    )
    gpus = {**LABELLED, "spark.executor.resource.gpu.amount": "1"}
    assert "2 of 3 executors fit" in outlook(demand(gpus), 3, status)
    assert "capacity 2 x (896 MB, 1 core, 1 GPU)" in outlook(demand(gpus), 3, status)
    assert "1 of 3 executors fit" in outlook(demand({**LABELLED, "spark.executor.cores": "3"}), 3, status)


def test_the_holders_of_the_rest_are_named_and_what_the_run_has_already_counts() -> None:
    status = recorded("waiting")
    held = f"held by {HOLDER} (holder of root, 1792 MB, 2 cores)"
    assert outlook(demand(LABELLED, **{"spark.app.id": RUN}), 6, status) == (
        f"2 of 6 executors fit nodes with label gpu in queue default now; capacity 4 x (896 MB, 1 core); {held}"
    )
    assert outlook(demand(LABELLED, **{"spark.app.id": RUN}), 2, status) == ""
    assert outlook(demand(LABELLED), 1, status).startswith("0 of 1 executor fit nodes with label gpu")
    assert f"{RUN} (wide of root, 1792 MB, 2 cores)" in outlook(demand(LABELLED), 1, status)


def test_only_the_largest_holders_are_named() -> None:
    status = recorded("waiting")
    others = [copy.deepcopy(status.applications[0]) for _ in range(5)]
    for number, each in enumerate(others):
        each["id"] = f"application_1_{number}"
    status.applications.extend(others)
    text = outlook(demand(LABELLED), 4, status)
    assert text.count("application_") == 3
    assert text.endswith(", 4 more")


def test_a_queue_with_less_than_the_nodes_have_reports_its_own_capacity() -> None:
    status = recorded("idle")
    default = next(queue for queue in status.scheduler["queues"]["queue"] if queue["queueName"] == "default")
    for part in default["capacities"]["queueCapacitiesByPartition"]:
        for amount in part["effectiveMaxResource"]["resourceInformations"]["resourceInformation"]:
            amount["value"] //= 2
    assert "2 of 4 executors fit nodes with label gpu in queue default now; capacity 2 x" in outlook(
        demand(LABELLED), 4, status
    )


def test_a_labelled_node_that_is_lost_is_named() -> None:
    status = recorded("idle")
    labelled_node(status)["state"] = "LOST"
    name = labelled_node(status)["id"]
    assert refusal(demand(LABELLED), status) == "", "it may come back"
    assert outlook(demand(LABELLED), 2, status) == (
        f"no node with label gpu in queue default is running: {name} is LOST"
    )


def test_older_versions_that_report_less_are_understood() -> None:
    status = recorded("idle")
    for node in status.nodes:
        del node["availableResource"], node["usedResource"]
    del status.scheduler["queues"]["queue"][1:]
    status.scheduler["queues"]["queue"] = status.scheduler["queues"]["queue"][0]
    assert outlook(demand(LABELLED), 8, status).startswith("4 of 8 executors fit nodes with label gpu in queue default")


def test_a_cluster_is_summed_up_by_its_nodes_labels_and_queues() -> None:
    idle = recorded("idle")
    assert summary(idle) == "2 running nodes; labels: gpu; queues: default, nogpu, prio"
    labelled_node(idle)["state"] = "LOST"
    assert summary(idle) == "1 running node; queues: default, nogpu, prio"
    assert summary(YarnStatus({"type": "fifoScheduler"}, [], [])) == "0 running nodes"
