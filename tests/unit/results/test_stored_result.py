"""Any run directory as the result of its call, without Spark."""

from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.results.sweep_result import sweep_result
from sparktrain.runs.results_json import from_json, to_json
from sparktrain.state.trial import TrialStatus
from tests.unit.driver.stored import ScriptedRun, spoil, typical


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


def sweep_of(directory: str) -> st.SweepResult:
    result = st.load(directory)
    assert isinstance(result, st.SweepResult)
    return result


def test_a_finished_run_is_what_its_call_returned(run: ScriptedRun) -> None:
    run.succeed(2, accuracy=0.95)
    run.form(3)
    run.fail(3)
    run.end()
    result = sweep_of(run.directory)
    assert result == sweep_result(from_json(to_json(result)))
    assert (result.status, result.directory, len(result.trials)) == ("succeeded", run.directory, 4)
    assert result.best.id == 2
    assert result.best.read_log(generation=1) == "first\n"
    assert result.failures()[["trial", "kind", "host"]].values.tolist() == [
        [1, "exception", "host-3"], [3, "exception", "host-2"],
    ]  # fmt: skip


def test_a_run_whose_driver_is_gone_shows_how_to_resume_it(run: ScriptedRun) -> None:
    result = sweep_of(run.directory)
    assert result.status == "stopped"
    assert "does not answer; to continue: sparktrain resume" in str(result.reason)
    assert [trial.status for trial in result.trials] == ["succeeded", "failed", "running", "queued"]
    assert result.best.id == 0
    assert "mnist: stopped" in str(result)
    assert "<table>" in result._repr_html_()


def test_a_run_with_a_live_driver_is_running(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda who: True)
    result = sweep_of(run.directory)
    assert (result.status, result.reason) == ("running", None)
    assert result.seconds > 80.0


def gang(folder: Path) -> ScriptedRun:
    run = ScriptedRun(folder, "big", total=1, workers=2).begin()
    run.add({"lr": 0.1})
    run.form(0, hosts=("host-2", "host-3"))
    run.note(0, 1, 2)
    run.log(0, "worker\n", rank=1)
    return run


def run_of(directory: str) -> st.RunResult:
    result = st.load(directory)
    assert isinstance(result, st.RunResult)
    return result


def test_a_run_of_one_gang(tmp_path: Path) -> None:
    run = gang(tmp_path / "runs")
    going = run_of(run.directory)
    assert (going.status, going.metrics, going.error) == (TrialStatus.RUNNING, {}, None)
    assert "big: running" in str(going)
    run.succeed(0, accuracy=0.5)
    run.end()
    result = run_of(run.directory)
    assert (result.status, result.metrics) == ("succeeded", {"accuracy": 0.5})
    assert result.history()["step"].tolist() == [1, 2]
    assert result.read_log(rank=1, tail=1) == "worker\n"
    assert len(result.failures()) == 0
    with pytest.raises(st.MissingFileError, match="has no model"):
        result.load_model()


def test_a_run_of_one_gang_that_failed_is_a_result_too(tmp_path: Path) -> None:
    run = gang(tmp_path / "runs")
    run.fail(0)
    run.end()
    result = run_of(run.directory)
    assert result.status == "failed"
    assert str(result.error).startswith("exception: ValueError: units")
    assert "error: ValueError: units" in str(result)
    assert result.failures()["error"].tolist() == ["ValueError: units"]


def test_a_run_of_one_gang_that_never_started(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", "big", total=1).begin()
    result = run_of(run.directory)
    assert len(result.history()) == 0
    with pytest.raises(st.MissingFileError, match="has no trial yet"):
        result.read_log()


def test_what_is_no_run(tmp_path: Path, run: ScriptedRun) -> None:
    with pytest.raises(st.RunDirectoryError, match="is no run directory"):
        st.load(str(tmp_path / "nothing"))
    with pytest.raises(st.RunDirectoryError, match="there is no such directory"):
        st.load(str(tmp_path / "nothing"))
    spoil(next(Path(run.directory, "journal").glob("batch-*-00000003")))
    with pytest.raises(st.JournalCorruptError):
        st.load(run.directory)
