"""Settings of Spark that harm agents are refused or named, by their keys."""

import pytest

from sparktrain.cluster.agent_diagnosis import start_outlook
from sparktrain.cluster.check_finding import Level
from sparktrain.cluster.launch_warnings import check_settings, launch_findings
from sparktrain.cluster.spark_facts import Facts, slots, slots_of_executor
from sparktrain.errors import ResourceError, SessionError

KILL = "spark.python.worker.killOnIdleTimeout"
TIMEOUT = "spark.python.worker.idleTimeoutSeconds"
OF_SQL = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"


def facts(master: str = "local[2]", **conf: str) -> Facts:
    return Facts(master=master, conf=conf, cores=4)


def test_workers_that_are_killed_when_idle_are_refused() -> None:
    with pytest.raises(ResourceError, match=rf"^{KILL}=TRUE with {TIMEOUT}=4s: .*{OF_SQL}', 'false'"):
        check_settings(facts(**{KILL: "TRUE", TIMEOUT: "4s"}))


@pytest.mark.parametrize(
    "conf",
    [{KILL: "true"}, {KILL: "true", TIMEOUT: "0"}, {TIMEOUT: "4"}, {KILL: "true", TIMEOUT: "4", OF_SQL: "false"}],
)
def test_an_idle_timeout_that_kills_nothing_is_allowed(conf: dict[str, str]) -> None:
    check_settings(facts(**conf))


@pytest.mark.parametrize(
    ("key", "value"), [("spark.executor.pyspark.memory", "1g"), ("spark.excludeOnFailure.enabled", "true")]
)
def test_settings_that_cost_agents_are_named(key: str, value: str) -> None:
    warnings = [finding for finding in launch_findings(facts(**{key: value})) if finding.level is Level.WARN]
    assert [finding.message.partition(":")[0] for finding in warnings] == [f"{key}={value}"]
    assert all(finding.fix for finding in warnings)


def test_what_does_not_start_may_be_excluded() -> None:
    assert (
        "spark.excludeOnFailure.enabled=true" in start_outlook(facts(**{"spark.excludeOnFailure.enabled": "true"}), 2)()
    )
    assert start_outlook(facts(), 2)() == ""


@pytest.mark.parametrize(("cpus", "count"), [("0.5", 4), ("0.7", 2), ("1.5", 1), ("2.0", 1), ("2", 1), (" 1 ", 2)])
def test_tasks_may_have_parts_of_cores(cpus: str, count: int) -> None:
    assert slots(facts(**{"spark.task.cpus": cpus})) == count


@pytest.mark.parametrize(("gpus", "count"), [("0.4", 4), ("0.25", 8), ("0.3", 6), ("0.5", 4), ("1", 2), ("2", 1)])
def test_a_task_has_its_part_of_one_gpu(gpus: str, count: int) -> None:
    conf = {"spark.executor.resource.gpu.amount": "2", "spark.task.resource.gpu.amount": gpus}
    assert slots_of_executor(facts("spark://host:1", **conf, **{"spark.executor.cores": "8"})) == count


@pytest.mark.parametrize("value", ["2f", "NaN", "", "0"])
def test_what_is_no_number_is_an_error_with_the_key(value: str) -> None:
    with pytest.raises(SessionError, match=r"spark\.task\.cpus \("):
        slots(facts(**{"spark.task.cpus": value}))
