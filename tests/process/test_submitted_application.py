"""A call for an application of its own, as `spark-submit` gets it: a program in its place notes what it has."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sparktrain as st
from sparktrain.cluster.yarn_client import ResourceManager
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.clustered.application_packet import ApplicationPacket
from sparktrain.driver.clustered.run_handle import RunHandle, submitted
from sparktrain.driver.engines.local_engine import LocalEngine
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.errors import SpecError
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from tests.support.processes import wait_until

SECRET = "a-secret-of-trials"
OF_SPARK = "a-secret-of-spark"
PYTHON = {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": "/opt/python"}
NOTES = """#!/bin/sh
ls -l >"$NOTES/modes"
cp spark.conf sparktrain-call "$NOTES"
pwd >"$NOTES/folder"
env >"$NOTES/environment"
echo "$@" >"$NOTES/line"
"""
REFUSES = """#!/bin/sh
echo 'Exception in thread "main" java.lang.IllegalArgumentException: no such queue: ml'
exit 1
"""


class YarnEngine(LocalEngine):
    """In place of a session on YARN."""

    runs_jobs = True
    settings = PYTHON

    def application_settings(self) -> dict[str, str] | None:
        return {**self.settings, "spark.master": "yarn", "spark.authenticate.secret": OF_SPARK}

    def scout(self, ticket: ScoutTicket, timeout_s: float) -> ScoutReport:
        return ScoutReport("host-1", sees_marker=True)


def train(x: int) -> float:
    return float(x)


def submit(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, **options: Any) -> RunHandle:
    """Submit a sweep, where `program` is the one that SPARK_HOME has for `spark-submit`."""
    (folder / "bin").mkdir()
    (folder / "notes").mkdir()
    (folder / "bin" / "spark-submit").write_text(program)
    (folder / "bin" / "spark-submit").chmod(0o755)
    for name, value in {"SPARK_HOME": str(folder), "NOTES": str(folder / "notes"), "PYSPARK_GATEWAY_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ResourceManager, "applications", lambda manager, tag: [])
    runs = f"file://{folder}/runs"
    given = SweepOptions(metric="y", mode="max", dir=runs, name="run", progress=False, **options)
    return submitted(compose(train, {"x": [1, 2]}, given), OwnAgents(YarnEngine(st.local(slots=2))))


def test_secrets_are_in_files_that_only_the_user_can_read_and_that_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submit(tmp_path, monkeypatch, NOTES, env={"TRIAL_SECRET": SECRET})
    notes = tmp_path / "notes"
    wait_until((notes / "line").exists, 30.0, "spark-submit runs")
    folder = Path((notes / "folder").read_text().strip())
    wait_until(lambda: not folder.exists(), 30.0, "the files are gone")

    packet = msgspec.msgpack.decode((notes / "sparktrain-call").read_bytes(), type=ApplicationPacket)
    assert (packet.run, packet.env) == ("run", {"TRIAL_SECRET": SECRET})
    assert (tmp_path / f"runs/run/coordinators/{packet.call}/call.json").exists()
    assert f"spark.authenticate.secret={OF_SPARK}" in (notes / "spark.conf").read_text()
    modes = [line.split() for line in (notes / "modes").read_text().splitlines()[1:]]
    assert {words[-1]: words[0][:10] for words in modes} == dict.fromkeys(
        ("spark.conf", "sparktrain-call"), "-rw-------"
    )
    line = (notes / "line").read_text()
    assert line.startswith("--master yarn --deploy-mode cluster --properties-file ")
    assert line.endswith("application_main.py sparktrain-call\n")
    assert "PYSPARK_GATEWAY_PORT" not in (notes / "environment").read_text()
    stored = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    for secret in (SECRET, OF_SPARK):
        assert secret not in line + (notes / "environment").read_text()
        assert not [path for path in stored if secret.encode() in path.read_bytes()]
    assert handle.status == "gone"


def test_the_result_raises_why_nothing_was_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = submit(tmp_path, monkeypatch, REFUSES)
    with pytest.raises(SpecError, match=r"spark-submit has submitted nothing: .*no such queue: ml"):
        handle.result(60.0)


def test_a_session_without_a_python_for_its_driver_is_refused_before_the_run_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(YarnEngine, "settings", {})
    with pytest.raises(SpecError, match="`sparktrain pack` prints the URL"):
        submit(tmp_path, monkeypatch, NOTES)
    assert not os.path.exists(tmp_path / "runs/run/run.json")


def test_a_stop_before_the_driver_starts_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = submit(tmp_path, monkeypatch, NOTES)
    handle.stop()
    [call] = (tmp_path / "runs/run/coordinators").iterdir()
    document = msgspec.json.decode((call / "call.json").read_bytes())
    [stop] = (tmp_path / "runs/run/stops").iterdir()
    assert stop.stem not in document["old_stops"]
