"""Which exit code the end of a submitted job is. Pure."""

import re

from msgspec import Struct

from sparktrain.cluster.yarn_application import Application, brief
from sparktrain.runs.sweep_outcome import CODE_OF_STATUS
from sparktrain.runs.view import RunState, RunView
from sparktrain.state.sweep import Ending

CALL_IS_WRONG, CLUSTER_FAILED = 2, 5
"""Exit codes, as docs/command-line.md has them."""

_STATUS = re.compile(r"User application exited with (?:status )?(\d+)")
_OUTAGE = re.compile(
    r"ConnectException|Connection refused|NoRouteToHost|SocketTimeout|SafeMode|StandbyException|UnknownHostException"
)
_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")


class Verdict(Struct, frozen=True):
    """What became of a job."""

    code: int
    told: str = ""
    """Why it is not 0, or what YARN says to the contrary; empty where nothing is to be said."""
    by_run: bool = False
    """The run says so, which has more to tell."""


def verdict_of(
    application: Application | None, output: str, run: RunView | None, began_before: float | None
) -> Verdict:
    """Of a job whose driver ran in a container, once `spark-submit` has ended and has printed `output`.

    `run` is what its directory says now, and `began_before` when its newest driver had begun before this job. What the
    job's own driver has written there counts first: YARN takes an application for failed that was done while the
    ResourceManager came back, and for succeeded what lost trials.
    """
    if run is not None and run.state is RunState.ENDED and run.began != began_before:
        return _of_run(run, application)
    if application is None:
        return _not_submitted(output)
    if (status := _STATUS.search(application.diagnostics)) is not None and application.final_status == "FAILED":
        return Verdict(
            int(status[1]), f"the driver of {application.id} ended with {status[1]}, and has not ended a run"
        )
    if application.final_status == "SUCCEEDED" and run is not None and run.complete and run.status is not None:
        return Verdict(CODE_OF_STATUS[run.status], by_run=True)  # nothing was left to do
    word = application.final_status if application.over else application.state
    said = f": {brief(application.diagnostics)}" if application.diagnostics else ""
    again = "; the same call goes on with it" if run is not None else ""
    return Verdict(CLUSTER_FAILED, f"{application.id} is {word}{said}; its driver has not ended the run{again}")


def _of_run(run: RunView, application: Application | None) -> Verdict:
    assert run.status is not None
    ending = Ending(run.ending) if run.ending is not None else Ending.COMPLETE
    if ending.infrastructure:
        return Verdict(CLUSTER_FAILED, f"{run.reason}; the same call goes on with it", by_run=True)
    if ending is Ending.UNLOADABLE:
        return Verdict(CALL_IS_WRONG, run.reason, by_run=True)
    code = CODE_OF_STATUS[run.status]
    if application is None or not application.over or (application.final_status == "SUCCEEDED") == (code == 0):
        return Verdict(code, by_run=True)
    told = f"YARN says {application.final_status} of {application.id}, and the run says {run.status}"
    return Verdict(code, told, by_run=True)


def _not_submitted(output: str) -> Verdict:
    """An outage passes; for the rest of what spark-submit refuses, the line or the configuration must change."""
    if found := _SUBMITTED.search(output):
        return Verdict(
            CLUSTER_FAILED,
            f"{found[1]} was submitted, and no ResourceManager tells what became of it; its run directory does: "
            "sparktrain status DIR",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"Exception|Error\b|error:", line) and not line.startswith("at ")]
    said = next(iter(causes or lines[-1:]), "it said nothing")
    code = CLUSTER_FAILED if _OUTAGE.search(output) else CALL_IS_WRONG
    return Verdict(code, f"spark-submit has submitted nothing: {brief(said)}")
