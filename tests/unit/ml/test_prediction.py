"""What names a model for a prediction, and checks of a call that need no Spark."""

import logging
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.ml import prediction
from sparktrain.ml.inference.model_folder import ModelFolder
from tests.unit.driver.stored import ScriptedRun, typical


def url(model: Any) -> str:
    return prediction._url_of(model)


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


def export(run: ScriptedRun) -> str:
    path = Path(run.directory, "trials", "0000", "generation-1", "rank-0", "model.keras")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"model")
    return str(path)


def test_a_model_is_named_by_its_file(tmp_path: Path) -> None:
    assert url("hdfs:///models/churn.keras") == "hdfs:///models/churn.keras"
    assert url(tmp_path / "churn.keras") == str(tmp_path / "churn.keras")
    old = tmp_path / "old.h5"
    old.write_text("")
    assert url(str(old)) == str(old), "its own check refuses it"


def test_a_model_is_named_by_a_result_a_trial_and_a_directory(run: ScriptedRun) -> None:
    path = export(run)
    found = st.load(run.directory)
    assert url(run.directory) == url(found) == url(found.trials[0]) == path


def test_a_run_without_a_model_is_refused(run: ScriptedRun) -> None:
    with pytest.raises(st.MissingFileError, match=r"trial 0 has no model: call ctx.export\(model\) at the end"):
        url(run.directory)
    with pytest.raises(st.RunDirectoryError, match="there is no such directory"):
        url(run.directory + "-gone")
    with pytest.raises(st.SpecError, match=r"model is 5 \(int\); pass the result of a run, its directory, or a .keras"):
        url(5)


class Session:
    """A session that has one setting."""

    def __init__(self, reuse: Any) -> None:
        self.conf = self
        self._reuse = reuse

    def get(self, key: str, default: str) -> str:
        assert key == "spark.python.worker.reuse"
        if isinstance(self._reuse, Exception):
            raise self._reuse
        return self._reuse or default


@pytest.mark.parametrize(("reuse", "lines"), [("false", 1), ("true", 0), (None, 0)])
def test_workers_that_end_with_their_task_are_worth_a_warning(
    reuse: str | None, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparktrain"):
        prediction._check_reuse(Session(reuse))  # type: ignore[arg-type]
    assert [each.message.partition(":")[0] for each in caplog.records] == ["spark.python.worker.reuse is false"] * lines


def test_a_session_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(st.SessionError, match=r"cannot be used \(no server\)"):
        prediction._check_reuse(Session(ConnectionError("no server")))  # type: ignore[arg-type]


def test_errors_of_tasks_are_found_in_those_of_spark() -> None:
    inner = "sparktrain.errors.DataError: df: column 'a' has 1 null"
    found = prediction._explained(RuntimeError(f"Job aborted\n  File worker.py\n{inner}\n\tat org.apache"))
    assert (type(found), str(found)) == (st.DataError, "df: column 'a' has 1 null")
    assert type(prediction._explained(RuntimeError("sparktrain.errors.StoreError: gone"))) is st.InfraError
    assert str(prediction._explained(RuntimeError("Job aborted\nbecause"))) == "the job failed: Job aborted"


def test_a_driver_keeps_the_files_of_its_last_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "_held", {})
    for digest in "abcade":
        prediction._keep_held(digest, ModelFolder.hold(digest * 64, tmp_path))
    ModelFolder.hold("f" * 64, tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [letter * 64 for letter in "acdef"]


def test_sql_names_are_names() -> None:
    with pytest.raises(st.SpecError, match=r"name \('my-churn'\) must be a name in SQL"):
        st.register_predict(None, "my-churn", "m.keras")  # type: ignore[arg-type]
