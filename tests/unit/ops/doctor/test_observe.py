"""What is asked of this machine, of a NameNode and of a store, with the narrowest of fakes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.check_finding import Level
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.ops.doctor import observe
from sparktrain.ops.doctor.hadoop import AUTHENTICATION_KEY
from sparktrain.store.url import open_store
from tests.unit.ops.doctor.seen import reads

JAVA = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n'
WANTED = {AUTHENTICATION_KEY: "kerberos"}
KLIST = """#!/bin/sh
test "$1" = -s && exit 0
test "$LC_ALL" = C || exit 3
printf 'Default principal: alice@LAB\\n\\n%s  %s  krbtgt/LAB@LAB\\n' '11/21/26 08:00:00' '11/21/56 18:00:00'
"""
NONE = "#!/bin/sh\necho 'klist: No credentials cache found' >&2\nexit 1\n"


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_TOKEN_FILE_LOCATION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with commands that come before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)


def test_java_is_the_one_that_spark_would_start(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert observe.java_version(JAVA) == "17.0.15"
    write(commands / "java", "#!/bin/sh\necho 'java version \"11.0.2\"' >&2\n")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert observe.java_here() == "11.0.2"
    write(commands / "home" / "bin" / "java", "#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(commands / "home"))
    assert observe.java_here() == "21"
    monkeypatch.setenv("JAVA_HOME", str(commands / "nothing"))
    assert observe.java_here() == ""


def test_the_driver_without_a_session(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(commands))
    driver = observe.driver_of(None)
    assert (driver.spark, driver.java) == (None, "")
    assert driver.versions["python"] == ".".join(driver.python.split(".")[:2])
    assert driver.versions["sparktrain"]


def test_kerberos_is_checked_where_hadoop_needs_it(commands: Path) -> None:
    clock = SystemClock()
    assert observe.kerberos({}, clock) == []
    write(commands / "klist", KLIST)
    [well] = observe.kerberos(WANTED, clock)
    assert reads(well, Level.PASS, "the ticket of alice@LAB ends in", "at 11/21/56 18:00:00")
    write(commands / "klist", NONE)
    [lost] = observe.kerberos(WANTED, clock)
    assert reads(lost, Level.FAIL, "there is no Kerberos ticket")


def test_tokens_of_a_job_do_for_a_ticket(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(commands / "klist", NONE)
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(commands / "tokens"))
    [well] = observe.kerberos(WANTED, SystemClock())
    assert reads(well, Level.PASS, "has the tokens of its job")


def test_a_missing_klist_is_a_warning(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(commands))
    [finding] = observe.kerberos(WANTED, SystemClock())
    assert reads(finding, Level.WARN, "there is no klist here", "krb5-user")


HA = {
    "dfs.nameservices": "lab",
    "dfs.ha.namenodes.lab": "nn1, nn2",
    "dfs.namenode.rpc-address.lab.nn1": "one:8020",
    "dfs.namenode.rpc-address.lab.nn2": "two:8020",
}
URLS = [
    ("hdfs://nn:8020/runs", {}, ["http://nn:9870"]),
    ("hdfs://nn:8020/runs", {"dfs.namenode.http-address": "nn:50070"}, ["http://nn:50070"]),
    ("hdfs://nn:8020/runs", {"dfs.http.policy": "HTTPS_ONLY"}, ["https://nn:9871"]),
    ("hdfs://lab/runs", HA, ["http://one:9870", "http://two:9870"]),
    ("hdfs://lab/runs", {**HA, "dfs.namenode.http-address.lab.nn2": "two:1"}, ["http://one:9870", "http://two:1"]),
    ("webhdfs://a:9870,b:9870/runs", {}, ["http://a:9870", "http://b:9870"]),
    ("swebhdfs://a:9871/runs", {}, ["https://a:9871"]),
]


@pytest.mark.parametrize(("url", "settings", "urls"), URLS)
def test_namenodes_are_where_the_configuration_has_them(url: str, settings: dict[str, str], urls: list[str]) -> None:
    assert observe.namenode_urls(StoreAddress(url), settings) == urls
    assert observe.namenode_urls(StoreAddress(url, settings), {}) == urls


@pytest.fixture
def namenode() -> Iterator[str]:
    """Host and port of a NameNode that reports one setting."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/conf?format=json"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"properties": [{"key": "dfs.x", "value": "1", "isFinal": False}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_first_namenode_that_answers_reports_its_settings(namenode: str) -> None:
    settings, where = observe.namenode_settings(StoreAddress(f"webhdfs://127.0.0.1:1,{namenode}/runs"))
    assert (settings, where) == ({"dfs.x": "1"}, f"http://{namenode}")


def test_namenodes_that_do_not_answer_are_named() -> None:
    with pytest.raises(OSError, match=r"no NameNode reports its settings \(http://127.0.0.1:1: "):
        observe.namenode_settings(StoreAddress("webhdfs://127.0.0.1:1/runs"))


def test_a_store_is_probed_and_nothing_is_left(tmp_path: Path) -> None:
    [well, absent], shared = observe.probe(str(tmp_path / "runs"), SystemClock())
    assert reads(well, Level.PASS, f"{tmp_path / 'runs'}: a file is created once, made durable, read back and deleted")
    assert open_store(shared.address).list() == [shared.marker]
    assert reads(absent, Level.WARN, f"{tmp_path / 'runs'} does not exist")
    observe.forget(shared)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_refused_as_a_run_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="is a file, not a directory"):
        observe.probe(str(tmp_path / "file"), SystemClock())
    with pytest.raises(SpecError):
        observe.probe("no:/such/store", SystemClock())


def test_settings_of_hadoop_are_read_where_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert observe.hadoop_settings() == {}
    entry = f"<property><name>{AUTHENTICATION_KEY}</name><value>kerberos</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{entry}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert observe.hadoop_settings() == WANTED
