"""The doctor with real daemons: a NameNode reports its settings, and YARN its executors."""

import json
from typing import Any

import pytest

from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.ops.doctor.examine import ClusterExaminer, ExaminationRequest
from sparktrain.ops.doctor.hadoop import STALE_KEY
from tests.conf import CONF
from tests.hadoop.stores import PROTOCOLS, url
from tests.support.hadoop import LABEL, Hdfs, Yarn, submit

pytestmark = pytest.mark.timeout(480)


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [each for each in findings if each.check == check]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_namenode_reports_the_settings_that_cost(
    hdfs_cluster: Hdfs, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_cluster.conf))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    found = (
        ClusterExaminer(ExaminationRequest(url(hdfs_cluster, protocol, f"/doctor-{protocol}")), 1).examine().findings
    )
    [store], [setting] = of(found, "store"), of(found, "namenode")
    assert store.level is Level.PASS
    assert setting.level is Level.WARN, "the cluster has all but this one"
    assert setting.message.startswith(f"{STALE_KEY} is false on {hdfs_cluster.webhdfs_url}")
    assert hdfs_cluster.cli("-ls", f"/doctor-{protocol}").strip() == "", "it leaves no file"


@pytest.mark.all(
    case="the doctor under spark-submit", covered_by="`hadoop/test_yarn_pool`: the doctor in a session on YARN"
)
def test_executors_of_yarn_answer_and_the_memory_of_their_container_is_checked(yarn_cluster: Yarn) -> None:
    directory = f"{yarn_cluster.hdfs.url}/doctor"
    submitted = submit(yarn_cluster, CONF.parent / "jobs" / "doctor.py", "--dir", directory, "--json")
    assert submitted.exit_code == 0, submitted.output
    report: dict[str, Any] = json.JSONDecoder().raw_decode("{" + submitted.output.partition("\n{\n")[2])[0]
    levels = {each["check"]: each["level"] for each in report["findings"]}
    passing = ("spark", "slots", "store", "executors", "driver reachable", "ports", "store on executors", "yarn")
    assert {check: levels.get(check) for check in passing} == dict.fromkeys(passing, "pass"), report
    assert levels["memory"] == "warn", "512 MiB, and 384 beside them"
    [room] = [each["message"] for each in report["findings"] if each["check"] == "yarn"]
    assert room.startswith("room for 2 executors; 2 running nodes; ")
    assert f"labels: {LABEL}" in room
    assert [slot["shared"] for slot in report["slots"]] == [True, True]
