"""Settings of Spark that harm agents are refused or named, by their keys."""

from unittest.mock import MagicMock, Mock

import pytest

from sparktrain.cluster.check_finding import Level
from sparktrain.cluster.launch_warnings import check_settings, launch_findings
from sparktrain.cluster.spark_facts import Facts, slots, slots_of_executor
from sparktrain.cluster.spark_settings import harms
from sparktrain.cluster.task_failures import start_outlook
from sparktrain.cluster.yarn_capacity import demand_of
from sparktrain.driver.engines.engine import JobEnd
from sparktrain.driver.engines.spark_engine import SparkEngine
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
    ("key", "value"),
    [
        ("spark.executor.pyspark.memory", "1g"),
        ("spark.excludeOnFailure.enabled", "true"),
        ("spark.yarn.executor.launch.excludeOnFailure.enabled", "true"),
        ("spark.network.timeout", "20s"),
        ("spark.network.timeout", "20"),
        ("spark.storage.blockManagerHeartbeatTimeoutMs", "20000"),
        ("spark.kubernetes.executor.rollInterval", "3600"),
        ("spark.speculation", "TRUE"),
        ("spark.dynamicAllocation.enabled", "true"),
    ],
)
def test_settings_that_cost_agents_are_named(key: str, value: str) -> None:
    warnings = [finding for finding in launch_findings(facts(**{key: value})) if finding.level is Level.WARN]
    names = [finding.message.partition(":")[0] for finding in warnings]
    assert names == [f"{key}={value}"]
    assert all(finding.fix for finding in warnings)


def test_what_does_not_start_may_be_excluded() -> None:
    session = MagicMock()
    excluding = facts(**{"spark.excludeOnFailure.enabled": "true"})
    assert "spark.excludeOnFailure.enabled=true" in start_outlook(session, excluding, 2)()
    assert start_outlook(session, facts(), 2)() == ""


REAPER = {"spark.task.reaper.enabled": "true"}
KILLS = "spark.excludeOnFailure.killExcludedExecutors"


@pytest.mark.parametrize(
    ("conf", "checks"),
    [
        (REAPER, []),
        (REAPER | {"spark.task.reaper.killTimeout": "2min"}, []),
        (REAPER | {"spark.task.reaper.killTimeout": "5s"}, ["task reaper"]),
        ({"spark.task.reaper.killTimeout": "5s"}, []),
        ({KILLS: "true"}, []),
        ({KILLS: "true", "spark.excludeOnFailure.enabled": "true"}, ["exclusion"] * 2),
        ({"spark.network.timeout": "600"}, []),
        ({"spark.network.timeout": "20s", "spark.storage.blockManagerHeartbeatTimeoutMs": "120000"}, []),
        ({"spark.network.timeout": "120s", "spark.kubernetes.executor.rollInterval": "0"}, []),
    ],
)
def test_settings_that_harm_only_with_others_or_where_short(conf: dict[str, str], checks: list[str]) -> None:
    assert [finding.check for finding in harms(conf)] == checks


@pytest.mark.parametrize(
    "key", ["spark.executor.cores", "spark.executor.memoryOverheadFactor", "spark.executor.resource.gpu.amount"]
)
def test_the_request_to_yarn_names_a_key_that_is_no_number(key: str) -> None:
    with pytest.raises(SessionError, match=rf"^{key} \(2x\) must be a number"):
        demand_of({key: "2x"})


@pytest.mark.parametrize("problem", ["Job aborted", None])
def test_a_job_that_spark_gives_up_names_the_limit_of_memory(problem: str | None) -> None:
    ends: list[JobEnd] = []
    engine = SparkEngine(Mock(), facts(**{"spark.executor.pyspark.memory": "256m"}))
    engine.batch(Mock(pool="p"), range(1), (), ends.append, without_gpus=False)._on_end(JobEnd(error=problem))
    assert ("spark.executor.pyspark.memory=256m" in ends[0].problem) is (problem is not None)


@pytest.mark.parametrize("master", ["k8s://h", "yarn"])
def test_an_application_that_spark_shuts_down_on_kubernetes_names_the_ends_of_executors(master: str) -> None:
    ends: list[JobEnd] = []
    engine = SparkEngine(Mock(), facts(master))
    error = "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down"
    engine.batch(Mock(pool="p"), range(1), (), ends.append, without_gpus=False)._on_end(JobEnd(error=error))
    assert ("a user without a line in /etc/passwd" in ends[0].problem) is (master == "k8s://h")


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
