"""Runs in MLflow, read back from a database in a file: no server takes part but one that is dead."""

import math
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.config.tracking_options import MLflow
from sparktrain.driver.tracking import mlflow_tracker
from sparktrain.driver.tracking.callback import TrackedEnd, TrackedReport, TrackedResult, TrackedRun, TrackedTrial
from sparktrain.driver.tracking.mlflow_tracker import MLflowTracker, chunks, key_of, params_of
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.rundir.report_parts import lines_of, step_row
from sparktrain.store.localfs import LocalStore

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # MLflow's own tables


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all tests: its tables take seconds. Each test has an experiment of its own."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'm.db'}"


@pytest.fixture
def dead() -> Iterator[str]:
    """The address of a server that has gone."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://me:word@127.0.0.1:{taken.getsockname()[1]}"


class Bench:
    """A run in a folder, and what a driver sends of it."""

    def __init__(self, database: str, folder: Path) -> None:
        self.client = MlflowClient(database)
        self.database = database
        self.name = folder.name
        self.experiment = self.client.create_experiment(self.name, artifact_location=str(folder / "artifacts"))
        self.store = LocalStore(str(folder))
        self.layout = RunLayout("r")
        self.directory = str(folder / "r")

    def run(self, resumed: bool = False) -> TrackedRun:
        return TrackedRun(
            id="r-1", name="r", directory=self.directory, kind="sweep", function="f", metric="y", mode="max",
            started=100.0, resumed=resumed,
        )  # fmt: skip

    def tracker(self, uri: str = "") -> MLflowTracker:
        options = MLflow(uri=uri or self.database, experiment=self.name, tags={"team": "vision"})
        return MLflowTracker(options, options.address(), last_s=0.0)

    def trial(self, number: int, generation: int = 1, **params: Any) -> TrackedTrial:
        return TrackedTrial(id=f"r-1-{number}", number=number, params=params or {"x": number}, generation=generation)

    def end(self, number: int, status: str = "succeeded", reports: int = 0, error: str = "") -> TrackedEnd:
        return TrackedEnd(
            id=f"r-1-{number}", number=number, params={"x": number}, generation=1, status=status,
            metrics={"y": float(number)} if status == "succeeded" else {}, seconds=1.0, error=error, reports=reports,
        )  # fmt: skip

    def result(self, *trials: TrackedEnd, best: int | None = None, resumed: bool = False) -> TrackedResult:
        return TrackedResult(
            run=self.run(resumed), status="succeeded", reason="", seconds=2.0, best=best, trials=trials
        )

    def stored(self, number: int, steps: int) -> None:
        rows = (step_row(number, 1, 0, step, 200.0 + step, {"loss": 1.0 / (step + 1)}) for step in range(steps))
        MetricLog(self.store, self.layout).append(lines_of(rows))

    def runs(self) -> dict[str, Any]:
        return {each.info.run_name: each for each in self.client.search_runs([self.experiment])}

    def points(self, run: str, key: str) -> list[tuple[int, float]]:
        found = self.client.get_metric_history(self.runs()[run].info.run_id, key)
        return sorted((each.step, each.value) for each in found)


def reports(steps: int, **more: float) -> list[TrackedReport]:
    return [
        TrackedReport(generation=1, step=step, time=200.0 + step, metrics={"loss": 1.0 / (step + 1), **more})
        for step in range(steps)
    ]


@pytest.fixture
def bench(database: str, tmp_path: Path) -> Bench:
    return Bench(database, tmp_path)


def test_a_run_is_a_parent_with_a_child_for_each_trial(bench: Bench) -> None:
    model = bench.layout.member(Member(RunId("r"), TrialId(1), Generation(1))).model
    bench.store.put_if_absent(model, b"weights")
    tracker = bench.tracker()
    tracker.run_started(bench.run())
    ends = [bench.end(1, reports=3), bench.end(2, "failed", error="ValueError: x"), bench.end(3, "pruned")]
    for each in ends:
        tracker.trial_started(bench.trial(each.number))
    tracker.reported(bench.trial(1), reports(3))
    for each in ends:
        tracker.trial_ended(each)
    tracker.run_ended(bench.result(*ends, best=1))
    runs = bench.runs()
    assert {name: run.info.status for name, run in runs.items()} == {
        "r": "FINISHED", "trial 1": "FINISHED", "trial 2": "FAILED", "trial 3": "KILLED",
    }  # fmt: skip
    parent, first = runs["r"], runs["trial 1"]
    assert parent.data.tags["team"] == "vision"
    assert parent.data.tags["sparktrain.best"] == "1"
    assert parent.data.metrics == {"y": 1.0}
    assert first.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert first.data.params == {"x": "1"}
    assert bench.points("trial 1", "loss") == [(0, 1.0), (1, 0.5), (2, 1.0 / 3)]
    assert bench.points("trial 1", "y") == [(2, 1.0)]
    assert runs["trial 2"].data.tags["sparktrain.error"] == "ValueError: x"
    assert runs["trial 3"].data.tags["sparktrain.status"] == "pruned"
    assert [each.path for each in bench.client.list_artifacts(parent.info.run_id, "model")] == [
        f"model/{Path(model).name}"
    ]


def test_mlflow_prints_no_links_into_the_output_of_a_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.environment_variables import MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT as QUIET

    monkeypatch.setenv(QUIET.name, "false")
    bench.tracker().run_started(bench.run())
    assert not QUIET.get(), "the user's own choice stays"
    monkeypatch.delenv(QUIET.name)
    bench.tracker().run_started(bench.run())
    assert QUIET.get()


def test_a_driver_that_takes_over_joins_the_runs_and_repeats_nothing(bench: Bench) -> None:
    bench.stored(1, 5)
    first = bench.tracker()
    first.run_started(bench.run())
    first.trial_started(bench.trial(0))
    first.trial_ended(bench.end(0))
    first.trial_started(bench.trial(1))
    first.reported(bench.trial(1), reports(3))  # and the driver dies
    second = bench.tracker()
    second.run_started(bench.run(resumed=True))
    second.trial_started(bench.trial(1, generation=2))
    assert bench.runs()["trial 1"].info.status == "RUNNING"
    second.reported(bench.trial(1, generation=2), reports(5)[3:])
    second.trial_ended(bench.end(1, reports=2))
    second.run_ended(bench.result(bench.end(0), bench.end(1, reports=2), resumed=True))
    runs = bench.runs()
    assert sorted(runs) == ["r", "trial 0", "trial 1"]
    assert len(bench.client.search_runs([bench.experiment])) == 3
    assert bench.points("trial 1", "loss") == [(step, 1.0 / (step + 1)) for step in range(5)]
    assert runs["trial 1"].data.tags["sparktrain.complete"] == "1"


def test_a_run_of_an_older_version_continues_in_its_directory_alone(bench: Bench) -> None:
    tags = {"sparktrain.run": f"r-{100_000:x}", "sparktrain.directory": bench.directory}  # as it has named them
    older = bench.client.create_run(bench.experiment, tags=tags, run_name="older").info.run_id
    bench.tracker().run_started(replace(bench.run(), id="r-2", directory="/elsewhere/r"))
    bench.tracker().run_started(bench.run())
    assert bench.runs()["older"].data.tags["sparktrain.run"] == "r-1"
    bench.tracker().run_started(replace(bench.run(), directory="/moved/r"))
    assert bench.client.get_run(older).data.tags["sparktrain.directory"] == "/moved/r"
    assert len(bench.client.search_runs([bench.experiment])) == 2


def test_what_was_dropped_on_the_way_is_sent_at_the_end(bench: Bench) -> None:
    bench.stored(0, 4)
    tracker = bench.tracker()
    tracker.run_started(bench.run())
    tracker.trial_started(bench.trial(0))
    tracker.reported(bench.trial(0), reports(4)[2:])
    tracker.trial_ended(bench.end(0, reports=4))
    assert "sparktrain.complete" not in bench.runs()["trial 0"].data.tags
    tracker.run_ended(bench.result(bench.end(0, reports=4)))
    assert [step for step, _ in bench.points("trial 0", "loss")] == [0, 1, 2, 3]
    assert bench.runs()["trial 0"].info.status == "FINISHED"


def test_a_dead_server_costs_one_warning_and_a_later_call_sends_everything(
    bench: Bench, dead: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench.stored(0, 3)
    tracker = bench.tracker(dead)
    tracker.run_started(bench.run())
    tracker.trial_started(bench.trial(0))
    tracker.reported(bench.trial(0), reports(3))
    tracker.trial_ended(bench.end(0, reports=3))
    tracker.run_ended(bench.result(bench.end(0, reports=3), best=0))
    first, last = caplog.records
    assert "has not taken what the run sends (ConnectionRefusedError" in first.message
    assert f"(1 trials); to send them later: sparktrain resume {bench.directory} --tracking mlflow" in last.message
    assert "word" not in caplog.text
    later = bench.tracker()
    later.run_started(bench.run(resumed=True))
    later.run_ended(bench.result(bench.end(0), best=0, resumed=True))
    assert [step for step, _ in bench.points("trial 0", "loss")] == [0, 1, 2]
    assert bench.runs()["r"].info.status == "FINISHED"


def test_limits_of_mlflow_are_kept(bench: Bench) -> None:
    tracker = bench.tracker()
    tracker.run_started(bench.run())
    params = {f"p{number}": "v" * 7000 for number in range(101)}
    tracker.trial_started(bench.trial(0, **params))
    tracker.reported(bench.trial(0), reports(1001, **{"f1@0.5 <val>": math.nan, "up": math.inf}))
    found = bench.runs()["trial 0"]
    assert len(found.data.params) == 101
    assert {len(value) for value in found.data.params.values()} == {6000}
    assert len(bench.points("trial 0", "loss")) == 1001
    assert math.isnan(found.data.metrics["f1_0.5 _val_"])
    assert found.data.metrics["up"] > 1e308
    assert [len(each) for each in chunks(range(2001), 1000)] == [1000, 1000, 1]


def test_a_parameter_that_changes_is_a_tag(bench: Bench) -> None:
    tracker = bench.tracker()
    tracker.run_started(bench.run())
    tracker.trial_started(bench.trial(0, lr=0.1))
    tracker.trial_started(bench.trial(0, generation=2, lr=0.2))
    found = bench.runs()["trial 0"].data
    assert (found.params, found.tags["sparktrain.param.lr"]) == ({"lr": "0.1"}, "0.2")


@pytest.mark.parametrize(
    ("name", "key"),
    [("loss", "loss"), ("a/b", "a/b"), ("../x", "_/x"), ("/", "_"), ("ä:b", "__b"), ("n" * 300, "n" * 250)],
)
def test_a_name_becomes_one_that_mlflow_takes(name: str, key: str) -> None:
    assert key_of(name) == key


def test_nested_parameters_have_paths() -> None:
    assert params_of({"o": {"n": 1, "m": {}}, "l": [1]}) == {"o.n": "1", "o.m": "{}", "l": "[1]"}


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_is_given_up_while_the_run_waits(
    bench: Bench, mute: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mlflow_tracker, "ANSWER_S", 1)
    tracker = bench.tracker(mute)
    tracker.run_started(bench.run())
    tracker.run_ended(bench.result(bench.end(0)))
    assert "lacks parts of run r (1 trials); to send them later: sparktrain resume" in caplog.text
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"


def test_limits_that_the_user_has_set_for_mlflow_count(
    bench: Bench, mute: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(mlflow_tracker, "ANSWER_S", 100)
    bench.tracker(mute).run_started(bench.run())
    assert "has not taken what the run sends" in caplog.text
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"
