"""The messages at the end of a run."""

from sparktrain.base.ids import TrialId
from sparktrain.driver.finish import interrupted
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.next_commands import NextCommands
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus as S


def test_ctrl_c_counts_what_succeeded_and_says_how_to_go_on() -> None:
    ends = [S.SUCCEEDED, S.SUCCEEDED, S.FAILED, S.STOPPED]
    trials = tuple(TrialResult(id=TrialId(number), params={}, status=end) for number, end in enumerate(ends))
    made = SweepResult(name="cut", status=SweepStatus.STOPPED, directory="/my runs/cut", trials=trials)
    assert interrupted(made, NextCommands(local=True)) == (
        "run cut was interrupted; /my runs/cut has its results so far: 2 of 4 trials succeeded, 1 failed; to continue: "
        "sparktrain resume '/my runs/cut' --local, or the same call with name='cut'"
    )
