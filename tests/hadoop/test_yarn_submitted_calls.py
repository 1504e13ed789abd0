"""`sparktrain.submit` from a session on YARN: the run is an application of its own, which outlives the client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.runs.locate import run_in
from tests.hadoop.yarn_leaves import SECRET
from tests.support.hadoop import Yarn, fast_conf
from tests.support.processes import wait_until

CLIENT = Path(__file__).with_name("yarn_leaves.py")
MASTER_PYTHON_KEY = "spark.yarn.appMasterEnv.PYSPARK_PYTHON"
SUBMITS_S = 180.0
"""Until a client has its session, and has submitted its run, on a busy machine."""
ENDS_S = 300.0

WITHOUT_A_DRIVER = pytest.mark.all(
    case="a submitted call with a driver that cannot start, or is killed",
    covered_by="`unit/driver/clustered/test_application_lookout`: what YARN reports, and what the handle raises",
)

pytestmark = pytest.mark.timeout(900)


@contextmanager
def left_run(cluster: Yarn, folder: Path, name: str, conf: Mapping[str, str] | None = None) -> Iterator[st.RunHandle]:
    """The run of a client that was killed as soon as `submit` had returned; its application is ended in any case."""
    settings = {**fast_conf(cluster), **(conf or {})}
    (folder / "conf.json").write_text(json.dumps(settings))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    line = [sys.executable, str(CLIENT), str(folder / "conf.json"), f"{cluster.hdfs.url}/left", name, str(folder)]
    before = {application["id"] for application in cluster.applications()}
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        client = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env={**env, **cluster.env}, cwd=folder
        )
    try:
        printed = folder / "stdout"
        wait_until(
            lambda: printed.read_text().endswith("\n") or client.poll() is not None,
            SUBMITS_S,
            "the client has submitted its run",
        )
        assert client.poll() is None, (folder / "stderr").read_text()
        client.kill()
        client.wait()
        yield st.attach(printed.read_text().strip())
    finally:
        client.kill()
        client.wait()
        assert client.stdin is not None
        client.stdin.close()
        for application in cluster.applications():
            if application["id"] not in before:
                cluster.kill_application(application["id"])


def test_a_run_on_yarn_outlives_the_client_that_submitted_it(yarn_cluster: Yarn, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with left_run(yarn_cluster, tmp_path, "outlives") as handle:
        wait_until((tmp_path / "start-1").exists, ENDS_S, "a trial starts without the client")
        assert handle.status == "running"
        assert handle.progress["total"] == 2
        (tmp_path / "hold").unlink()
        result = handle.result(ENDS_S)
    assert isinstance(result, st.SweepResult)
    assert [trial.metrics for trial in result.trials] == [{"y": 2.0, "secret": 1.0}, {"y": 4.0, "secret": 1.0}]
    place = run_in(handle.directory)
    paths = place.store.list(place.layout.path)
    assert any(path.endswith("/application.json") for path in paths)
    assert [path for path in paths if SECRET.encode() in place.store.read(path)] == []


@WITHOUT_A_DRIVER
def test_an_application_that_fails_before_it_has_the_run_ends_the_result(yarn_cluster: Yarn, tmp_path: Path) -> None:
    conf = {MASTER_PYTHON_KEY: "/no/such/python"}
    with (
        left_run(yarn_cluster, tmp_path, "fails", conf) as handle,
        pytest.raises(st.AgentsLostError, match=r"application_\d+_\d+ is FAILED: .*its driver has not ended run fails"),
    ):
        handle.result(ENDS_S)


@WITHOUT_A_DRIVER
def test_an_application_that_yarn_kills_ends_the_result(yarn_cluster: Yarn, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with left_run(yarn_cluster, tmp_path, "killed") as handle:
        wait_until((tmp_path / "start-1").exists, ENDS_S, "a trial starts without the client")
        [application] = [each for each in yarn_cluster.applications() if each["name"] == "sparktrain killed"]
        yarn_cluster.kill_application(application["id"])
        with pytest.raises(st.AgentsLostError, match=f"{application['id']} is KILLED: .*was killed by user"):
            handle.result(ENDS_S)
