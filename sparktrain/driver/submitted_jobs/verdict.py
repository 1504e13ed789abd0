"""The exit code of a submitted job, by the end of its run and its application. Pure."""

import re

from msgspec import Struct

from sparktrain.cluster.yarn_application import brief
from sparktrain.driver.submitted_jobs.reports import SubmittedApplication
from sparktrain.runs.sweep_outcome import CODE_OF_STATUS
from sparktrain.runs.view import RunState, RunView
from sparktrain.state.ending import Ending

CALL_IS_WRONG = 2
CLUSTER_FAILED = 5
"""Exit codes of docs/command-line.md."""

_OUTAGE = re.compile(
    r"ConnectException|Connection refused|NoRouteToHost|SocketTimeout|SafeMode|StandbyException|UnknownHostException"
)
_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")


class Verdict(Struct, frozen=True):
    """How a job ended."""

    code: int
    message: str = ""
    """Why the code is not 0, or how the cluster's report differs; empty where there is nothing to report."""
    by_run: bool = False
    """Whether the run determined the code; its result has the details."""


def verdict_of(
    application: SubmittedApplication | None, output: str, run: RunView | None, started_before: float | None
) -> Verdict:
    """The verdict on a job with its driver in a container, after `spark-submit` has ended and printed `output`.

    `run` is the run in its directory now, and `started_before` the start of its newest driver before this job. What the
    job's own driver wrote there counts first: YARN reports FAILED for an application that finished while the
    ResourceManager restarted, and SUCCEEDED for one that lost trials. With Kubernetes spark-submit always ends with 0.
    """
    if run is not None and run.state is RunState.ENDED and run.times.driver_started != started_before:
        return _of_run(run, application)
    if application is None:
        return refusal_of(output) or Verdict(
            CLUSTER_FAILED,
            f"{_submitted(output)} was submitted, and no ResourceManager reports its end; its run directory has it: "
            "sparktrain status DIR",
        )
    if (code := application.driver_exit) is not None:
        return Verdict(code, f"the driver of {application.id} exited with {code} before it ended a run")
    if application.succeeded and run is not None and run.complete and run.status is not None:
        return Verdict(CODE_OF_STATUS[run.status], by_run=True)  # nothing was left to do
    why = f": {brief(application.diagnostics)}" if application.diagnostics else ""
    resume = "; the same call resumes it" if run is not None else ""
    problem = f"{application.id} is {application.status}{why}; its driver has not ended the run{resume}"
    return Verdict(CLUSTER_FAILED, problem)


def _of_run(run: RunView, application: SubmittedApplication | None) -> Verdict:
    assert run.status is not None
    assert run.end is not None
    ending = Ending(run.end.ending)
    if ending is Ending.TERMINATED:
        return Verdict(CLUSTER_FAILED, "SIGTERM has ended the driver; the same call resumes the run", by_run=True)
    if ending.infrastructure:
        return Verdict(CLUSTER_FAILED, f"{run.end.reason}; the same call resumes the run", by_run=True)
    if ending is Ending.UNLOADABLE:
        return Verdict(CALL_IS_WRONG, run.end.reason, by_run=True)
    code = CODE_OF_STATUS[run.status]
    if application is None or not application.over or application.succeeded == (code == 0):
        return Verdict(code, by_run=True)
    message = (
        f"{application.manager} reports {application.status} for {application.id}, and the run reports {run.status}"
    )
    return Verdict(code, message, by_run=True)


def _submitted(output: str) -> str:
    """The application that `spark-submit` has submitted, by what it printed; empty where it has submitted none."""
    match = _SUBMITTED.search(output)
    return match[1] if match is not None else ""


def refusal_of(output: str) -> Verdict | None:
    """The verdict on a job that no cluster has: an outage is the cluster's fault, any other refusal the call's.

    None where `spark-submit` has submitted it.
    """
    if _submitted(output):
        return None
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"Exception|Error\b|error:", line) and not line.startswith("at ")]
    cause = next(iter(causes or lines[-1:]), "it printed nothing")
    code = CLUSTER_FAILED if _OUTAGE.search(output) else CALL_IS_WRONG
    return Verdict(code, f"spark-submit has submitted nothing: {brief(cause)}")
