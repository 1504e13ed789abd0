"""What a Spark session is: its slots by its configuration, and whether it has stopped."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.cluster import spark_facts
from sparktrain.cluster.spark_facts import Facts
from sparktrain.errors import SessionError

CORES = 8
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
YARN = {"executor.instances": "4", "executor.cores": "4"}


def facts(master: str, **conf: str) -> Facts:
    return Facts(master, {f"spark.{key}": value for key, value in conf.items()}, CORES)


SLOTS = [
    ("local", {}, 1),
    ("local[*]", {}, CORES),
    ("local[4]", {}, 4),
    ("local[*,3]", {}, CORES),
    ("local[4, 3]", {}, 4),
    ("local[5]", {"task.cpus": "2"}, 2),
    (LOCAL_CLUSTER, {}, 2),
    ("local-cluster[2, 4, 1024]", {"task.cpus": "2"}, 4),
    ("local-cluster[2,4,1024]", {"executor.cores": "1"}, 2),
    (LOCAL_CLUSTER, {"task.cpus": "2"}, 0),
    ("yarn", YARN, 16),
    ("yarn", {**YARN, "task.cpus": "4"}, 4),
    ("yarn", {**YARN, "task.cpus": "3"}, 4),
    ("yarn", {}, 2),
    ("k8s://host:443", YARN, 16),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "true"}, None),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "true", "dynamicAllocation.maxExecutors": "10"}, 40),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "false", "dynamicAllocation.maxExecutors": "10"}, 16),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "2", "task.resource.gpu.amount": "1"}, 8),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "1", "task.resource.gpu.amount": "0.5"}, 8),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "8", "task.resource.gpu.amount": "1"}, 16),
    ("yarn", {**YARN, "task.resource.gpu.amount": "1"}, 0),
    ("spark://host:7077", {}, None),
    ("spark://host:7077", {"executor.cores": "2"}, None),
    ("spark://host:7077", {"cores.max": "6"}, 6),
    ("spark://host:7077", {"cores.max": "6", "task.cpus": "4"}, 1),
    ("spark://host:7077", {"cores.max": "10", "executor.cores": "4", "task.cpus": "2"}, 4),
    ("spark://host:7077", {"executor.cores": "2", "dynamicAllocation.enabled": "true"}, None),
    ("", {}, None),
    ("other://host", {"executor.instances": "3"}, 3),
]


@pytest.mark.parametrize(("master", "conf", "expected"), SLOTS)
def test_slots_by_configuration(master: str, conf: dict[str, str], expected: int | None) -> None:
    assert spark_facts.slots(facts(master, **conf)) == expected


def test_how_many_executors_agents_need() -> None:
    there = facts("yarn", **{"executor.cores": "4", "task.cpus": "2"})
    assert spark_facts.slots_of_executor(there) == 2
    assert [spark_facts.executors_for(there, agents) for agents in (1, 2, 3)] == [1, 1, 2]
    assert spark_facts.executors_for(facts("yarn", **{"task.cpus": "2"}), 3) == 3, "as if each had room for one"


class Broken:
    """A session without a JVM: every query raises an error of no known kind."""

    class conf:  # noqa: N801 - Spark's name
        @staticmethod
        def get(key: str, default: object) -> str:
            raise ConnectionError

    def range(self) -> None: ...


def test_a_session_that_does_not_answer_is_an_error_of_ours() -> None:
    session: Any = Broken()
    assert spark_facts.active_session(session) is session
    with pytest.raises(SessionError, match=r"cannot be used \(ConnectionError\): make a new one"):
        spark_facts.read_facts(session, CORES)
    not_one: Any = "local[2]"
    with pytest.raises(SessionError, match=r"spark \(str\) must be a SparkSession"):
        spark_facts.active_session(not_one)


@pytest.mark.parametrize("version", ["3.5.7", "5.0.0"])
def test_a_session_of_another_spark_is_an_error_with_its_version(version: str) -> None:
    """As that of a Connect server, which may be older than the client."""
    session: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda key, default: default), version=version)
    with pytest.raises(SessionError, match=rf"is one of Spark {version}, and sparktrain needs Spark 4: connect to"):
        spark_facts.read_facts(session, CORES)


class Py4JError(Exception):
    """As Py4J's."""


class Py4JNetworkError(Py4JError):
    """As Py4J's."""


class Py4JJavaError(Py4JError):
    """As Py4J's."""


def session_whose_jvm(answers: bool | Exception) -> Any:
    """A classic session; its JVM answers whether its context is stopped, or the call raises."""

    def stopped() -> bool:
        if isinstance(answers, Exception):
            raise answers
        return answers

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped))
    return SimpleNamespace(_sc=SimpleNamespace(_jsc=java), range=None)


@pytest.mark.parametrize(
    ("answers", "stopped"),
    [
        (True, True),
        (False, False),
        (ConnectionRefusedError(111, "Connection refused"), True),
        (Py4JError("An error occurred while calling o1.sc"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JJavaError("java.lang.OutOfMemoryError"), False),
        (OSError(24, "Too many open files"), False),
        (MemoryError(), False),
        (RuntimeError("can't start new thread"), False),
    ],
)
def test_only_a_jvm_that_does_not_answer_is_a_session_that_is_stopped(answers: bool | Exception, stopped: bool) -> None:
    assert spark_facts.is_stopped(session_whose_jvm(answers)) == stopped


def test_the_address_of_a_connect_client_is_not_that_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_facts.driver_address, "is_ours", lambda host: host == "laptop")
    monkeypatch.setattr(spark_facts.driver_address.socket, "getfqdn", lambda: "laptop")
    monkeypatch.setattr(spark_facts.driver_address.socket, "gethostname", lambda: "laptop")
    of_server = {"spark.driver.host": "10.0.0.4", "spark.driver.bindAddress": "10.0.0.4"}
    address = Facts("spark://10.0.0.1:7077", of_server, CORES, connect=True).address
    assert (address.bind, address.hosts) == ("laptop", ("laptop", "10.0.0.4"))
