"""Drivers in processes of their own, which a soak kills, stops, and gives a clock that jumps.

python -m benchmarks.soak.drivers FOLDER RUNS
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import sparktrain as st
from benchmarks.soak.training import sweep
from sparktrain.base.clock import SystemClock, pause
from tests.support.wall_clock import WallClock

JUMPS_S = (-3600, -60, 0, 60, 3600)


class Driver:
    """The driver of a round's sweep. Leaving the context ends it."""

    def __init__(self, folder: Path, runs: str, environment: Mapping[str, str] | None = None) -> None:
        self._output = folder / "output.txt"
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak.drivers", str(folder), runs],
                stdout=file,
                stderr=file,
                env={**os.environ, **(environment or {})},
            )

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """Stop it: it holds what it has, and does not answer."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it continue."""
        self.process.send_signal(signal.SIGCONT)

    def printed(self) -> str:
        """The end of its output."""
        return self._output.read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def jump_until(clock: WallClock, rng: random.Random, condition: Callable[[], bool], timeout_s: float) -> int:
    """Let `clock` jump until `condition` holds, for `timeout_s` at most; how many times it has jumped."""
    jumps, deadline = 0, SystemClock().now() + timeout_s
    while not condition() and SystemClock().now() < deadline:
        pause(rng.uniform(0.05, 0.4))
        clock.set(rng.choice(JUMPS_S))
        jumps += 1
    return jumps


def main(folder: Path, runs: str) -> None:
    """Run the sweep as a driver of its own."""
    with st.pool(st.local(slots=2), preload=["numpy"]) as pool:
        sweep(pool, folder, runs, {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
