"""`sparktrain doctor` on the command line, with a narrow fake in place of the examination."""

import json
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.cluster.check_finding import Finding, failed, passed, warned
from sparktrain.ops.doctor import examine
from sparktrain.ops.doctor.examine import Examination, ExaminationRequest

Capture = pytest.CaptureFixture[str]


class Edge:
    """What the command line calls."""

    def __init__(self) -> None:
        self.asked: list[ExaminationRequest] = []
        self.findings: list[Finding] = [passed("spark", "Spark 4.3.0")]

    def __call__(self, asked: ExaminationRequest, cores: int) -> "Edge":
        assert cores > 0
        self.asked.append(asked)
        return self

    def examine(self) -> Examination:
        return Examination(self.findings, ["the store: pass --dir"])


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    made = Edge()
    monkeypatch.setattr(examine, "ClusterExaminer", made)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return made


def test_the_examination_gets_its_options_and_its_report_is_shown(edge: Edge, capfd: Capture) -> None:
    assert cli.main(["doctor", "--dir", "/runs", "--agents", "2", "--gpus", "1"]) == 0
    assert edge.asked == [ExaminationRequest("/runs", None, 2, 1)]
    out, _ = capfd.readouterr()
    assert out.splitlines() == [
        "PASS  spark  Spark 4.3.0", "", "not checked: the store: pass --dir", "0 FAIL, 0 WARN, 1 PASS",
    ]  # fmt: skip


@pytest.mark.parametrize(("finding", "code"), [(warned("a", "b", "c"), 0), (failed("a", "b", "c"), 1)])
def test_the_exit_code_shows_whether_a_check_fails(edge: Edge, finding: Finding, code: int, capfd: Capture) -> None:
    edge.findings.append(finding)
    assert cli.main(["doctor", "--json"]) == code
    out, _ = capfd.readouterr()
    assert json.loads(out)["findings"][1]["level"] == str(finding.level)


def test_there_is_a_session_where_one_is_named_or_brought(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.main(["doctor", "--master", "local[1]", "--conf", "spark.task.cpus=2"])
    assert edge.asked[0].open_session is not None
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    cli.main(["doctor"])
    assert edge.asked[1].open_session is not None


WRONG: list[tuple[list[str], str]] = [
    (["--conf", "nonsense", "--master", "local"], "must be KEY=VALUE"),
    (["--agents", "x"], "sparktrain doctor --help"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_a_wrong_call_is_refused(edge: Edge, arguments: list[str], words: str, capfd: Capture) -> None:
    assert cli.main(["doctor", *arguments]) == 2
    assert words in capfd.readouterr().err
    assert edge.asked == []


def test_help_has_examples_and_exit_codes(capfd: Capture) -> None:
    assert cli.main(["doctor", "--help"]) == 0
    out: Any = capfd.readouterr().out
    assert "jobs/doctor.py --dir hdfs:///runs" in out
    assert "1  at least one check fails; or an unexpected error" in out
