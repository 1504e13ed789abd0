"""What users ask a run to drain, as events of its state machine."""

from sparktrain.driver.run_request import RunRequest
from sparktrain.ids import RunId
from sparktrain.runs.additions.drain_requests import DrainRequest
from sparktrain.state.events import DrainAsked


def drain_event(request: DrainRequest, work: RunRequest, at: float) -> DrainAsked:
    """The event for a request that was read at `at`."""
    stale = request.agent is not None and request.driver_started not in (None, work.driver_started.at)
    problem = (
        f"agent {request.agent} was one of an earlier driver, and the driver now has others: name the host"
        if stale
        else ""
    )
    return DrainAsked(
        at=at, run=RunId(work.spec.name), request=request.id, host=request.host, agent=request.agent, problem=problem
    )
