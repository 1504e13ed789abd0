"""A ring that trains while its coordinator in the cluster is lost: it continues in its processes, or heals."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.healing_programs import train
from tests.support.healed_members import members_in
from tests.support.process_cluster import coordinators, sweep_in_cluster
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(500)

WITHIN_S = 240.0
STEP_S = 0.8
STEPS = 24


@contextmanager
def fitting(folder: Path) -> Iterator[Future[Any]]:
    """A fit of two members on three agents, which trains: its future."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    space = {
        "folder": [str(notes)],
        "kills": [[]],
        "sharded": [False],
        "lag": [None],
        "step_s": [STEP_S],
        "every": ["auto"],
    }
    options: dict[str, Any] = {"workers_per_trial": 2, "backend": "horovod", "seed": 1, "metric": None}
    options |= {"slots": 3, "preload": ["tensorflow", "keras", "horovod.tensorflow"]}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sweep_in_cluster, train, space, folder, **options)
        wait_until(lambda: running.done() or steps_of(folder, 0) >= 3, WITHIN_S, "it trains")
        yield running


def steps_of(folder: Path, rank: int) -> int:
    path = folder / "notes" / f"steps-{rank}"
    return int(path.read_text() or 0) if path.exists() else 0


def pid_of(folder: Path, rank: int) -> int:
    [path] = (folder / "notes").glob(f"pid-{rank}-*")
    return int(path.name.rpartition("-")[2])


def check_members(folder: Path, processes: int) -> None:
    """Both members have come to the last step with equal variables, without a second trace of the step."""
    # The statistics of batch normalization are those of the rows of each member.
    members, count = members_in(folder / "notes", 2)
    assert [steps_of(folder, rank) for rank in (0, 1)] == [STEPS, STEPS]
    assert [facts["traces"] for _, facts in members] == [1, 1]
    first, second = (
        {name: value for name, value in variables.items() if "moving" not in name} for variables, _ in members
    )
    assert first == second
    assert count == processes


def test_a_ring_continues_without_its_coordinator(tmp_path: Path) -> None:
    with fitting(tmp_path) as running:
        [coordinator] = coordinators()
        coordinator.kill()
        [trial] = running.result(WITHIN_S).trials
    assert (trial.status, trial.restarts) == ("succeeded", ())
    check_members(tmp_path, 2)


@pytest.mark.all(
    case="a ring loses a member together with its coordinator in the cluster",
    covered_by="`unit/state/test_adoption`, `faults/test_healing_fits`",
)
def test_a_ring_heals_that_loses_a_member_with_its_coordinator(tmp_path: Path) -> None:
    with fitting(tmp_path) as running:
        [coordinator] = coordinators()
        beside = coordinator.parent()
        assert beside is not None
        below = {child.pid for child in beside.children(recursive=True)}
        rank = next((rank for rank in (0, 1) if pid_of(tmp_path, rank) in below), 1)
        agent = psutil.Process(pid_of(tmp_path, rank)).parents()[1]
        for victim in (coordinator, agent):
            victim.kill()
        [trial] = running.result(WITHIN_S).trials
    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in trial.restarts] == [(rank, True, 0)]
    assert trial.status == "succeeded"
    check_members(tmp_path, 3)
