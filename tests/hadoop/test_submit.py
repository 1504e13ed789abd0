"""`sparktrain submit` on a real YARN: executors run from a pack, and the exit code is that of the run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.testing.hadoop import Yarn, fast_conf

ROOT = Path(__file__).parents[2]
TRAIN = Path(__file__).with_name("yarn_where.py")
ENDS_S = 240.0
"""From the call to its end, on a busy machine."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def submit(cluster: Yarn, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command, as a user calls it who has PYSPARK_PYTHON of his own in the environment."""
    conf = {key: value for key, value in fast_conf(cluster).items() if "PYSPARK_PYTHON" not in key}
    properties = folder / "spark.conf"
    properties.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    line = [sys.executable, "-m", "sparktrain", "submit", "--properties-file", str(properties), *words]
    return subprocess.run(
        line, env={**env, **cluster.env}, cwd=folder, capture_output=True, text=True, timeout=ENDS_S, check=False
    )


def check_python(marks: Path) -> None:
    """All members ran the Python of the pack, and nothing of this machine's own."""
    told = [json.loads(path.read_text()) for path in marks.iterdir()]
    assert told
    for each in told:
        for part in ("executable", "prefix", "library", "package"):
            assert "/environment" in each[part], each
        assert each["outer"] is None, "what its programs start is not troubled by the libraries of the pack"
        ours = [path for path in each["mapped"] if path.startswith((f"{sys.base_prefix}/", f"{sys.prefix}/"))]
        assert not ours


def test_executors_and_drivers_run_from_a_pack_that_is_uploaded_once(
    yarn_cluster: Yarn, packs: str, tmp_path: Path, marks: Path
) -> None:
    pack = ["--packs", packs, "--package", "sparktrain[hdfs]"]
    sweep = ["--grid", f"marks={marks}", "--metric", "y", "--preload", "numpy", "--dir", "hdfs:///submitted"]
    there = submit(
        yarn_cluster, tmp_path, "--deploy-mode", "cluster", "--label", "gpu", *pack,
        "sweep", f"{TRAIN}:double", "--grid", "x=-1,-2", *sweep, "--name", "failing",
    )  # fmt: skip
    assert there.returncode == 3, there.stderr + there.stdout
    assert "nothing to upload, " in there.stderr
    assert "ValueError: x (-1) is below zero" in there.stdout
    assert " is RUNNING on " in there.stderr
    check_python(marks)

    here = submit(
        yarn_cluster, tmp_path, "--executors", "1", *pack,
        "sweep", f"{TRAIN}:double", "--grid", "x=1,2", *sweep, "--name", "here", "--json",
    )  # fmt: skip
    assert here.returncode == 0, here.stderr + here.stdout
    assert [trial["metrics"] for trial in json.loads(here.stdout)["trials"]] == [{"y": 2}, {"y": 4}]
    assert "nothing to upload, " in here.stderr
    check_python(marks)


def test_a_call_that_the_driver_refuses_in_its_container_has_its_code_and_its_words(
    yarn_cluster: Yarn, tmp_path: Path
) -> None:
    words = ["sweep", f"{TRAIN}:no_such", "--grid", "x=1", "--dir", "hdfs:///submitted", "--name", "refused"]
    python = ["--conf", f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={sys.executable}"]
    done = submit(yarn_cluster, tmp_path, "--deploy-mode", "cluster", "--pack", "none", *python, *words)
    assert done.returncode == 2, done.stderr
    assert "ended with 2, and has not ended a run" in done.stderr
    assert "the end of what the driver printed:\n" in done.stderr
    assert "no_such" in done.stderr.rpartition("the end of what the driver printed:")[2]
