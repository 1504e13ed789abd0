"""Restarts of gangs as text."""

import pytest
from msgspec.structs import replace

from sparktrain.display.gang_text import restart_line
from sparktrain.state.outcome import FailureKind, Restart, RestartHow

KILLED = Restart(2, "gpu-4", FailureKind.MEMORY, "killed by SIGKILL", 1.23)


@pytest.mark.parametrize(
    ("restart", "cost"),
    [
        (KILLED, ", without a checkpoint"),
        (replace(KILLED, resumed_from_step=80, steps_lost=40), ", 40 steps repeated"),
        (replace(KILLED, resumed_from_step=80, steps_lost=0), ", no step repeated"),
        (replace(KILLED, how=RestartHow.ALONE), ", alone"),
        (replace(KILLED, how=RestartHow.ALONE, resumed_from_step=80), ", alone"),
    ],
)
def test_a_restart_on_one_line(restart: Restart, cost: str) -> None:
    assert restart_line(1, restart) == f"restart 1: rank 2 on gpu-4: killed by SIGKILL; 1.2 s{cost}"


def test_a_move_from_a_drained_agent_on_one_line() -> None:
    moved = Restart(1, "host-b", FailureKind.STOPPED, "drained", 0.4, 80, 0, how=RestartHow.DRAINED)
    assert restart_line(1, moved) == "restart 1: rank 1 moved from host-b: drained; 0.4 s, no step repeated"


def test_a_ring_that_healed_on_one_line() -> None:
    healed = replace(KILLED, seconds=0.4, how=RestartHow.HEALED, resumed_from_step=80, steps_lost=0)
    line = "restart 1: rank 2 on gpu-4: killed by SIGKILL; the others kept their state; 0.4 s, no step repeated"
    assert restart_line(1, healed) == line
    line = line.replace("their state", "their state and continue with 2 of 3 members")
    assert restart_line(1, replace(healed, how=RestartHow.SHRUNK, members=2, full_size=3)) == line
