"""A coordinator in the cluster is lost: members of other agents continue, in their processes, and no step is lost."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparktrain.base.clock import pause
from sparktrain.driver.clustered import cluster_launch
from sparktrain.errors import InfraError
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorClaim
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import read_table
from sparktrain.state.records import TrialConcluded
from sparktrain.store.localfs import LocalStore
from tests.process.test_cluster_coordinator import (
    ENDS_S,
    STARTS_S,
    adopted_trials,
    folder_of,
    kill_coordinator,
    kill_its_agent,
)
from tests.support.process_cluster import coordinators, sweep_in_cluster
from tests.support.processes import wait_until


def stepping(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Note each step in a file of this member, and train as long as FOLDER/hold exists."""
    import os

    step = 0
    print(f"trial {x} starts")
    while Path(folder, "hold").exists():
        step += 1
        with Path(folder, f"steps-{x}-{ctx.rank}").open("a") as file:
            file.write(f"{os.getpid()} {ctx.generation} {step}\n")
        ctx.report(step, y=float(step))
        pause(0.05)
    print(f"trial {x} ends")
    return {"y": float(x)}


def steps_of(folder: Path, x: int, rank: int = 0) -> list[tuple[int, int, int]]:
    """Process, generation and number of each step of a member."""
    path = folder / f"steps-{x}-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), int(generation), int(step)) for pid, generation, step in map(str.split, lines)]


@contextmanager
def stepping_sweep(folder: Path, cases: int, **options: Any) -> Iterator[Future[Any]]:
    """A sweep with trials that train while FOLDER/hold exists: its future, once all do."""
    (folder / "hold").touch()
    size = options.get("workers_per_trial", 1)
    space = {"x": list(range(cases)), "folder": [str(folder)]}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sweep_in_cluster, stepping, space, folder, **options)
        try:
            members = [(x, rank) for x in range(cases) for rank in range(size)]
            wait_until(
                lambda: running.done() or all(steps_of(folder, *member) for member in members), STARTS_S, "all train"
            )
            yield running
        finally:
            (folder / "hold").unlink(missing_ok=True)


def records_of(folder: Path) -> list[Any]:
    return list(read(LocalStore(str(folder / "runs")), RunLayout("run").journal).records)


def check_kept(folder: Path, x: int, rank: int = 0) -> None:
    """The member has one process, one generation, and each step once."""
    steps = steps_of(folder, x, rank)
    assert len({pid for pid, _, _ in steps}) == 1
    assert [(generation, step) for _, generation, step in steps] == [(1, step) for step in range(1, len(steps) + 1)]


def check_reports(folder: Path, x: int) -> None:
    """The run directory has each report of the trial, once."""
    table = read_table(LocalStore(str(folder / "runs")), RunLayout("run"), counting=True).to_pylist()
    reported = [row["step"] for row in table if row["trial"] == x and row["rank"] == 0 and row["name"] == "y"]
    assert reported == [step for _, _, step in steps_of(folder, x)]


def check_ends(folder: Path, cases: int) -> None:
    """Each trial has one end in the journal."""
    ends = [record.trial for record in records_of(folder) if isinstance(record, TrialConcluded)]
    assert sorted(ends) == list(range(cases))


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(
            kill_coordinator,
            marks=pytest.mark.all(case="trials lose their coordinator alone", covered_by="a gang loses it"),
        ),
        kill_its_agent,
    ],
)
def test_trials_of_other_agents_continue(tmp_path: Path, kill: Callable[[], None]) -> None:
    with stepping_sweep(tmp_path, 2) as running:
        [coordinator] = coordinators()
        beside = coordinator.parent()
        assert beside is not None
        below = {child.pid for child in beside.children(recursive=True)}
        mine = [x for x in (0, 1) if kill is kill_coordinator or steps_of(tmp_path, x)[0][0] not in below]
        assert len(mine) == (2 if kill is kill_coordinator else 1)
        kill()
        wait_until(lambda: adopted_trials(tmp_path) == set(mine), STARTS_S, "a successor has adopted them")
        seen = {x: len(steps_of(tmp_path, x)) for x in mine}
        wait_until(lambda: all(len(steps_of(tmp_path, x)) > seen[x] for x in mine), STARTS_S, "they train on")
        if kill is kill_its_agent:  # the other trial starts again
            [lost] = {0, 1} - set(mine)
            wait_until(lambda: steps_of(tmp_path, lost)[-1][1] == 2, ENDS_S, "the other one restarts")
    result = running.result(ENDS_S)
    assert [(trial.status, trial.metrics) for trial in result.trials] == [
        ("succeeded", {"y": float(x)}) for x in (0, 1)
    ]
    for x in mine:
        check_kept(tmp_path, x)
        check_reports(tmp_path, x)
        assert result.trials[x].restarts == ()
        log = tmp_path / f"runs/run/trials/{x:04d}/generation-1/rank-0/log.txt"
        assert log.read_text() == f"trial {x} starts\ntrial {x} ends\n"
    check_ends(tmp_path, 2)
    assert not coordinators()


def test_a_gang_continues(tmp_path: Path) -> None:
    with stepping_sweep(tmp_path, 1, workers_per_trial=2) as running:
        kill_coordinator()
        wait_until(lambda: adopted_trials(tmp_path) == {0}, STARTS_S, "a successor has adopted it")
        seen = [len(steps_of(tmp_path, 0, rank)) for rank in (0, 1)]
        wait_until(
            lambda: all(len(steps_of(tmp_path, 0, rank)) > seen[rank] for rank in (0, 1)), STARTS_S, "it trains on"
        )
    [trial] = running.result(ENDS_S).trials
    assert (trial.status, trial.metrics, trial.restarts) == ("succeeded", {"y": 0.0}, ())
    for rank in (0, 1):
        check_kept(tmp_path, 0, rank)
    check_reports(tmp_path, 0)
    check_ends(tmp_path, 1)


@pytest.mark.all(
    case="a gang loses a member together with the coordinator",
    covered_by="`histories/test_adoptions`, `unit/state/test_adoption`; a gang that loses its coordinator alone",
)
def test_a_gang_that_loses_a_member_with_the_coordinator_restarts(tmp_path: Path) -> None:
    with stepping_sweep(tmp_path, 1, workers_per_trial=2) as running:
        first = [steps_of(tmp_path, 0, rank)[0][0] for rank in (0, 1)]
        kill_its_agent()
        wait_until(lambda: steps_of(tmp_path, 0)[-1][1] == 2, ENDS_S, "it restarts")
        wait_until(lambda: not any(map(psutil.pid_exists, first)), STARTS_S, "its first processes are gone")
    [trial] = running.result(ENDS_S).trials
    assert (trial.status, trial.metrics, len(trial.restarts)) == ("succeeded", {"y": 0.0}, 1)
    assert adopted_trials(tmp_path) == set()
    check_ends(tmp_path, 1)


def test_a_trial_that_ends_without_a_coordinator_keeps_its_result(tmp_path: Path) -> None:
    with stepping_sweep(tmp_path, 2) as running:
        [coordinator] = coordinators()
        pids = {x: steps_of(tmp_path, x)[0][0] for x in (0, 1)}
        coordinator.kill()
        (tmp_path / "hold").unlink()
        wait_until(lambda: not any(map(psutil.pid_exists, pids.values())), STARTS_S, "both have ended")
    result = running.result(ENDS_S)
    assert [(trial.status, trial.metrics) for trial in result.trials] == [
        ("succeeded", {"y": float(x)}) for x in (0, 1)
    ]
    for x in (0, 1):
        check_kept(tmp_path, x)
        check_reports(tmp_path, x)
    check_ends(tmp_path, 2)


def test_members_end_where_no_coordinator_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_launch, "HOLD_S", 3.0)
    with stepping_sweep(tmp_path, 2) as running:
        pids = [steps_of(tmp_path, x)[0][0] for x in (0, 1)]
        folder = folder_of(tmp_path)
        # An agent that no process has claims the next coordinator: for a minute there is none.
        assert folder.claim(2, CoordinatorClaim(7, "nowhere", 1, 0.0))
        kill_coordinator()
        seen = [len(steps_of(tmp_path, x)) for x in (0, 1)]
        wait_until(lambda: all(len(steps_of(tmp_path, x)) > seen[x] for x in (0, 1)), STARTS_S, "they are held")
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), STARTS_S, "they have ended")
        folder.finish(CallEnd("InfraError", "seen enough"))
        with pytest.raises(InfraError, match="seen enough"):
            running.result(ENDS_S)


@pytest.mark.all(
    case="an agent with a member is lost while no coordinator listens", covered_by="`histories/test_adoptions`"
)
def test_an_agent_that_is_lost_meanwhile_costs_its_own_trial(tmp_path: Path) -> None:
    with stepping_sweep(tmp_path, 2, slots=3) as running:
        [coordinator] = coordinators()
        beside = coordinator.parent()
        assert beside is not None
        below = {child.pid for child in beside.children(recursive=True)}
        pids = {x: steps_of(tmp_path, x)[0][0] for x in (0, 1)}
        lost, kept = sorted((0, 1), key=lambda x: pids[x] in below)
        coordinator.kill()
        for ancestor in psutil.Process(pids[lost]).parents()[:2]:  # its zygote, and its agent
            ancestor.send_signal(signal.SIGKILL)
        wait_until(lambda: kept in adopted_trials(tmp_path), STARTS_S, "the other one is adopted")
        wait_until(lambda: steps_of(tmp_path, lost)[-1][1] == 2, ENDS_S, "it restarts")
    result = running.result(ENDS_S)
    assert [trial.metrics for trial in result.trials] == [{"y": 0.0}, {"y": 1.0}]
    check_kept(tmp_path, kept)
    check_ends(tmp_path, 2)
