"""The view of a run directory, and which files are read for it."""

from pathlib import Path

import pytest

from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.runs import watcher
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.view import RunState
from sparktrain.runs.watcher import ASK_INTERVAL_S, Observer
from sparktrain.state.records import DriverStarted
from sparktrain.state.trial import TrialStatus
from sparktrain.store.localfs import LocalStore
from tests.unit.driver.stored import BEGUN, HandClock, ScriptedRun, looked_at, typical


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[DriverIdentity]:
    """The drivers that were asked whether they live; all of them answer."""
    drivers: list[DriverIdentity] = []

    def answers(who: DriverIdentity) -> bool:
        drivers.append(who)
        return True

    monkeypatch.setattr(watcher, "answers", answers)
    return drivers


def test_the_trials_follow_their_records(run: ScriptedRun) -> None:
    view = looked_at(run)
    assert [result.status for result in view.results] == ["succeeded", "failed", "running", "queued"]
    assert (view.done, view.total, view.remaining) == (2, 4, 2)
    assert view.best == view.results[0]
    trial = view.trials[2]
    assert (trial.result.generations, trial.result.host) == (2, "host-3.example.org")
    assert (trial.since, trial.reported, trial.saved) == (BEGUN + 80, BEGUN + 80, BEGUN + 60)
    assert trial.report is not None
    assert (trial.report.step, trial.report.metrics) == (150, {"accuracy": 0.5, "loss": 1.2})
    assert trial.checkpoint is not None
    assert trial.checkpoint.step == 100
    assert trial.manifest is not None
    assert Path(trial.manifest).is_file()
    assert [restart.cause for restart in trial.result.restarts] == ["agent on host-2 was lost: no heartbeat"]


def test_the_newest_driver_knows_how_many_trials_there_will_be(run: ScriptedRun) -> None:
    run.write(DriverStarted(plan=run.plan.digest, trials=9))
    assert (looked_at(run).total, looked_at(run).remaining) == (9, 7)


def test_a_run_in_the_place_of_one_that_was_moved_is_another_one(run: ScriptedRun, tmp_path: Path) -> None:
    observer = Observer(run.place, HandClock())
    assert observer.look().total == 4
    folder = Path(run.directory)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(RunDirectoryError, match=r"mnist is no run directory"):
        observer.look()
    ScriptedRun(tmp_path / "runs", total=7).begin()
    assert (observer.look().total, len(observer.records)) == (7, 1)


def test_a_run_with_a_silent_driver_can_be_resumed(run: ScriptedRun) -> None:
    view = looked_at(run)
    assert (view.state, view.status, view.complete) == (RunState.GONE, None, False)
    assert view.seconds(BEGUN + 1000) == 80, "there is no newer record"


def test_a_run_with_a_driver_that_answers_is_running(run: ScriptedRun, asked: list[DriverIdentity]) -> None:
    view = looked_at(run)
    assert view.state is RunState.RUNNING
    assert view.seconds(BEGUN + 1000) == 1000
    assert [who.host for who in asked] == ["host-1"]


def test_a_run_that_has_ended_is_as_in_results_json(run: ScriptedRun, asked: list[DriverIdentity]) -> None:
    run.succeed(2, accuracy=0.95)
    run.fail(3, status=TrialStatus.STOPPED)
    run.end("stopped", "the run's timeout (80 s) is over")
    view = looked_at(run)
    assert (view.state, view.status, view.complete) == (RunState.ENDED, SweepStatus.STOPPED, False)
    result = view.as_outcome()
    assert (result.seconds, result.reason, result.directory) == (80, "the run's timeout (80 s) is over", run.directory)
    assert [trial.status for trial in result.trials] == ["succeeded", "failed", "succeeded", "stopped"]
    assert not asked


def test_a_driver_that_takes_over_queues_what_was_stopped(run: ScriptedRun) -> None:
    run.fail(2, status=TrialStatus.STOPPED)
    run.end("stopped")
    run.at += 100
    run.begin("host-9")
    view = looked_at(run, run.at)
    assert view.driver.identity is not None
    assert (view.state, view.driver.identity.host, view.end) == (RunState.GONE, "host-9", None)
    assert [result.status for result in view.results] == ["succeeded", "failed", "queued", "queued"]


class CountingStore(LocalStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def test_only_what_is_new_is_read(run: ScriptedRun, asked: list[DriverIdentity]) -> None:
    store = CountingStore(run.store.root)
    place = type(run.place)(store, run.layout)
    clock = HandClock()
    looking = Observer(place, clock)
    first = looking.look()
    store.reads.clear()
    assert looking.look() is first
    assert store.reads == []
    run.report(2, 170, accuracy=0.6)
    again = looking.look()
    assert again.trials[2].report is not None
    assert again.trials[2].report.step == 170
    assert [path.rpartition("/")[2] for path in store.reads] == ["batch-0001-00000014"]
    assert len(asked) == 1
    clock.at += ASK_INTERVAL_S
    assert looking.look() is again
    assert len(asked) == 2


def test_a_driver_that_writes_is_not_asked(run: ScriptedRun, asked: list[DriverIdentity]) -> None:
    clock = HandClock()
    observer = Observer(run.place, clock)
    observer.look()
    for step in range(5):
        clock.at += ASK_INTERVAL_S + 1
        run.report(2, 200 + step, accuracy=0.5)
        assert observer.look().state is RunState.RUNNING
    assert len(asked) == 1, "records show that it lives"
    clock.at += ASK_INTERVAL_S + 1
    observer.look()
    assert len(asked) == 2, "a silent one is asked"
    clock.at += 3600
    run.report(2, 300, accuracy=0.5)
    observer.look()
    assert len(asked) == 3, "what it wrote before a long pause shows nothing"


def test_a_run_that_no_driver_has_started(tmp_path: Path) -> None:
    view = looked_at(ScriptedRun(tmp_path / "runs"))
    assert (view.state, view.driver.identity, view.trials, view.remaining) == (RunState.GONE, None, (), 4)
