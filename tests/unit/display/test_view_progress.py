"""The progress of a run as its directory shows it."""

from pathlib import Path

from sparktrain.display.progress import MemberState
from sparktrain.driver.clustered.following import progress_of_view
from tests.unit.driver.stored import BEGUN, ScriptedRun, looked_at, typical


def test_trials_and_the_best_one_are_as_in_the_directory(tmp_path: Path) -> None:
    view = looked_at(typical(tmp_path / "runs"))
    progress = progress_of_view(view, BEGUN + 100.0, 2, "waiting")
    assert (progress.total, progress.done, progress.running, progress.failed) == (4, 2, 1, 1)
    assert (progress.best, progress.metric, progress.note) == ((0, 0.9), "accuracy", "waiting")
    [running] = progress.running_trials
    assert (running.id, running.host, running.members) == (2, view.results[2].host, ())
    assert (progress.agents_alive, progress.agents_wanted) == (0, 2), "its driver does not answer"


def test_a_gang_that_has_formed_is_shown_with_its_members(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", workers=2).begin()
    run.add({"lr": 0.1})
    run.form(0, hosts=("host-1", "host-2"))
    [running] = progress_of_view(looked_at(run), BEGUN + 10.0, 2).running_trials
    assert [(member.rank, member.host, member.state) for member in running.members] == [
        (0, "host-1", MemberState.TRAINING),
        (1, "host-2", MemberState.TRAINING),
    ]
