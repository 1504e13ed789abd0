"""A gang's verdict."""

from sparktrain.base.ids import AgentId, Generation, Rank, RunId, TrialId
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.gang_progress import GangAttendance
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.topology import ALONE


def test_a_cause_that_the_coordinator_found_has_the_last_lines_of_the_member() -> None:
    gang = Gang(RunId("run"), TrialId(0), Generation(1), (AgentId("a"),), ALONE.places, GangAttendance(0.0))
    gang.enter(Rank(0), at=1.0)
    gang.fail(Failure(FailureKind.TIMEOUT, "ran too long"), at=2.0)
    stopped = Failure(FailureKind.STOPPED, "stopped", log_tail=("epoch 7",))
    gang.end(Rank(0), Outcome(2.0, failure=stopped), at=2.0)
    assert gang.verdict().failure == Failure(FailureKind.TIMEOUT, "ran too long", log_tail=("epoch 7",))
