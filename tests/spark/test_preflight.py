"""A call that a session cannot serve fails soon with the next step, and the session stays usable."""

import functools
import os
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.cluster.driver_address import HOST_KEY, PORT_KEY
from sparktrain.display.progress import NullDisplay
from sparktrain.driver import pool as pool_module
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.launch import launch
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.pool import PoolTimes
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.protocol.ticket import AgentTicket
from tests.support.functions import square
from tests.support.processes import descendants, wait_until

AT_ONCE_S = 5.0
SOON_S = 30.0
CLOSE_S = 8.0


@pytest.fixture(autouse=True)
def _session_goes_on(spark: SparkSession) -> Iterator[None]:
    """Check that both slots of the session are free after each test."""
    yield
    wait_until(lambda: not descendants(os.getpid(), "sparktrain.training"), 30.0, "no agent has a zygote")
    assert spark.range(0, 10, 1, 2).count() == 10


def refused(error: type[st.SparktrainError], within_s: float, function: Any = square, **options: Any) -> str:
    """The message with which a sweep is refused."""
    clock = SystemClock()
    started = clock.now()
    with pytest.raises(error) as caught:
        st.sweep(function, {"x": [1, 2, 3]}, metric="y", mode="max", progress=False, **{"preload": [], **options})
    assert clock.now() - started < within_s
    return str(caught.value)


def test_a_run_directory_must_be_of_this_run_and_writable(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    jobs = next_job(spark)
    (runs / "taken").mkdir(parents=True)
    (runs / "taken" / "run.json").write_text("{}")
    message = refused(st.RunDirectoryError, AT_ONCE_S, dir=str(runs), name="taken")
    assert f"{runs / 'taken' / 'run.json'} is not of a run of this sparktrain: choose another name or dir" in message
    (tmp_path / "file").touch()
    message = refused(st.RunDirectoryError, AT_ONCE_S, dir=str(tmp_path / "file"))
    assert f"{tmp_path / 'file'} is a file, not a directory" in message
    message = refused(st.RunDirectoryError, AT_ONCE_S, dir="/proc/self/runs")  # root cannot write there either
    assert "run directory /proc/self/runs cannot be written by user" in message
    assert next_job(spark) == jobs + 1, "no job was started for any of them"


def next_job(spark: SparkSession) -> int:
    """Run a job; return its number, which is the next one of the session."""
    spark.sparkContext.parallelize([1], 1).count()
    tracker = spark.sparkContext.statusTracker()
    return max(tracker.getJobIdsForGroup(None))


def test_agents_beyond_the_slots_and_invalid_options_are_refused(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(st.ResourceError) as caught:
        st.run(square, {"x": 1}, workers=1, agents=5, dir=str(runs))
    assert "agents (5) exceeds the 2 slots of the session (local-cluster[2,1,1024])" in str(caught.value)
    with pytest.raises(st.ResourceError, match=r"agents \(3\) exceeds the 2 slots"):
        st.pool(spark, agents=3)
    with pytest.raises(st.SpecError, match=r"preload is 'numpy' \(str\), a list of module names is expected"):
        st.pool(spark, agents=1, preload="numpy")
    assert "preload is 'numpy' (str)" in refused(st.SpecError, AT_ONCE_S, preload="numpy", dir=str(runs))
    message = refused(st.SpecError, AT_ONCE_S, max_concurrent_trials=0, dir=str(runs))
    assert "max_concurrent_trials (0) must be at least 1" in message
    assert not runs.exists()


def test_gpus_that_spark_does_not_assign_are_refused(spark: SparkSession, runs: Path) -> None:
    message = "gpus (1) must be what Spark gives a task, and spark.task.resource.gpu.amount is 0: set"
    assert message in refused(st.ResourceError, AT_ONCE_S, gpus=1, dir=str(runs))
    with st.pool(spark, agents=1, preload=[]) as pool, pytest.raises(st.ResourceError) as caught:
        pool.sweep(square, {"x": [1]}, metric="y", mode="max", gpus=1, dir=str(runs))
    assert message in str(caught.value)
    assert not runs.exists()


def test_a_call_from_another_thread_finds_the_session(spark: SparkSession, runs: Path) -> None:
    found: list[Any] = []

    def call() -> None:
        found.append(
            st.sweep(square, {"x": [3]}, metric="y", mode="max", dir=str(runs), progress=False, preload=[]).best
        )

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert found
    assert found[0].metrics == {"y": 9.0}


def test_two_calls_share_a_pool_on_spark(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    hold, entered = tmp_path / "hold", tmp_path / "entered"
    hold.touch()

    def train(x: int) -> float:
        entered.touch()
        wait_until(lambda: not hold.exists(), 60.0, "the second call has ended")
        return float(x)

    first: list[st.SweepResult] = []
    options: dict[str, Any] = {"metric": "y", "mode": "max", "dir": str(runs), "progress": False}
    with st.pool(spark, agents=2, preload=[]) as pool:
        call = functools.partial(pool.sweep, train, {"x": [1, 2, 3]}, name="first", **options)
        thread = threading.Thread(target=lambda: first.append(call()))
        thread.start()
        try:
            wait_until(entered.exists, 60.0, "the first call trains")
            with pytest.raises(st.PoolError, match="the pool is on run 'first': wait for its end, or give this call"):
                pool.sweep(square, {"x": [1]}, name="first", **options)
            second = threading.Thread(
                target=lambda: first.append(pool.sweep(square, {"x": [5]}, name="second", **options))
            )
            second.start()
            wait_until(lambda: "second" in pool._agents._on, 60.0, "the second call is on the pool")
        finally:
            hold.unlink()
            thread.join(60)
            second.join(60)
    results = {result.name: [trial.metrics for trial in result.trials] for result in first}
    assert results == {"first": [{"y": 1.0}, {"y": 2.0}, {"y": 3.0}], "second": [{"y": 25.0}]}
    with pytest.raises(st.PoolError, match=r"the pool is closed: open a new one with sparktrain\.pool\(\)"):
        pool.sweep(square, {"x": [1]}, name="third", **options)
    assert not (runs / "third").exists()


def test_a_call_beside_a_pool_is_refused_and_the_pool_closes_before_its_agents_have_joined(
    spark: SparkSession, runs: Path
) -> None:
    clock = SystemClock()
    pool = st.pool(spark, agents=2, preload=[])
    started = clock.now()
    message = refused(st.PoolError, SOON_S, dir=str(runs))
    assert "2 agents are wanted, and other calls or pools hold 2 of the 2 slots of the session" in message
    log = spark._jvm.org.apache.logging.log4j.LogManager.getContext(False)  # type: ignore[union-attr]
    assert log.getConfiguration().hasFilter(), "Spark does not warn of the tasks that a closing pool ends"
    pool.close()
    assert clock.now() - started < CLOSE_S
    # Spark's listeners learn of the end of a job after `close` does.
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), SOON_S, "no job is left")


def test_another_version_on_executors_is_refused_with_both(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = pool_module.installed_versions()["tensorflow"]
    monkeypatch.setattr(pool_module, "installed_versions", lambda: {"python": "3.11", "tensorflow": "1.15.0"})
    message = refused(st.EnvironmentMismatchError, SOON_S, dir=str(runs))
    assert f"tensorflow is 1.15.0 on the driver and {there} on the executor (host" in message
    assert "install the same versions on both" in message


def unreachable(spark: SparkSession, runs: Path) -> str:
    """The message of a sweep when its agents cannot reach the driver, and do not try for long."""
    options = SweepOptions(metric="y", mode="max", preload=[], dir=str(runs))
    agents = OwnAgents(engine_of(spark), PoolTimes(connect_s=2.0))
    clock = SystemClock()
    started = clock.now()
    with pytest.raises(st.DriverUnreachableError) as caught:
        launch(compose(square, {"x": [1, 2, 3]}, options), agents, NullDisplay())
    assert clock.now() - started < SOON_S
    return str(caught.value)


def test_an_unknown_name_of_the_driver_is_reported_with_the_keys(spark: SparkSession, runs: Path) -> None:
    spark.conf.set(HOST_KEY, "no-such-host.invalid")
    try:
        message = unreachable(spark, runs)
    finally:
        spark.conf.unset(HOST_KEY)
    assert "no-such-host.invalid" in message
    assert f"set {HOST_KEY} to an address of the driver that executors reach, and {PORT_KEY} to a port" in message


def test_a_port_behind_a_firewall_is_reported_with_the_keys(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and without a listener
        port = closed.getsockname()[1]

        def ticket(pool: str, hosts: tuple[str, ...], _: int, *rest: Any, **options: Any) -> AgentTicket:
            return AgentTicket(pool, hosts, port, *rest, **options)

        monkeypatch.setattr(pool_module, "AgentTicket", ticket)
        message = unreachable(spark, runs)
    assert "executors cannot reach the driver" in message
    assert f"on port {port}" in message
    assert "127.0.0.1" in message
    assert HOST_KEY in message
    assert PORT_KEY in message


def test_a_port_in_use_on_the_driver_is_reported(spark: SparkSession, runs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        spark.conf.set(PORT_KEY, str(port))
        try:
            message = refused(st.SessionError, AT_ONCE_S, dir=str(runs), name="port")
        finally:
            spark.conf.unset(PORT_KEY)
    assert "cannot listen on 127.0.0.1" in message
    assert f"port {port}" in message
    assert PORT_KEY in message
    assert not (runs / "port").exists()


def test_a_function_whose_module_executors_lack_is_refused_and_no_trial_starts(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module was in a zip on the path of the driver: it has no source file that could be sent."""
    archive, marker = tmp_path / "only_here.zip", tmp_path / "marker"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("lacking.py", f"def train(x):\n    open({str(marker)!r}, 'w').close()\n    return x\n")
    monkeypatch.syspath_prepend(str(archive))
    import lacking

    monkeypatch.delitem(sys.modules, "lacking")
    monkeypatch.setitem(sys.modules, "lacking", lacking)
    archive.unlink()  # otherwise executors on this host find it, by the path of the driver
    message = refused(st.FunctionError, SOON_S, lacking.train, dir=str(runs))
    assert "train cannot be loaded on executors: module 'lacking' cannot be imported on executor host" in message
    assert (
        "bring it with sc.addPyFile(...) / --py-files / spark.addArtifacts(..., pyfile=True), or install it" in message
    )
    assert not marker.exists()
