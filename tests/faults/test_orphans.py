"""No training process survives its driver, its session or its Spark Connect client, whatever sessions it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes import Sighted, descendants, kill, wait_until, written_pids

OTHER_ENDS = pytest.mark.all(
    case="Ctrl-C and SIGTERM end the driver",
    covered_by="SIGKILL of the driver and of its JVM; `process/test_orphans`; `process/test_local_runs`",
)

GONE_S = 5.0


class Driver:
    """A driver in a process and a session of its own."""

    def __init__(self, how: str, folder: Path) -> None:
        self.folder = folder
        (folder / "pids").mkdir()
        self.output = folder / "output.txt"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.driver", how, str(folder)],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.all: Sighted = Sighted([])

    def wait_training(self) -> Sighted:
        """Wait until both trials have started their daemons; return their processes."""
        pids = self.folder / "pids"
        wait_until(lambda: len(list(pids.glob("ready-*"))) == 2 or self.process.poll() is not None, 90.0, "training")
        assert self.process.poll() is None, self.output.read_text()[-3000:]
        self.all = Sighted(
            [self.process.pid, *(each.pid for each in descendants(self.process.pid)), *written_pids(pids)]
        )
        return Sighted(written_pids(pids))

    def jvm(self) -> int:
        """The pid of the driver's JVM."""
        [jvm] = [each for each in psutil.Process(self.process.pid).children() if each.name() == "java"]
        return jvm.pid

    def clean_up(self) -> None:
        self.all.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(getattr(request, "param", "sweep"), tmp_path)
    try:
        yield made
    finally:
        made.clean_up()


ENDS: dict[str, Callable[[Driver], object]] = {
    "ctrl-c": lambda driver: os.kill(driver.process.pid, signal.SIGINT),
    "sigkill of the driver's python": lambda driver: kill(driver.process.pid),
    "sigkill of the driver's jvm": lambda driver: kill(driver.jvm()),
    "sigterm of the driver": lambda driver: os.kill(driver.process.pid, signal.SIGTERM),
}


OFTEN = ("sigkill of the driver's python", "sigkill of the driver's jvm")
"""The ends in `make test`; `make test-all` has all."""


@pytest.mark.parametrize("end", [pytest.param(end, marks=() if end in OFTEN else OTHER_ENDS) for end in ENDS])
def test_no_training_process_survives_its_driver(driver: Driver, end: str) -> None:
    training = driver.wait_training()
    assert len(training.processes) == 6
    ENDS[end](driver)
    training.wait_gone(GONE_S)
    driver.process.wait(60)
    driver.all.wait_gone(30.0)
    if end == "sigkill of the driver's jvm":
        assert "ended by AgentsLostError: the Spark job of the agents ended" in driver.output.read_text()


@pytest.mark.all(
    case="the stop of the session", covered_by="SIGKILL of the driver and of its JVM; `process/test_orphans`"
)
@pytest.mark.parametrize("driver", ["stop"], indirect=True)
def test_no_training_process_survives_the_stop_of_its_session(driver: Driver) -> None:
    training = driver.wait_training()
    (driver.folder / "stop").touch()
    training.wait_gone(GONE_S)
    driver.process.wait(60)
    assert "ended by AgentsLostError" in driver.output.read_text()


@pytest.mark.all(case="Ctrl-C in a pool", covered_by="SIGKILL of the driver and of its JVM; `process/test_local_runs`")
@pytest.mark.parametrize("driver", ["pool"], indirect=True)
def test_ctrl_c_in_the_call_of_a_pool_ends_its_trials(driver: Driver) -> None:
    training = driver.wait_training()
    os.kill(driver.process.pid, signal.SIGINT)
    training.wait_gone(GONE_S)
    driver.process.wait(60)
    assert "ended by KeyboardInterrupt: run run was interrupted" in driver.output.read_text()


@pytest.mark.all(case="SIGKILL of a Connect client", covered_by="SIGKILL of the driver and of its JVM")
@pytest.mark.parametrize("driver", ["connect"], indirect=True)
def test_no_training_process_survives_a_connect_client(driver: Driver) -> None:
    training = driver.wait_training()
    assert len(training.processes) == 6
    kill(driver.process.pid)
    assert training.wait_gone(GONE_S) <= GONE_S
