"""Histories, logs and models of a run directory."""

import gzip
import pickle
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest

import sparktrain as st
from sparktrain.base.ids import TrialId
from sparktrain.rundir.layout import BlockName
from sparktrain.rundir.report_parts import lines_of, step_row, table_of_lines
from sparktrain.rundir.report_table import current, rows_of
from sparktrain.runs.stored_reports import as_frame
from sparktrain.runs.sweep_outcome import GangOutcome, SweepOutcome, SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus
from tests.unit.driver.stored import BEGUN, ScriptedRun

INDEX = ["trial", "generation", "rank", "step", "time"]


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> ScriptedRun:
    """Two trials, both done."""
    urls = {"memory": f"memory://{uuid4().hex}/runs", "local": str(tmp_path / "runs")}
    made = ScriptedRun(tmp_path / "runs", url=urls[request.param]).begin()
    made.add({"lr": 0.1}, {"lr": 0.2})
    for trial in (0, 1):
        made.form(trial)
        made.succeed(trial, accuracy=0.5)
    return made


def opened(run: ScriptedRun) -> st.SweepResult:
    result = st.load(run.directory)
    assert isinstance(result, st.SweepResult)
    return result


# ---- history


def test_a_row_for_each_report_and_a_column_for_each_metric(run: ScriptedRun) -> None:
    run.note(1, 10, loss=0.5)
    run.note(0, 10, 20, loss=0.25, accuracy=float("inf"))
    frame = opened(run).history()
    wanted = pd.DataFrame(
        {
            "trial": [0, 0, 1],
            "generation": 1,
            "rank": 0,
            "step": [10, 20, 10],
            "time": pd.to_datetime([BEGUN + 10, BEGUN + 20, BEGUN + 10], unit="s", utc=True),
            "loss": [0.25, 0.25, 0.5],
            "accuracy": [np.inf, np.inf, np.nan],
        }
    )
    pd.testing.assert_frame_equal(frame, wanted)


def test_reports_have_what_a_newer_generation_has_replaced(run: ScriptedRun) -> None:
    run.note(0, 10, 20, 30, loss=0.25, accuracy=float("inf"))
    run.note(0, 20, generation=2, loss=0.5)
    run.record([step_row(1, 1, 0, 5, BEGUN, {})])
    result = opened(run)
    frame = result.reports()
    assert list(frame.columns) == [*INDEX, "name", "value", "superseded"]
    assert [tuple(row) for row in frame[["generation", "step", "name", "value", "superseded"]].to_numpy()] == [
        (1, 10, "loss", 0.25, False), (1, 10, "accuracy", np.inf, False), (1, 20, "loss", 0.25, True),
        (1, 20, "accuracy", np.inf, True), (2, 20, "loss", 0.5, False), (1, 30, "loss", 0.25, True),
        (1, 30, "accuracy", np.inf, True),
    ]  # fmt: skip
    assert frame["time"].dt.tz is not None
    assert result.history()[["trial", "step"]].to_numpy().tolist() == [[0, 10], [0, 20], [1, 5]]
    with pytest.raises(st.MissingFileError, match="the result has no directory"):
        st.SweepResult(name="x", status=result.status, trials=()).reports()


def test_a_run_that_an_older_version_started_has_reports_of_both_formats(run: ScriptedRun) -> None:
    old = run.layout.reports.block(BlockName("0123abcd", 1, 2, old=True))
    rows = [step_row(0, 1, 0, step, BEGUN + step, {"loss": float("nan")}) for step in (1, 2)]
    run.store.put_if_absent(old, gzip.compress(lines_of(rows)))
    run.note(0, 2, 3, generation=2, loss=0.5)
    assert opened(run).history()["step"].tolist() == [1, 2, 3]
    assert opened(run).reports()["superseded"].tolist() == [False, True, False, False]


def test_the_history_of_one_trial_has_its_own_metrics_alone(run: ScriptedRun) -> None:
    run.note(0, 10, loss=0.5)
    run.note(1, 10, accuracy=0.5)
    result = opened(run)
    assert list(result.trials[1].history.columns) == [*INDEX, "accuracy"]
    assert result.trials[1].history["trial"].tolist() == [1]


def test_a_run_that_reported_nothing_has_an_empty_history(run: ScriptedRun) -> None:
    frame = opened(run).history()
    assert list(frame.columns) == INDEX
    assert len(frame) == 0
    assert frame["step"].dtype == np.int64


def test_a_result_sees_what_is_reported_later_and_reads_nothing_twice(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.note(0, 1)
    result = opened(run)
    assert len(result.history()) == 1
    run.note(0, 2)
    assert len(result.history()) == 2
    monkeypatch.setattr(type(run.store), "read", None)
    assert len(result.trials[0].history) == 2
    assert len(result.history()) == 2


def test_a_metric_may_have_the_name_of_a_column() -> None:
    frame = as_frame(table_of_lines(lines_of([step_row(0, 1, 0, 5, 1.0, {"rank": 3.0, "time": 2.5})])))
    assert frame[["metrics.rank", "metrics.time", "rank"]].iloc[0].tolist() == [3.0, 2.5, 0]


def test_corrupt_reports_end_a_history_and_not_the_result(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs").begin()
    run.add({"lr": 0.1})
    run.note(0, 1)
    [block] = (tmp_path / "runs" / "mnist" / "reports").iterdir()
    block.write_bytes(block.read_bytes()[:-9])
    result = opened(run)
    assert len(result.trials) == 1
    with pytest.raises(st.RunDirectoryError, match=f"{block.name} is corrupt"):
        result.history()


def steps_of(*rows: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Generation, rank and step of the rows that count, of one trial."""
    made = [step_row(0, generation, rank, step, 0.0, {}) for generation, rank, step in rows]
    return [(row.generation, row.rank, row.step) for row in rows_of(current(table_of_lines(lines_of(made))))]


def test_a_generation_that_resumes_wins_from_its_first_step_on() -> None:
    first = [(1, 0, step) for step in (10, 20, 30, 40)]
    assert steps_of(*first, (2, 0, 30), (2, 0, 40), (2, 0, 50)) == [
        (1, 0, 10), (1, 0, 20), (2, 0, 30), (2, 0, 40), (2, 0, 50),
    ]  # fmt: skip


def test_a_generation_that_restarts_wins_from_its_first_step() -> None:
    assert steps_of((1, 0, 1), (1, 0, 2), (1, 0, 3), (2, 0, 1)) == [(2, 0, 1)]


def test_a_generation_that_reported_nothing_leaves_what_was_there() -> None:
    assert steps_of((1, 0, 1), (3, 0, 2), (3, 0, 3)) == [(1, 0, 1), (3, 0, 2), (3, 0, 3)]


def test_steps_that_a_later_generation_does_not_repeat_no_longer_count() -> None:
    assert steps_of((1, 0, 10), (1, 0, 25), (2, 0, 20), (2, 0, 30)) == [(1, 0, 10), (2, 0, 20), (2, 0, 30)]


def test_a_restart_of_a_gang_is_one_of_all_its_members() -> None:
    rows = [(1, 0, 10), (1, 1, 10), (1, 0, 20), (1, 1, 20), (2, 0, 20), (3, 0, 30)]
    assert steps_of(*rows) == [(1, 0, 10), (1, 1, 10), (2, 0, 20), (3, 0, 30)]


def test_the_newest_report_of_a_step_counts_after_a_member_has_restarted_alone() -> None:
    made = [step_row(0, 1, 1, 10, 1.0, {"a": 1.0, "b": 1.0}), step_row(0, 1, 1, 10, 2.0, {"b": 2.0})]
    assert [row.metrics for row in rows_of(current(table_of_lines(lines_of(made))))] == [{"b": 2.0}]


def test_a_row_that_was_written_twice_counts_once() -> None:
    assert steps_of((1, 0, 10), (1, 0, 10)) == [(1, 0, 10)]


# ---- logs


def test_a_log_as_text_and_its_last_lines(run: ScriptedRun) -> None:
    run.log(0, "epoch 1\nepoch 2\nüber\n")
    run.log(1, "worker\n", rank=1)
    first, second = opened(run).trials
    assert first.read_log() == "epoch 1\nepoch 2\nüber\n"
    assert first.read_log(tail=2) == "epoch 2\nüber\n"
    assert first.read_log(tail=9) == first.read_log()
    assert second.read_log(rank=1, generation=1) == "worker\n"


def test_the_log_of_a_member_that_restarted_alone_has_both_its_processes(run: ScriptedRun) -> None:
    run.log(0, "chief\n")
    run.log(0, "first\n", rank=1)
    folder = run.layout.path + "/trials/0000/generation-1"
    run.store.put_if_absent(f"{folder}/rank-1-restart-1/log.txt", b"second\nlast\n")
    run.store.put_if_absent(f"{folder}/rank-11/log.txt", b"other\n")
    trial = opened(run).trials[0]
    assert trial.read_log(rank=1, generation=1) == "first\nsecond\nlast\n"
    assert trial.read_log(rank=1, generation=1, tail=1) == "last\n"


def test_a_log_of_any_bytes_is_text(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs").begin()
    run.add({"lr": 0.1})
    run.form(0)
    path = run.layout.path + "/trials/0000/generation-1/rank-0/log.txt"
    run.store.put_if_absent(path, b"\xff\x00 ok\n")
    assert opened(run).trials[0].read_log() == "\\xff\x00 ok\n"


def test_a_log_that_is_not_there_names_those_that_are(run: ScriptedRun) -> None:
    trial = opened(run).trials[0]
    with pytest.raises(st.MissingFileError, match="has no log of generation 1, rank 0: a log is stored once"):
        trial.read_log()
    run.log(0, "x", rank=0)
    run.log(0, "x", rank=2)
    with pytest.raises(FileNotFoundError, match=r"generation 7, rank 1; pass .* that it has: 1/0, 1/2"):
        trial.read_log(rank=1, generation=7)


def test_a_trial_of_no_run_is_refused(run: ScriptedRun) -> None:
    alone = st.TrialResult(id=run_trial(run).id, params={}, status=run_trial(run).status)
    with pytest.raises(st.MissingFileError, match="trial 0 belongs to no run directory"):
        alone.read_log()


def run_trial(run: ScriptedRun) -> st.TrialResult:
    return opened(run).trials[0]


# ---- models


def test_a_model_that_is_not_there(run: ScriptedRun) -> None:
    trial = opened(run).trials[0]
    assert trial.model_path is None
    with pytest.raises(st.MissingFileError, match=r"has no model .*call ctx\.export\(model\)"):
        trial.load_model()


def test_a_trial_that_failed_is_told_why_it_has_no_model(run: ScriptedRun) -> None:
    run.fail(0, "ValueError: no rows")
    trial = opened(run).trials[0]
    words = r"its status is failed \(ValueError: no rows\), and it has exported none; see its log .*log\.txt"
    with pytest.raises(st.MissingFileError, match=words) as raised:
        trial.load_model()
    assert "ctx.export" not in str(raised.value)


def test_where_a_model_is(run: ScriptedRun) -> None:
    path = f"{run.layout.path}/trials/0000/generation-1/rank-0/model.keras"
    run.store.put_if_absent(path, b"")
    assert opened(run).trials[0].model_path == run.store.where(path)
    again = f"{run.layout.path}/trials/0000/generation-1/rank-0-restart-2/model.keras"
    run.store.put_if_absent(again, b"")
    assert opened(run).trials[0].model_path == run.store.where(again), "of the newest process of the chief"


def test_a_result_can_be_pickled(run: ScriptedRun) -> None:
    run.note(0, 1)
    result = opened(run)
    result.history()
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert len(again.trials[0].history) == 1


def test_an_outcome_leaves_the_results_that_it_is_made_of_as_they_are(tmp_path: Path) -> None:
    trial = TrialResult(id=TrialId(0), params={}, status=TrialStatus.SUCCEEDED)
    outcome = SweepOutcome(name="one", status=SweepStatus.SUCCEEDED, directory=str(tmp_path), trials=(trial,))
    run = GangOutcome(replace(outcome, name="two", directory=str(tmp_path / "two")))
    assert trial._files is None
    assert outcome.trials == (trial,)
    assert run.trial == trial
    assert [each._files and each._files.directory for each in (outcome.trials[0], run.trial)] == [
        str(tmp_path),
        str(tmp_path / "two"),
    ]
    SweepOutcome(name="shown", status=SweepStatus.SUCCEEDED, trials=outcome.trials)
    assert outcome.trials[0]._files is outcome._files, "an outcome without a directory takes none away"
