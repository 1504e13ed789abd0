"""How JVMs of this machine are started, and what an error names where they do not."""

import shlex
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparktrain.cluster import jvm, spark_session
from sparktrain.cluster.spark_session import CLASSES, FAST_JVM, jvm_here, local_session
from sparktrain.errors import SessionError


def test_a_machine_that_cannot_resolve_its_names_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(jvm, "start", start)
    monkeypatch.setattr(socket, "gethostname", lambda: "edge-1")
    expected = r"on local\[2\]: this machine does not know .* \(Name or service .*\); localhost .* edge-1.*/etc/hosts$"
    with pytest.raises(SessionError, match=expected), local_session("local[2]", {}, "app"):
        pass


def test_an_older_spark_home_is_named_before_java_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.7.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "start", None)
    expected = r"^SPARK_HOME \(.*\) is Spark 3\.5\.7, and PySpark is 4\..*: name a Spark 4, or unset SPARK_HOME"
    with pytest.raises(SessionError, match=expected), local_session("local[2]", {}, "app"):
        pass


def test_stored_classes_are_used_where_there_are_some(tmp_path: Path) -> None:
    environment = tmp_path / "my environment"
    environment.mkdir()
    assert jvm_here(environment) == FAST_JVM
    (environment / CLASSES).touch()
    assert shlex.split(jvm_here(environment)) == [*FAST_JVM.split(), f"-XX:SharedArchiveFile={environment / CLASSES}"]


@pytest.mark.parametrize(("moment", "shown"), [("run", 2), ("stop", 1)])
def test_errors_that_spark_logs_while_it_stops_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, shown: int
) -> None:
    scratch = []

    def logs(now: str) -> None:
        if now == moment:
            (Path(scratch[0]) / "spark.log").write_text("2026-11-29 14:43:43 ERROR Executor: Exception in task 1.0\n")

    def started(master: str, conf: object, name: str, folder: str) -> SimpleNamespace:
        scratch.append(folder)
        return SimpleNamespace(stop=lambda: logs("stop"))

    monkeypatch.setattr(spark_session, "_session", started)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines: list[str] = []
    with local_session("local[2]", {}, "app", lines.append):
        logs("run")
    assert len(lines) == shown, "the first one is about the start"


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("k8s://https://127.0.0.1:6443", {"spark.driver.host": "127.0.0.1"}),
        ("k8s://127.0.0.1", {"spark.driver.host": "127.0.0.1"}),
        ("k8s://https://no-such-host.invalid:6443", {}),
        ("spark://127.0.0.1:7077", {}),
        ("yarn", {}),
    ],
)
def test_pods_get_the_address_by_which_this_machine_reaches_their_cluster(
    master: str, expected: dict[str, str]
) -> None:
    defaults = spark_session._session_defaults(master, "")
    assert {key: value for key, value in defaults.items() if key == "spark.driver.host"} == expected


@pytest.mark.parametrize(
    ("user", "step"),
    [(2**31 - 7, "give user 2147483641 of this process a line in /etc/passwd"), (0, "check that Java 17")],
)
def test_a_user_without_a_name_is_the_likely_cause_of_a_java_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, user: int, step: str
) -> None:
    def start(*arguments: object) -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    monkeypatch.setattr(jvm, "start", start)
    monkeypatch.setattr("os.geteuid", lambda: user)
    with (
        pytest.raises(SessionError, match=rf"GATEWAY_EXITED\] .*; {step}"),
        local_session("local[2]", {}, "app"),
    ):
        pass
