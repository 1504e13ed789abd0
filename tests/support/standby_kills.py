"""Kills members of a gang while processes wait for their places."""

import os
import signal
import threading
import time
from pathlib import Path

import sparktrain as st
from sparktrain.base.ids import TrialId
from sparktrain.state.seats.seat import SeatState
from tests.support.kills import HELD_S


def wait_until_ready(pool: st.Pool) -> None:
    """Until a process waits for a loss."""
    deadline = time.monotonic() + HELD_S
    while True:
        coordinator = pool._agents._coordinator
        assert coordinator is not None
        sweep = coordinator._machine.sweep
        gang = None if sweep is None else sweep.gangs.get(TrialId(0))
        if gang is not None and any(one.state is SeatState.WAITING for one in gang.handovers.standbys):
            return
        assert time.monotonic() < deadline, "no process is ready"
        threading.Event().wait(0.02)


def kill_each(pool: st.Pool, notes: Path, ranks: list[int]) -> None:
    """Kill a process of each rank in turn, once both members wait after a step and a process is ready."""
    for number, rank in enumerate(ranks):
        paths = [notes / f"held-{number}-{peer}" for peer in range(2)]
        deadline = time.monotonic() + HELD_S
        while not all(path.exists() and path.read_text() for path in paths):
            assert time.monotonic() < deadline, f"not all members are held: {sorted(notes.iterdir())}"
            threading.Event().wait(0.02)
        wait_until_ready(pool)
        os.kill(int(paths[rank].read_text()), signal.SIGKILL)
        (notes / f"go-{number}").touch()
