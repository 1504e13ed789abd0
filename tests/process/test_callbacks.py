"""Callbacks of real runs on this machine: what they learn, and that none of them is in the way."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.driver.tracking import callback_feed
from tests.support.mortal import Mortal

LIMIT_S = 60.0


def learn(x: int, ctx: Any, fail: int = -1) -> dict[str, float]:
    for step in range(3):
        ctx.report(step, y=float(x * step))
    if x == fail:
        raise ValueError(f"x is {x}")
    return {"y": float(x)}


def dies_once(folder: str, ctx: Any) -> dict[str, float]:
    """Its first process is killed after a report."""
    ctx.report(ctx.generation, y=1.0)
    mark = Path(folder, "died")
    if ctx.generation == 1:
        while not Path(folder, "reported").exists():
            ctx.should_stop()
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"y": 2.0}


class Recorder(st.Callback):
    """Notes what it gets."""

    def __init__(self, folder: Path | None = None) -> None:
        self.seen: list[tuple[str, Any]] = []
        self._folder = folder

    def run_started(self, run: st.TrackedRun) -> None:
        self.seen.append(("run", run))

    def trial_started(self, trial: st.TrackedTrial) -> None:
        self.seen.append(("trial", trial))

    def reported(self, trial: st.TrackedTrial, reports: Any) -> None:
        self.seen += [("report", (trial.number, each.generation, each.step, each.metrics)) for each in reports]
        if self._folder is not None:
            (self._folder / "reported").touch()

    def trial_ended(self, trial: st.TrackedEnd) -> None:
        self.seen.append(("end", trial))

    def run_ended(self, result: st.TrackedResult) -> None:
        self.seen.append(("over", result))

    def of(self, kind: str) -> list[Any]:
        return [each for found, each in self.seen if found == kind]


AGENTS = (1,)
"""One warm agent."""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {
        "metric": "y", "mode": "max", "dir": str(tmp_path), "name": "c", "preload": [], "progress": False,
        "backend": "none",
    }  # fmt: skip


def test_a_sweep_and_its_repetition_are_reported_in_order(
    pool: st.Pool, options: dict[str, Any], tmp_path: Path
) -> None:
    recorder, notices = Recorder(), []
    space = {"x": [1, 2, 3], "fail": [2]}
    made = pool.sweep(learn, space, callbacks=[recorder], notify=notices.append, **options)
    assert [trial.status for trial in made.trials] == ["succeeded", "failed", "succeeded"]
    kinds = [kind for kind, _ in recorder.seen]
    assert (kinds[0], kinds[-1], kinds.count("run"), kinds.count("over")) == ("run", "over", 1, 1)
    for number in range(3):
        own = [kind for kind, each in recorder.seen if _number(kind, each) == number]
        assert own == ["trial", "report", "report", "report", "end"]
    (run,), (result,) = recorder.of("run"), recorder.of("over")
    assert (run.name, run.kind, run.directory, run.resumed) == ("c", "sweep", str(tmp_path / "c"), False)
    assert recorder.of("report")[:3] == [(0, 1, step, {"y": float(step)}) for step in range(3)]
    assert recorder.of("trial")[1].id == f"{run.id}-1"
    assert [(each.status, each.reports) for each in recorder.of("end")] == [
        ("succeeded", 3), ("failed", 3), ("succeeded", 3),
    ]  # fmt: skip
    assert "ValueError: x is 2" in recorder.of("end")[1].error
    assert (result.status, result.best, len(result.trials)) == ("succeeded", 2, 3)
    assert [each.event for each in notices] == ["first_failure", "ended"]
    again = Recorder()
    st.resume(str(tmp_path / "c"), callbacks=again, retry_failed=True, progress=False, spark=st.local(slots=1))
    assert [each.number for each in again.of("trial")] == [1]
    (later,) = again.of("run")
    assert (later.id, later.resumed) == (run.id, True)
    assert len(again.of("over")[0].trials) == 3


def _number(kind: str, each: Any) -> int | None:
    return each[0] if kind == "report" else getattr(each, "number", None)


def test_a_gang_that_restarts_has_another_generation(pool: st.Pool, options: dict[str, Any], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    alone = {**options, "mode": None, "metric": None}
    pool.run(dies_once, {"folder": str(tmp_path)}, workers=1, callbacks=recorder, **alone)
    assert [each.generation for each in recorder.of("trial")] == [1, 2]
    assert recorder.of("report") == [(0, 1, 1, {"y": 1.0}), (0, 2, 2, {"y": 1.0})]
    assert [(each.status, each.generation) for each in recorder.of("end")] == [("succeeded", 2)]


def test_a_gang_of_several_members_is_reported_by_its_chief(options: dict[str, Any]) -> None:
    recorder = Recorder()
    made = st.sweep(
        learn, {"x": [1, 2]}, callbacks=recorder, spark=st.local(slots=4), workers_per_trial=2, **options
    )  # fmt: skip
    assert [len(trial.members) for trial in made.trials] == [2, 2]
    assert {each["rank"] for trial in made.trials for each in trial.history.to_dict("records")} == {0, 1}
    for number, x in enumerate([1, 2]):
        assert [each for each in recorder.of("report") if each[0] == number] == [
            (number, 1, step, {"y": float(x * step)}) for step in range(3)
        ]
    assert sorted((each.number, each.reports) for each in recorder.of("end")) == [(0, 3), (1, 3)]


def test_callbacks_that_raise_and_hang_are_named_and_the_run_is_whole(
    pool: st.Pool, options: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_feed, "FLUSH_S", 0.5)
    caplog.set_level(logging.WARNING, "sparktrain")
    let = threading.Event()

    class Wrong(st.Callback):
        def reported(self, trial: Any, reports: Any) -> None:
            raise ValueError("no room")

    class Stuck(st.Callback):
        def run_started(self, run: Any) -> None:
            let.wait(LIMIT_S)

    recorder = Recorder()
    made = pool.sweep(learn, {"x": [1, 2]}, callbacks=[Stuck(), Wrong(), recorder], **options)
    assert made.status == "succeeded"
    assert not let.is_set()
    let.set()
    assert len(recorder.of("report")) == 6
    assert len(recorder.of("over")) == 1
    text = caplog.text
    assert text.count("callback Wrong has raised ValueError in reported") == 1
    assert 'raise ValueError("no room")' in text
    assert "callback Stuck has not handled its last events in time: it is in run_started for" in text


def held(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Reports, and waits while FOLDER/hold exists, but for x = 0."""
    ctx.report(ctx.generation, loss=float(x))
    while x and Path(folder, "hold").exists():
        pause(0.02)
    return {"y": float(x)}


def drive(folder: Path) -> Any:
    """A driver for tests to kill."""
    result = st.sweep(
        held, {"x": [0, 1], "folder": [str(folder)]}, metric="y", mode="max", spark=st.local(slots=1), preload=[],
        tracking=st.MLflow(uri=f"sqlite:///{folder}/m.db"), dir=str(folder / "runs"), name="run", progress=False,
    )  # fmt: skip
    return [each.status for each in result.trials]


@pytest.mark.all(
    case="a killed driver, and the next one, write to the same runs of MLflow",
    covered_by="`process/test_mlflow_tracker`: a second tracker joins the runs of the first",
)
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # MLflow's own tables
def test_a_driver_after_one_that_was_killed_joins_its_runs_in_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/m.db")
    client.create_experiment("sparktrain", artifact_location=str(tmp_path / "artifacts"))

    def runs() -> dict[str, Any]:
        experiment = client.get_experiment_by_name("sparktrain")
        assert experiment is not None
        return {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}

    (tmp_path / "hold").touch()
    first = Mortal("tests.process.test_callbacks:drive", tmp_path, "tests.support.local_driver").start()
    try:
        first.wait(lambda: "trial 1" in (there := runs()) and "loss" in there["trial 1"].data.metrics, "a report")
        assert first.process is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    finally:
        first.close()
    before = {name: each.info.run_id for name, each in runs().items()}
    assert sorted(before) == ["run", "trial 0", "trial 1"]
    (tmp_path / "hold").unlink()
    assert drive(tmp_path) == ["succeeded"] * 2
    after = runs()
    assert {name: each.info.run_id for name, each in after.items()} == before
    assert {each.info.status for each in after.values()} == {"FINISHED"}
    assert after["run"].data.tags["sparktrain.best"] == "1"
    points = client.get_metric_history(before["trial 1"], "loss")
    assert sorted((each.step, each.value) for each in points) == [(1, 1.0), (2, 1.0)]
