"""A run with one succeeded and one failed trial, as tests read and draw it."""

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.outcome import Failure, FailureKind, Loss, Restart
from sparktrain.state.trial import TrialStatus

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: units'
FAILURE = Failure(FailureKind.EXCEPTION, "ValueError: units", TRACEBACK, ("epoch 1",), 0, "node-2")


def chief(log: str, host: str | None = None) -> tuple[MemberResult, ...]:
    """The only member of a gang."""
    return (MemberResult(rank=0, role=Role.CHIEF, host=host, log=log),)


MEMBERS = (
    *chief("/runs/mnist/trials/0000/generation-1/rank-0/log.txt", "node-1"),
    MemberResult(rank=1, role=Role.WORKER, host=None, log="/runs/b"),
)
RESTART = Restart(1, "node-3", FailureKind.LOST, "agent on node-3 was lost", 1.25, 80, 40, Loss.PREEMPTED)
GOOD = TrialResult(
    id=TrialId(0), status=TrialStatus.SUCCEEDED, params={"lr": 0.1}, metrics={"accuracy": 0.9}, seconds=3.5,
    extra={"note": "warm"}, generations=2, members=MEMBERS,
    restarts=(RESTART,), unsaved="step 90 was not checkpointed: the disk is full",
    notices=("all members had the same batch",),
)  # fmt: skip
BAD = TrialResult(
    id=TrialId(1), status=TrialStatus.FAILED, params={"lr": 10.0}, error=FAILURE, seconds=1.0,
    generations=1, members=chief("/runs/mnist/trials/0001/generation-1/rank-0/log.txt", "node-2"),
)  # fmt: skip
RESULT = SweepOutcome(
    name="mnist",
    status=SweepStatus.SUCCEEDED,
    metric="accuracy",
    seconds=12.0,
    wall_seconds=12.5,
    directory="/runs/mnist",
    trials=(GOOD, BAD),
)
