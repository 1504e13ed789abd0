"""Hadoop's configuration names the ResourceManager, and its silence stops no run."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparktrain.cluster.executor_loss import explain_failure
from sparktrain.cluster.yarn_capacity import LABEL_KEY, QUEUE_KEY
from sparktrain.cluster.yarn_client import Nodes, Outlook, ResourceManager, check
from sparktrain.errors import ResourceError, SpecError
from sparktrain.state.outcome import Loss

IDLE = json.loads((Path(__file__).parent / "yarn" / "idle.json").read_text())
ANSWERS = {
    "/ws/v1/cluster/scheduler": {"scheduler": {"schedulerInfo": IDLE["scheduler"]}},
    "/ws/v1/cluster/nodes": {"nodes": {"node": IDLE["nodes"]}},
    "/ws/v1/cluster/apps?states=ACCEPTED,RUNNING": {"apps": None},
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the configuration, which has none yet."""
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def answering() -> Iterator[str]:
    """Where a ResourceManager answers: its host and port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(ANSWERS[self.path]).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def write(conf: Path, **settings: str) -> None:
    entries = "".join(
        f"<property><name>yarn.{name.replace('__', '-').replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (conf / "yarn-site.xml").write_text(f"<configuration>{entries}</configuration>")


def urls() -> tuple[str, ...]:
    return ResourceManager.configured().urls


def test_it_is_where_the_configuration_says(conf: Path) -> None:
    assert urls() == ()
    write(conf, resourcemanager_hostname="rm")
    assert urls() == ("http://rm:8088",)
    write(conf, resourcemanager_hostname="rm", resourcemanager_webapp_address="${yarn.resourcemanager.hostname}:80")
    assert urls() == ("http://rm:80",)
    write(conf, resourcemanager_hostname="rm", http_policy="HTTPS_ONLY")
    assert urls() == ("https://rm:8090",)


def test_there_may_be_two(conf: Path) -> None:
    write(
        conf, resourcemanager_ha_rm__ids="a, b", resourcemanager_hostname_a="one",
        resourcemanager_webapp_address_b="two:80",
    )  # fmt: skip
    assert urls() == ("http://one:8088", "http://two:80")


def test_the_one_that_answers_is_believed(conf: Path, answering: str) -> None:
    status = ResourceManager(["http://127.0.0.1:1", f"http://{answering}"]).status()
    assert status is not None
    assert (len(status.nodes), status.applications) == (2, [])


def test_what_it_never_gives_is_refused_and_what_it_lacks_now_is_reported(conf: Path, answering: str) -> None:
    write(conf, resourcemanager_webapp_address=answering)
    with pytest.raises(ResourceError, match=r"queue nogpu may not use label gpu"):
        check({QUEUE_KEY: "nogpu", LABEL_KEY: "gpu"})
    check({LABEL_KEY: "gpu"})
    assert Outlook({LABEL_KEY: "gpu"}, 9)().startswith("2 of 9 executors fit nodes with label gpu")


def test_without_an_answer_nothing_is_refused_and_nothing_is_reported(
    conf: Path, monkeypatch: pytest.MonkeyPatch, answering: str
) -> None:
    wrong = {QUEUE_KEY: "nogpu", LABEL_KEY: "gpu"}
    check(wrong)
    write(conf, resourcemanager_webapp_address="127.0.0.1:1")
    check(wrong)
    assert Outlook(wrong, 9)() == ""
    assert ResourceManager.configured().decommissioning() == frozenset()
    write(conf, resourcemanager_webapp_address=answering)
    node = {"id": "host:1", "state": "RUNNING", "nodeLabels": ["gpu"]}
    monkeypatch.setitem(ANSWERS, "/ws/v1/cluster/nodes", {"nodes": {"node": [node]}})
    check({LABEL_KEY: "gpu"})
    assert Outlook({LABEL_KEY: "gpu"}, 9)() == "", "of another version, with other names in its answers"


def test_a_corrupt_configuration_is_an_error(conf: Path) -> None:
    (conf / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(SpecError, match=r"yarn-site\.xml cannot be read"):
        check({})
    assert Outlook({}, 1)() == ""


LOST = "Container from a bad node: container_1_0001_01_000002 on host: {}. Exit status: -100. Diagnostics: Container "
LOST += "released on a *lost* node."


def test_a_decommissioned_node_is_distinguished_from_other_lost_ones(
    conf: Path, answering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(conf, resourcemanager_webapp_address=answering)
    states = [("gone", "DECOMMISSIONED"), ("going", "DECOMMISSIONING"), ("down", "LOST"), ("back", "RUNNING")]
    nodes = [{"nodeHostName": host, "state": state} for host, state in states]
    monkeypatch.setitem(ANSWERS, "/ws/v1/cluster/nodes", {"nodes": {"node": nodes}})
    with_node = Nodes()
    found = {
        host: explain_failure(with_node(LOST.format(host)))[0] for host in ("gone", "going", "down", "back", "unknown")
    }
    assert found == {
        "gone": Loss.DECOMMISSIONED,
        "going": Loss.DECOMMISSIONED,
        "down": Loss.NODE,
        "back": Loss.NODE,
        "unknown": Loss.NODE,
    }
    monkeypatch.setitem(ANSWERS, "/ws/v1/cluster/nodes?states=DECOMMISSIONING", {"nodes": {"node": nodes}})
    assert ResourceManager.configured().decommissioning() == {"going"}
    nodes.clear()
    assert explain_failure(with_node(LOST.format("gone")))[0] is Loss.DECOMMISSIONED, "each is looked at once"


def test_what_is_not_of_a_lost_node_or_cannot_be_asked_stays_as_it_is(conf: Path) -> None:
    for reason in (LOST.format("gone"), "Executor Process Lost"):
        assert Nodes()(reason) == reason
    (conf / "yarn-site.xml").write_text("<configuration>")
    assert Nodes()(LOST.format("gone")) == LOST.format("gone")
