"""The end of a run of one gang: a result, or an error with the root cause."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.errors import InfraError, RunFailedError, RunLostError, RunStoppedError, UserError
from sparktrain.results.run_result import RunEnd, RunResult
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.outcome import Failure, FailureKind, Restart
from sparktrain.state.trial import TrialStatus

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: units'
RAISED = Failure(FailureKind.EXCEPTION, "ValueError: units", TRACEBACK, ("epoch 1",), 1, "gpu-2")
KILLED = Failure(FailureKind.LOST, "agent on gpu-2 was lost", "", tuple(f"line {n}" for n in range(30)), 1, "gpu-2")
RESTARTS = (
    Restart(1, "gpu-2", FailureKind.SIGNAL, "killed by SIGKILL", 1.23, resumed_from_step=80, steps_lost=40),
    Restart(0, None, FailureKind.LOST, "agent was lost", 12.6),
    Restart(3, "gpu-4", FailureKind.LOST, "agent was lost", 2.0, resumed_from_step=0),
)
MEMBERS = (
    MemberResult(rank=0, role=Role.CHIEF, host="gpu-1", log="/runs/big/rank-0/log.txt"),
    MemberResult(rank=1, role=Role.WORKER, host="gpu-2", log="/runs/big/rank-1/log.txt"),
)


def end(status: TrialStatus, error: Failure | None = None, **changes: Any) -> RunEnd:
    trial = TrialResult(
        id=TrialId(0), params={"lr": 0.1}, status=status, metrics={} if error else {"accuracy": 0.9143, "loss": 0.2},
        error=error, generations=2, members=MEMBERS, restarts=RESTARTS,
    )  # fmt: skip
    sweep = SweepResult(
        name="big",
        status=SweepStatus.SUCCEEDED,
        seconds=192.0,
        directory="/runs/big",
        trials=(replace(trial, **changes),),
    )
    return RunEnd(sweep, "/runs/big/model.keras" if error is None else None)


def test_a_run_whose_last_state_is_in_no_checkpoint_warns() -> None:
    result = end(TrialStatus.SUCCEEDED, unsaved="step 90 was not checkpointed: the disk is full").result()
    assert "warning: step 90 was not checkpointed: the disk is full" in str(result).splitlines()


def test_a_run_shows_the_notices_of_its_training() -> None:
    result = end(TrialStatus.SUCCEEDED, notices=("all members had the same batch",)).result()
    assert "warning: all members had the same batch" in str(result).splitlines()


def alone(
    name: str, directory: str | None, members: tuple[MemberResult, ...], metrics: dict[str, float] | None = None
) -> RunResult:
    status = TrialStatus.SUCCEEDED
    trial = TrialResult(id=TrialId(0), params={}, status=status, metrics=metrics or {}, members=members)
    ended = SweepStatus.SUCCEEDED
    return RunResult(SweepResult(name=name, status=ended, seconds=2.0, directory=directory, trials=(trial,)))


def error_of(ended: RunEnd) -> RunFailedError:
    with pytest.raises(RunFailedError) as caught:
        ended.result()
    return caught.value


def test_a_run_that_succeeded() -> None:
    result = end(TrialStatus.SUCCEEDED).result()
    assert (result.name, result.metrics, result.seconds) == ("big", {"accuracy": 0.9143, "loss": 0.2}, 192.0)
    assert (result.directory, result.model_path) == ("/runs/big", "/runs/big/model.keras")
    assert (result.members, result.restarts) == (MEMBERS, RESTARTS)
    assert result.log == ("/runs/big/rank-0/log.txt", "/runs/big/rank-1/log.txt")
    assert str(result) == repr(result) == "\n".join(end(TrialStatus.SUCCEEDED).lines())
    assert str(result).splitlines() == [
        "big: succeeded in 3:12 on 2 members, 3 restarts.",
        "metrics: accuracy 0.9143, loss 0.2000",
        "restart 1: rank 1 on gpu-2: killed by SIGKILL; 1.2 s, 40 steps repeated",
        "restart 2: rank 0: agent was lost; 13 s, without a checkpoint",
        "restart 3: rank 3 on gpu-4: agent was lost; 2.0 s",
        "model: /runs/big/model.keras",
        "results and logs: /runs/big",
        "as a page: sparktrain report /runs/big",
    ]


def test_a_run_that_left_nothing_behind() -> None:
    result = alone("big", None, MEMBERS[:1])
    assert str(result) == "big: succeeded in 2.0 s on 1 member."


def test_a_notebook_gets_a_table_of_members_and_everything_is_escaped() -> None:
    hostile = "<script>\x1b[2J"
    member = MemberResult(rank=0, role=Role.CHIEF, host=hostile, log=hostile)
    result = alone(hostile, hostile, (member,), {hostile: 1.0})
    html = result._repr_html_()
    assert html.count("<tr>") == 2
    assert "<script>" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;\\x1b[2J" in html


def test_the_functions_own_failure_names_its_member_and_cause() -> None:
    error = error_of(end(TrialStatus.FAILED, RAISED))
    assert type(error) is RunFailedError
    assert not isinstance(error, InfraError | UserError)
    assert str(error).splitlines() == [
        "run big failed: rank 1 on gpu-2: ValueError: units",
        *TRACEBACK.splitlines(),
        "restart 1: rank 1 on gpu-2: killed by SIGKILL; 1.2 s, 40 steps repeated",
        "restart 2: rank 0: agent was lost; 13 s, without a checkpoint",
        "restart 3: rank 3 on gpu-4: agent was lost; 2.0 s",
        "log: /runs/big/rank-1/log.txt",
        "run directory: /runs/big",
    ]
    assert (error.rank, error.host, error.traceback, error.log_tail) == (1, "gpu-2", TRACEBACK, ("epoch 1",))
    assert (error.log, error.directory) == ("/runs/big/rank-1/log.txt", "/runs/big")
    assert len(error.restarts) == 3
    assert end(TrialStatus.FAILED, RAISED).lines() == str(error).splitlines()


def test_a_run_that_was_lost_is_the_clusters_failure() -> None:
    error = error_of(end(TrialStatus.LOST, KILLED))
    assert type(error) is RunLostError
    assert isinstance(error, InfraError)
    lines = str(error).splitlines()
    assert lines[0] == "run big was lost, after 3 restarts: rank 1 on gpu-2: agent on gpu-2 was lost"
    assert "    line 29" in lines
    assert "    line 9" not in lines
    assert "raise max_retries, or look for what these losses have in common" in lines


def test_a_run_that_was_stopped() -> None:
    stopped = Failure(FailureKind.STOPPED, "stopped on request: timeout (90 s) has passed")
    error = error_of(end(TrialStatus.STOPPED, stopped, restarts=()))
    assert type(error) is RunStoppedError
    assert str(error).splitlines()[0] == "run big was stopped: stopped on request: timeout (90 s) has passed"
    assert (error.rank, error.log, error.restarts) == (None, "/runs/big/rank-0/log.txt", ())


def test_a_run_that_was_stopped_before_it_started() -> None:
    sweep = SweepResult(name="big", status=SweepStatus.STOPPED, reason="timeout (1 s) has passed")
    error = error_of(RunEnd(sweep, None))
    assert type(error) is RunStoppedError
    assert str(error) == "run big was stopped before it started: timeout (1 s) has passed"


def test_an_error_keeps_what_it_knows_on_its_way_through_a_process_pool() -> None:
    error = error_of(end(TrialStatus.LOST, KILLED))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.rank, again.restarts) == (RunLostError, str(error), 1, error.restarts)
