"""What a Spark Connect server does to a run that its client has left, with limits of seconds in place of minutes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock, pause
from tests.support.connect_server import connect_server, tunnel
from tests.support.processes import Sighted, wait_until

STARTS_S = 400.0
ENDS_S = 180.0
DETACHED_S, STREAM_S, SESSION_S = 20.0, 5.0, 40.0
MAINTENANCE_S = 2.0
"""Interval at which the server looks for what it has to end."""
LIMITS = {
    "spark.connect.execute.manager.detachedTimeout": f"{DETACHED_S:.0f}s",
    "spark.connect.execute.manager.maintenanceInterval": f"{MAINTENANCE_S:.0f}s",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": f"{STREAM_S:.0f}s",
    "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_S:.0f}s",
    "spark.connect.session.manager.maintenanceInterval": f"{MAINTENANCE_S:.0f}s",
}

pytestmark = [
    pytest.mark.all(
        case="what a Connect server ends after its client has left, and what a coordinator keeps",
        covered_by="`unit/driver/clustered/test_operation_keeper`: when it touches what",
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with connect_server(tmp_path_factory.mktemp("connect"), LIMITS) as started:
        yield started


@contextmanager
def left(folder: Path, port: int, way: str, *, stops: bool = False) -> Iterator[list[int]]:
    """The processes of both trials of a submitted sweep; its client and the tunnel are gone.

    `stops`: the client has stopped its session before.
    """
    (folder / "hold").touch()
    log = folder / "log"
    with tunnel(port) as near:
        line = [sys.executable, "-m", "tests.spark.left_client", f"sc://127.0.0.1:{near}", str(folder), way]
        with log.open("wb") as output:
            client = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: client.poll() is not None or len(started(folder)) == 2, STARTS_S, "both trials train")
            assert client.poll() is None, log.read_text()
            if stops:
                assert client.stdin is not None
                client.stdin.write(b"stop\n")
                client.stdin.flush()
                wait_until(lambda: "stopped" in log.read_text(), ENDS_S, "the client has stopped its session")
        finally:
            client.kill()
            client.communicate()
    try:
        yield started(folder)
    finally:
        (folder / "hold").unlink(missing_ok=True)


def started(folder: Path) -> list[int]:
    """The processes of the trials that have started."""
    return [int(path.name.rpartition("-")[2]) for path in folder.glob("start-*")]


def test_a_run_outlasts_every_limit_where_its_coordinator_reaches_the_server(port: int, tmp_path: Path) -> None:
    clock = SystemClock()
    with left(tmp_path, port, "direct") as trials:
        left_at = clock.now()
        lines = (tmp_path / "log").read_text()
        assert (
            "the run continues without this process: its coordinator stays attached to the Connect server at" in lines
        )
        assert f"127.0.0.1:{port}" in lines, "the tunnel is the client's own"
        # The time itself is what the test is about: longer than the server keeps what no client uses.
        while clock.now() < left_at + 2 * SESSION_S:
            assert all(psutil.pid_exists(trial) for trial in trials), f"ended after {clock.now() - left_at:.0f} s"
            pause(1.0)
        (tmp_path / "hold").unlink()
        result: Any = st.attach(str(tmp_path / "runs/run")).result(ENDS_S)
    assert [trial.metrics for trial in result.trials] == [{"y": 0.0}, {"y": 1.0}]
    assert len(started(tmp_path)) == 2, "no trial starts twice"


def test_the_server_ends_a_run_with_a_coordinator_that_does_not_reach_it(
    port: int, tmp_path: Path, record_property: Any
) -> None:
    clock = SystemClock()
    with left(tmp_path, port, "tunnel") as trials:
        left_at = clock.now()
        lines = (tmp_path / "log").read_text()
        assert "the Connect server ends the run 25 s after this process has left, by" in lines
        assert "senderMaxStreamDuration=5s and spark.connect.execute.manager.detachedTimeout=20s" in lines
        assert "do not reach the server (127.0.0.1:" in lines
        Sighted(trials).wait_gone(ENDS_S)
        lasted_s = clock.now() - left_at
        record_property("seconds until the server ended the run", round(lasted_s, 1))
        assert lasted_s >= DETACHED_S
        handle = st.attach(str(tmp_path / "runs/run"))
        wait_until(lambda: handle.status == "gone", ENDS_S, "the run shows that nothing drives it")
    assert len(started(tmp_path)) == 2


def test_a_client_that_stops_its_session_ends_the_run(port: int, tmp_path: Path) -> None:
    clock = SystemClock()
    with left(tmp_path, port, "direct", stops=True) as trials:
        stopped_at = clock.now()
        Sighted(trials).wait_gone(DETACHED_S)
        assert clock.now() - stopped_at < DETACHED_S, "no limit has to pass"
