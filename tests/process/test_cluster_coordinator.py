"""A coordinator beside an agent: the client drives nothing, and a successor continues when it is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock, pause
from sparktrain.driver.clustered.run_handle import submitted
from sparktrain.errors import FunctionError
from sparktrain.rundir.coordinator_folder import CoordinatorFolder
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.stop_requests import ask_stop
from sparktrain.runs.heartbeat_watch import HEARTBEAT_COUNTS_S
from sparktrain.state.records import GangAdopted
from sparktrain.store.localfs import LocalStore
from tests.support.process_cluster import cluster_call, coordinators, sweep_in_cluster
from tests.support.processes import Sighted, descendants, wait_until

STARTS_S = 60.0
ENDS_S = 90.0


def held(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Note each start, and train as long as FOLDER/hold exists."""
    Path(folder, f"start-{x}-{ctx.generation}").touch()
    step = 0
    while Path(folder, "hold").exists():
        step += 1
        ctx.report(step, y=float(step))
        pause(0.05)
    return {"y": float(x)}


def adopted_trials(folder: Path) -> set[int]:
    """The trials that a coordinator has adopted from the one before."""
    records = read(LocalStore(str(folder / "runs")), RunLayout("run").journal).records
    return {int(record.trial) for record in records if isinstance(record, GangAdopted)}


def doubled(x: int) -> dict[str, float]:
    return {"y": 2.0 * x}


class Unloadable:
    def __reduce__(self) -> Any:
        return (__import__, ("no_such_module_of_ours",))


@contextmanager
def holding(folder: Path, **options: Any) -> Iterator[Future[Any]]:
    """A sweep with two trials that train while FOLDER/hold exists: its future, once both do."""
    (folder / "hold").touch()
    space = {"x": [0, 1], "folder": [str(folder)]}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sweep_in_cluster, held, space, folder, **options)
        try:
            wait_until(lambda: running.done() or len(list(folder.glob("start-*-1"))) == 2, STARTS_S, "both trials run")
            yield running
        finally:
            (folder / "hold").unlink(missing_ok=True)


def folder_of(directory: Path) -> CoordinatorFolder:
    """The folder of the only call."""
    store = LocalStore(str(directory / "runs"))
    [call] = {path.split("/")[2] for path in store.list("run/coordinators")}
    return CoordinatorFolder(store, RunLayout("run").coordinator(call))


def test_a_sweep_has_its_coordinator_beside_an_agent(tmp_path: Path) -> None:
    result = sweep_in_cluster(doubled, {"x": [1, 2, 3]}, tmp_path)
    assert [(trial.status, trial.metrics) for trial in result.trials] == [
        ("succeeded", {"y": 2.0 * x}) for x in (1, 2, 3)
    ]
    assert result.best.metrics == {"y": 6.0}
    assert (tmp_path / "runs/run/results.json").exists()
    assert not coordinators()
    again = sweep_in_cluster(doubled, {"x": [1, 2, 3]}, tmp_path)
    assert [trial.metrics for trial in again.trials] == [trial.metrics for trial in result.trials]


class Notes(st.Callback):
    """Writes into a file what it hears, in whichever process that is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def trial_ended(self, trial: Any) -> None:
        """See base class."""
        import os

        with self.path.open("a") as file:
            file.write(f"{os.getpid()} {trial.status}\n")


def added(x: int, ctx: Any) -> dict[str, float]:
    """The sum of the ranks of a gang, which each member knows."""
    return {"y": x + 10.0 * ctx.size}


def test_a_gang_and_callbacks_have_a_coordinator_in_the_cluster(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    result = sweep_in_cluster(
        added, {"x": [1]}, tmp_path, workers_per_trial=2, callbacks=[Notes(heard)], env={"A": "1"}
    )
    assert [(trial.metrics, len(trial.members)) for trial in result.trials] == [({"y": 21.0}, 2)]
    [(pid, status)] = [line.split() for line in heard.read_text().splitlines()]
    assert status == "succeeded"
    assert int(pid) != os.getpid(), "the coordinator calls it"


def kill_coordinator() -> None:
    [coordinator] = coordinators()
    coordinator.kill()


def kill_its_agent() -> None:
    [coordinator] = coordinators()
    parent = coordinator.parent()
    assert parent is not None
    parent.kill()


@pytest.mark.all(
    case="a coordinator in the cluster is killed, or its agent", covered_by="`process/test_takeover`: trials continue"
)
@pytest.mark.parametrize("kill", [kill_coordinator, kill_its_agent])
def test_another_agent_takes_over_from_a_lost_coordinator(
    tmp_path: Path, kill: Callable[[], None], record_property: Any
) -> None:
    clock = SystemClock()
    with holding(tmp_path) as running:
        killed_at = clock.now()
        kill()
        folder = folder_of(tmp_path)
        wait_until(lambda: folder.look().number == 2, STARTS_S, "a successor listens")
        record_property("seconds until a successor listens", round(clock.now() - killed_at, 1))
    result = running.result(ENDS_S)
    assert [(trial.status, trial.metrics) for trial in result.trials] == [
        ("succeeded", {"y": float(x)}) for x in (0, 1)
    ]
    assert not coordinators()


@pytest.mark.all(case="a trial and a run stop by requests in the run directory", covered_by="a handle stops its run")
def test_a_stop_in_the_run_directory_reaches_the_coordinator(tmp_path: Path) -> None:
    with holding(tmp_path) as running:
        ask_stop(LocalStore(str(tmp_path / "runs")), RunLayout("run"), "enough", trial=1)
        wait_until(lambda: "pruned" in _statuses(tmp_path), ENDS_S, "trial 1 is stopped")
        ask_stop(LocalStore(str(tmp_path / "runs")), RunLayout("run"), "enough of all")
        result = running.result(ENDS_S)
    assert (result.status, result.reason) == ("stopped", "enough of all")
    assert [trial.status for trial in result.trials] == ["stopped", "pruned"]


def _statuses(folder: Path) -> list[str]:
    return [trial.status for trial in st.load(folder / "runs/run").trials]


def test_the_client_raises_what_ends_the_run(tmp_path: Path) -> None:
    bad = Unloadable()

    def train(x: int) -> dict[str, float]:
        return {"y": float(x), "z": float(bad is None)}

    with pytest.raises(FunctionError, match=r"cannot be loaded on executors.*no_such_module_of_ours"):
        sweep_in_cluster(train, {"x": [1]}, tmp_path)


def test_values_of_variables_are_in_no_file(tmp_path: Path) -> None:
    def train(x: int) -> dict[str, float]:
        import os

        return {"y": float(len(os.environ["TOKEN"]))}

    result = sweep_in_cluster(train, {"x": [1]}, tmp_path, env={"TOKEN": "s3cr3t-of-a-trial"})
    assert result.trials[0].metrics == {"y": 17.0}
    stored = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert stored
    assert not [content for content in stored if b"s3cr3t-of-a-trial" in content or b"PRIVATE KEY" in content]


def submitted_sweep(folder: Path) -> Any:
    """The handle of a sweep of two trials that last while FOLDER/hold exists."""
    (folder / "hold").touch()
    space = {"x": [0, 1], "folder": [str(folder)]}
    return submitted(*cluster_call(held, space, folder))


def test_a_submitted_run_is_reached_by_its_handle_and_by_its_directory(tmp_path: Path) -> None:
    handle = submitted_sweep(tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("start-*-1"))) == 2, STARTS_S, "both trials run")
    other = st.attach(tmp_path / "runs/run")
    assert (other.name, other.status, other.progress["running"]) == ("run", "running", 2)
    with pytest.raises(TimeoutError, match=r"run run has not ended within 0\.1 s"):
        other.result(timeout=0.1)
    (tmp_path / "hold").unlink()

    async def awaited() -> Any:
        return await handle

    result = asyncio.run(awaited())
    assert [trial.metrics for trial in result.trials] == [{"y": 0.0}, {"y": 1.0}]
    again = st.attach(tmp_path / "runs/run").result()
    assert isinstance(again, st.SweepResult)
    assert [trial.metrics for trial in again.trials] == [{"y": 0.0}, {"y": 1.0}]
    assert (other.status, other.progress["done"]) == ("succeeded", 2)


def test_a_handle_stops_its_run(tmp_path: Path) -> None:
    handle = submitted_sweep(tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("start-*-1"))) == 2, STARTS_S, "both trials run")
    st.attach(tmp_path / "runs/run").stop("seen enough")
    result = handle.result(ENDS_S)
    assert (result.status, result.reason) == ("stopped", "seen enough")
    (tmp_path / "hold").unlink()


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(st.RunDirectoryError, match="is no run directory"):
        st.attach(tmp_path)


@pytest.mark.all(case="a coordinator in the cluster freezes, and wakes up", covered_by="its agent is killed")
def test_a_frozen_coordinator_is_succeeded_and_ends_when_it_wakes_up(tmp_path: Path) -> None:
    with holding(tmp_path) as running:
        [frozen] = coordinators()
        frozen.suspend()
        folder = folder_of(tmp_path)
        wait_until(lambda: folder.look().number == 2, ENDS_S, "a successor listens")
        wait_until(lambda: adopted_trials(tmp_path) == {0, 1}, ENDS_S, "both trials have another coordinator")
        frozen.resume()
        wait_until(lambda: not Sighted([frozen.pid]).alive(), STARTS_S, "it finds that it is deposed")
        assert len(coordinators()) == 1
        assert not list(tmp_path.glob("start-*-2"))
    result = running.result(ENDS_S)
    assert [(trial.status, trial.metrics) for trial in result.trials] == [
        ("succeeded", {"y": float(x)}) for x in (0, 1)
    ]


def test_ctrl_c_stops_the_run_and_names_how_to_continue(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    line = [sys.executable, "-m", "tests.process.cluster_client", str(tmp_path)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as client:
        try:
            wait_until(lambda: len(list(tmp_path.glob("start-*-1"))) == 2, STARTS_S, "both trials run")
            client.send_signal(signal.SIGINT)
            _, printed = client.communicate(timeout=ENDS_S)
        finally:
            client.kill()
    assert "KeyboardInterrupt: run run was interrupted" in printed
    assert "0 of 2 trials succeeded" in printed
    result = st.load(tmp_path / "runs/run")
    assert (result.status, result.reason) == ("stopped", "interrupted by Ctrl-C")


def test_a_run_whose_processes_all_died_on_this_host_is_resumed_at_once(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    line = [sys.executable, "-m", "tests.process.cluster_client", str(tmp_path)]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as client:
        wait_until(lambda: len(list(tmp_path.glob("start-*-1"))) == 2, STARTS_S, "both trials run")
        processes = Sighted([client.pid, *(process.pid for process in descendants(client.pid))])
        processes.kill()
    processes.wait_gone(STARTS_S)  # on a busy machine a killed process lives some milliseconds longer
    (tmp_path / "hold").unlink()
    clock = SystemClock()
    killed_at = clock.now()
    assert st.attach(tmp_path / "runs/run").status == "gone"
    result = st.resume(tmp_path / "runs/run", spark=st.local(slots=2), coordinator="driver", progress=False)
    assert [trial.status for trial in result.trials] == ["succeeded"] * 2
    assert clock.now() - killed_at < HEARTBEAT_COUNTS_S / 2
