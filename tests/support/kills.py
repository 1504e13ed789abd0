"""Processes that kill themselves at chosen moments of a training."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from sparktrain.errors import RingError

_TOGETHER_S = 60.0
HELD_S = 200.0
"""A guard against a test that hangs, and shorter than its own limit: on a busy machine a pool takes long to start."""


def hold(notes: Path, number: int, rank: int) -> None:
    """Note this process of `rank`, and wait until the test has killed one of a member: see `standby_kills`."""
    (notes / f"held-{number}-{rank}").write_text(str(os.getpid()))
    deadline = time.monotonic() + HELD_S
    while not (notes / f"go-{number}").exists():
        assert time.monotonic() < deadline, f"no member was killed at place {number}"
        time.sleep(0.002)


class Kills:
    """Kills this process at the places of its rank, each once in a run."""

    def __init__(self, notes: Path, rank: int, places: list[list[Any]]) -> None:
        """`places` have a rank, a moment, and the step; `notes` is a folder of the run."""
        self._notes = notes
        self._rank = rank
        self._places = places
        self.step = 0

    def at(self, moment: str) -> bool:
        """The training has come to `moment`. At "lag" it raises RingError, and the process lives.

        At "together" it waits for all ranks that die then: they are lost at once. Returns whether one of its places is
        "spoil" here: this process gets other weights.
        """
        for number, place in enumerate(self._places):
            mark = self._notes / f"killed-{number}"
            if place == [self._rank, moment, self.step] and not mark.exists():
                mark.touch()
                if moment == "spoil":
                    return True
                if moment == "together":
                    self._await_others(moment)
                if moment == "lag":
                    raise RingError("the collective has ended on others, and has failed here")
                if moment == "later":
                    # In the next collective, or close to it.
                    threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
        return False

    def _await_others(self, moment: str) -> None:
        numbers = [number for number, place in enumerate(self._places) if place[1:] == [moment, self.step]]
        until = time.monotonic() + _TOGETHER_S
        while not all((self._notes / f"killed-{number}").exists() for number in numbers):
            assert time.monotonic() < until, f"not all of {numbers} have come to step {self.step}"
            time.sleep(0.01)
