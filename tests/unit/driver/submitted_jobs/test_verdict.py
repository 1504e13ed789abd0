"""The exit code of a job: the run's report counts before YARN's report of the application."""

import pytest
from msgspec import structs

from sparktrain.base.ids import TrialId
from sparktrain.cluster.yarn_application import Application, application_of
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.submitted_jobs.verdict import Verdict, verdict_of
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.runs.view import RunDriver, RunState, RunTimes, RunView, TrialView
from sparktrain.state.ending import Ending
from sparktrain.state.records import RunEnded
from sparktrain.state.trial import TrialStatus

SUCCEEDED = Application(id="application_1_0001", state="FINISHED", final_status="SUCCEEDED")
FAILED = Application(
    id="application_1_0001",
    state="FINISHED",
    final_status="FAILED",
    diagnostics="User application exited with status 2",
)
KILLED = Application(
    id="application_1_0001", state="KILLED", final_status="KILLED", diagnostics="Application was killed by user ann"
)
STATUSES = {0: TrialStatus.SUCCEEDED, 3: TrialStatus.FAILED, 4: TrialStatus.LOST}


def run(code: int = 0, state: RunState = RunState.ENDED, ending: str = "complete", reason: str = "") -> RunView:
    """A run with one trial that ended with `code`, by a driver that started at 5 s."""
    result = TrialResult(id=TrialId(0), status=STATUSES[code], params={})
    trial = TrialView(result, None, None, None, None, None, None, ())
    return RunView(
        kind="sweep",
        function="train",
        directory="/runs/one",
        spec=SweepSpec(name="one"),
        state=state,
        end=RunEnded(ending=ending, reason=reason) if state is RunState.ENDED else None,
        total=1,
        times=RunTimes(started=1.0, driver_started=5.0, last_record=6.0, ran_s=1.0),
        driver=RunDriver(),
        trials=(trial,),
    )


@pytest.mark.parametrize(("code", "application"), [(0, SUCCEEDED), (3, FAILED), (4, FAILED)])
def test_the_run_that_the_job_has_ended_has_the_code(code: int, application: Application) -> None:
    assert verdict_of(application, "", run(code), None) == Verdict(code, by_run=True)


@pytest.mark.parametrize(("code", "application"), [(0, FAILED), (0, KILLED), (4, SUCCEEDED)])
def test_the_run_prevails_over_yarn_and_the_difference_is_reported(code: int, application: Application) -> None:
    verdict = verdict_of(application, "", run(code), None)
    status = SweepStatus.LOST if code else SweepStatus.SUCCEEDED
    message = f"YARN reports {application.final_status} for application_1_0001, and the run reports {status}"
    assert verdict == Verdict(code, message, by_run=True)


def test_a_run_that_was_stopped_is_6() -> None:
    stopped = run(0, ending="stopped")
    assert verdict_of(FAILED, "", stopped, None).code == 6


@pytest.mark.parametrize(("ending", "code"), [(Ending.NO_AGENTS, 5), (Ending.UNAVAILABLE, 5), (Ending.UNLOADABLE, 2)])
def test_what_ended_a_run_early_has_its_code_and_reason(ending: Ending, code: int) -> None:
    ended = run(4, ending=str(ending), reason="too few agents")
    message = "too few agents; the same call resumes the run" if code == 5 else "too few agents"
    assert verdict_of(FAILED, "", ended, None) == Verdict(code, message, by_run=True)


def test_the_code_of_a_driver_that_has_not_run_anything_is_in_yarns_diagnostics() -> None:
    for before in (None, run()):
        verdict = verdict_of(FAILED, "", before, before.times.driver_started if before is not None else None)
        assert verdict.code == 2
        assert verdict.message.startswith("the driver of application_1_0001 exited with 2")


def test_a_run_that_was_complete_before_has_its_code() -> None:
    assert verdict_of(SUCCEEDED, "", run(), 5.0) == Verdict(0, by_run=True)
    assert verdict_of(SUCCEEDED, "", run(3), 5.0) == Verdict(3, by_run=True)


def test_an_older_end_of_the_run_does_not_count_when_yarn_has_killed_its_new_driver() -> None:
    verdict = verdict_of(KILLED, "", run(), 5.0)
    assert verdict.code == 5
    assert verdict.message == (
        "application_1_0001 is KILLED: Application was killed by user ann; its driver has not ended the run; the same "
        "call resumes it"
    )


def test_a_driver_that_ends_without_a_record_is_the_clusters_fault() -> None:
    gone = run(0, state=RunState.GONE)
    assert (
        verdict_of(Application(id="application_1_0001", state="FAILED", final_status="FAILED"), "", gone, None).code
        == 5
    )
    assert verdict_of(SUCCEEDED, "", None, None).code == 5
    running = Application(id="application_1_0001", state="RUNNING", final_status="UNDEFINED")
    assert verdict_of(running, "", None, None).message.startswith("application_1_0001 is RUNNING")


def test_what_was_not_submitted_is_reported_with_the_error_of_spark_submit() -> None:
    output = "WARN x\nException in thread main java.lang.IllegalArgumentException: Required executor memory\n at a.b\n"
    assert verdict_of(None, output, None, None) == Verdict(
        2,
        "spark-submit has submitted nothing: Exception in thread main java.lang.IllegalArgumentException: Required "
        "executor memory",
    )
    assert verdict_of(None, "java.net.ConnectException: Connection refused", None, None).code == 5
    assert verdict_of(None, "", run(), 5.0).message == "spark-submit has submitted nothing: it printed nothing"
    assert len(verdict_of(None, "Error: " + "x" * 1000, None, None).message) < 600


def test_what_was_submitted_is_not_reported_as_missing_when_no_resourcemanager_answers() -> None:
    output = "26/11/22 00:05:07 INFO YarnClientImpl: Submitted application application_1_0001\n"
    verdict = verdict_of(None, output, None, None)
    assert verdict.code == 5
    assert verdict.message.startswith("application_1_0001 was submitted, and no ResourceManager reports")


def test_the_run_has_the_code_where_the_resourcemanager_does_not_answer() -> None:
    assert verdict_of(None, "", run(3), None) == Verdict(3, by_run=True)


def test_an_application_is_read_from_the_answer_of_the_resourcemanager() -> None:
    answer = {"id": "application_1_0001", "state": "RUNNING", "amHostHttpAddress": "node-7:8042", "diagnostics": " x "}
    application = application_of(answer)
    assert application.line == "application_1_0001 is RUNNING on node-7:8042"
    assert not application.over
    assert (application.final_status, application.diagnostics, application.logs_url) == ("UNDEFINED", "x", "")
    over = application_of({**answer, "state": "FINISHED", "finalStatus": "SUCCEEDED"})
    assert over.line == "application_1_0001 is SUCCEEDED"
    assert over.over


def test_a_second_driver_is_shown() -> None:
    logs = "http://node-7:8042/node/containerlogs/container_e03_1_0001_02_000001/ann"
    again = Application(
        id="application_1_0001", state="RUNNING", final_status="UNDEFINED", master="node-7:8042", logs_url=logs
    )
    assert again.line == "application_1_0001 is RUNNING on node-7:8042, attempt 2"
    waits = structs.replace(again, state="ACCEPTED", diagnostics="it waits", master="")
    assert waits.line == "application_1_0001 is ACCEPTED, attempt 2: it waits"
    assert structs.replace(again, logs_url="").attempt == 1


def test_an_application_that_waits_shows_why_without_changing_details() -> None:
    why = "[Sat Nov 21 20:00:00 +0000 2026] Application is Activated, waiting for resources to be assigned for AM. "
    waiting = Application(
        id="application_1_0001",
        state="ACCEPTED",
        final_status="UNDEFINED",
        diagnostics=f"{why} Details : AM Partition = gpu ; x",
    )
    expected = "application_1_0001 is ACCEPTED: Application is Activated, waiting for resources to be assigned for AM."
    assert waiting.line == expected
    assert (
        Application(id="application_1_0001", state="ACCEPTED", final_status="UNDEFINED").line
        == "application_1_0001 is ACCEPTED"
    )
