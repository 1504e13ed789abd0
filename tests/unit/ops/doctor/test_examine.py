"""An examination without Spark; what fails in it, or hangs, is a finding."""

import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparktrain.cluster.check_finding import Finding, Level, failed, passed, warned
from sparktrain.cluster.spark_facts import Facts
from sparktrain.errors import ResourceError, SessionError, SpecError, StoreError
from sparktrain.ops.doctor import examine, observe
from sparktrain.ops.doctor.doctor_report import DoctorReport, document
from sparktrain.ops.doctor.examine import ClusterExaminer, Examination, ExaminationRequest, settle, start_check
from sparktrain.ops.doctor.rollcall import Shared
from sparktrain.ops.doctor.slots import Roll
from tests.support.kubernetes.doctor_answers import RecordedApi
from tests.unit.ops.doctor.seen import DRIVER, OTHER, SLOT, facts, only, reads


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a known Java and without Hadoop."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(observe, "driver_of", lambda spark: DRIVER)


def raising(error: BaseException) -> Any:
    def work() -> list[Finding]:
        raise error

    return work


def test_without_a_session_it_looks_at_what_needs_none(tmp_path: Path) -> None:
    found = ClusterExaminer(ExaminationRequest(str(tmp_path)), 4).examine()
    assert [each.check for each in found.findings] == ["python", "spark", "store"]
    assert found.level is Level.PASS
    assert found.unseen == ["the session and its executors: pass --master, or use spark-submit"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_reported_and_not_left_behind(tmp_path: Path) -> None:
    found = ClusterExaminer(ExaminationRequest(str(tmp_path / "new" / "runs")), 4).examine()
    [missing] = [each for each in found.findings if each.check == "directory"]
    assert missing.level is Level.WARN
    assert missing.message == f"{tmp_path}/new/runs does not exist"
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_checked_is_listed() -> None:
    assert ClusterExaminer(ExaminationRequest(), 4).examine().unseen[1] == "the store: pass --dir"


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(SpecError):
        ClusterExaminer(ExaminationRequest("no:/such/store"), 4).examine()
    with pytest.raises(SpecError):
        ClusterExaminer(ExaminationRequest(agents=0), 4).examine()
    with pytest.raises(SpecError, match=r"gpus \(-1\) must be at least 0"):
        ClusterExaminer(ExaminationRequest(gpus=-1), 4).examine()


def test_a_store_that_cannot_be_used_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = ClusterExaminer(ExaminationRequest(str(tmp_path / "file")), 4).examine()
    assert reads(only(found.findings, "store"), Level.FAIL, "is a file, not a directory")
    assert found.level is Level.FAIL


def test_a_corrupt_configuration_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    found = ClusterExaminer(ExaminationRequest(), 4).examine()
    assert reads(only(found.findings, "machine"), Level.FAIL, "core-site.xml cannot be read", "HADOOP_CONF_DIR")


def test_daemons_that_do_not_answer_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "<property><name>yarn.resourcemanager.webapp.address</name><value>127.0.0.1:1</value></property>"
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{entry}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(observe, "probe", lambda directory, clock: ([passed("store", "well")], Shared()))
    found = ClusterExaminer(ExaminationRequest("webhdfs://127.0.0.1:1/runs"), 4).examine()
    assert reads(only(found.findings, "yarn"), Level.WARN, "http://127.0.0.1:1 does not answer this process")
    assert reads(only(found.findings, "namenode"), Level.WARN, "no NameNode reports its settings")
    assert [each.level for each in found.findings if each.check == "security"] == [Level.WARN, Level.WARN]


@pytest.mark.parametrize("error", [SessionError("no session on spark://h:1; is it there?")])
def test_a_session_that_cannot_start_is_a_finding_and_the_rest_is_checked(error: SessionError) -> None:
    @contextmanager
    def session() -> Iterator[Any]:
        raise error
        yield

    found = ClusterExaminer(ExaminationRequest(open_session=session), 4).examine()
    assert reads(only(found.findings, "session"), Level.FAIL, "no session on spark://h:1", "is it there?")
    assert only(found.findings, "python").level is Level.PASS
    assert found.unseen[0] == "the executors: there is no session"


@contextmanager
def no_session() -> Iterator[Any]:
    raise SessionError("no session: start Spark")
    yield


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens one of two slots, which answer."""
    asked: list[tuple[int, Shared, float]] = []

    def call_roll(spark: Any, of: Facts, slots: int, shared: Shared, *, job_timeout_s: float) -> Roll:
        asked.append((slots, shared, job_timeout_s))
        return Roll(2, (SLOT, OTHER))

    @contextmanager
    def opened() -> Iterator[Any]:
        yield asked

    monkeypatch.setattr(examine.spark_facts, "read_facts", lambda spark, cores: facts("local-cluster[2,1,1024]"))
    monkeypatch.setattr(examine, "call_roll", call_roll)
    opened.asked = asked  # type: ignore[attr-defined]
    return opened


def test_slots_are_queried_with_the_probed_store(session: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    found = ClusterExaminer(ExaminationRequest(str(tmp_path / "runs"), session), 4).examine()
    [(slots, shared, job_timeout_s)] = session.asked
    assert slots == 2
    assert 40.0 < job_timeout_s < 50.0, "slots have what the checks before them leave of a minute"
    assert (shared.address.url, bool(shared.marker)) == (str(tmp_path / "runs"), True)
    assert found.unseen == []
    assert {each.level for each in found.findings} == {Level.PASS}
    assert found.roll is not None
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has Kubernetes answer as in a recorded case, by its name."""

    def of(case: str) -> None:
        monkeypatch.setattr(examine, "spark_api", lambda spark: nullcontext(RecordedApi(case)))

    return of


def test_without_a_session_kubernetes_is_asked_why(recorded: Any) -> None:
    recorded("denied")
    found = ClusterExaminer(ExaminationRequest(master="k8s://https://h:1", open_session=no_session), 4).examine()
    assert [only(found.findings, check).level for check in ("session", "kubernetes", "role")] == [
        Level.FAIL, Level.PASS, Level.PASS,
    ]  # fmt: skip
    assert reads(only(found.findings, "pods"), Level.FAIL, "denies them (pods need a cost centre)")
    assert found.unseen == ["the executors: there is no session", "the store: pass --dir"]


def test_what_kubernetes_does_not_tell_is_listed(recorded: Any) -> None:
    request = ExaminationRequest(master="k8s://https://h:1", open_session=no_session)
    found = ClusterExaminer(request, 4).examine()
    assert found.unseen[-1] == "what Kubernetes allows its pods: only the process of Spark's driver can ask"
    recorded("stranger")
    found = ClusterExaminer(request, 4).examine()
    assert reads(only(found.findings, "kubernetes"), Level.FAIL, "does not know the token")
    assert found.unseen[-1] == "what Kubernetes allows its pods: see the failure above"


def test_slots_are_not_queried_where_a_run_would_be_refused(session: Any) -> None:
    found = ClusterExaminer(ExaminationRequest(open_session=session, agents=5), 4).examine()
    assert reads(only(found.findings, "slots"), Level.FAIL, "agents (5) exceeds the 2 slots")
    assert session.asked == []
    assert found.unseen == ["the store: pass --dir", "the executors: see the failures above"]


def test_an_error_of_ours_keeps_its_next_step() -> None:
    [finding] = settle("store", start_check(raising(StoreError(5, "the disk is gone; replace it"))), 5.0)
    assert reads(finding, Level.FAIL, "the disk is gone", "replace it")
    [finding] = settle("slots", start_check(raising(ResourceError("too few: add some"))), 5.0)
    assert (finding.message, finding.fix) == ("too few", "add some")


@pytest.mark.parametrize("error", [KeyError("x"), TimeoutError("slow"), subprocess.TimeoutExpired("klist", 5.0)])
def test_a_check_that_fails_is_a_warning(error: Exception) -> None:
    pending = start_check(raising(error))
    pending.exception(5.0)
    [finding] = settle("kerberos", pending, 5.0)
    assert reads(finding, Level.WARN, "the check failed")


def test_what_hangs_fails_at_its_deadline() -> None:
    never = threading.Event()
    pending = start_check(lambda: [passed("x", str(never.wait(60)))])
    try:
        [finding] = settle("store", pending, 0.01)
        assert reads(finding, Level.FAIL, "no answer within 0.01 s")
    finally:
        never.set()
    assert isinstance(pending, Future)


FOUND = Examination(
    [
        passed("spark", "Spark 4.3.0"),
        warned("speculation", "it is on", "set it off"),
        failed("store", "no\x1b[2J", "go"),
    ],
    ["the store: pass --dir"],
    Roll(1, (SLOT,)),
)


def test_the_report_for_people_has_a_line_for_each_and_its_fix() -> None:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as shown:
        console.print(DoctorReport(FOUND))
    lines = [line.rstrip() for line in shown.get().splitlines()]
    assert lines == [
        "PASS  spark        Spark 4.3.0",
        "WARN  speculation  it is on",
        "                   fix: set it off",
        "FAIL  store        no\\x1b[2J",
        "                   fix: go",
        "",
        "not checked: the store: pass --dir",
        "1 FAIL, 1 WARN, 1 PASS",
    ]


def test_the_report_for_programs_is_json() -> None:
    made = json.loads(json.dumps(document(FOUND), allow_nan=False))
    assert (made["version"], made["level"]) == (1, "fail")
    assert made["findings"][0] == {"check": "spark", "level": "pass", "message": "Spark 4.3.0", "fix": None}
    assert made["findings"][1]["fix"] == "set it off"
    assert made["unseen"] == ["the store: pass --dir"]
    assert made["slots"][0]["peers"] == [{"host": "b", "address": "10.0.0.2", "port": 4000, "problem": ""}]
    assert document(Examination())["slots"] == []
