"""`sparktrain submit` on a real YARN: executors run from a pack, and the exit code is that of the run."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.hadoop.commands import SMALL, SMALL_PACKS, TRAINING, TRAINING_PACKS, command, kill_driver
from tests.hadoop.following import wait_running
from tests.support.hadoop import Yarn

RESUMED = pytest.mark.all(
    case="a run from a pack that loses its driver for good is reported, and another application resumes it; from a "
    "pack with TensorFlow too",
    covered_by="a driver from a pack that refuses its call; `unit/driver/submitted_jobs/test_verdict`; "
    "`faults/test_driver_death`: another driver resumes",
)
WITHOUT_A_PACK = pytest.mark.all(
    case="a driver without a pack that refuses its call", covered_by="a driver from a pack that does"
)

TRAIN = Path(__file__).with_name("yarn_where.py")
ENDS_S = 300.0
"""From the call to its end, or until members train, on a busy machine."""

PACKAGES = {SMALL_PACKS: SMALL, TRAINING_PACKS: TRAINING}
"""By the folder of a pack: what is in it."""
UPLOADED = {SMALL_PACKS: "packs", TRAINING_PACKS: "packed_yarn"}
"""By the folder of a pack: the fixture that puts it there."""

pytestmark = pytest.mark.timeout(900)


def check_python(marks: Path) -> None:
    """All members ran the Python of the pack, and nothing of this machine's own."""
    reports = [json.loads(path.read_text()) for path in marks.iterdir()]
    assert reports
    for each in reports:
        for part in ("executable", "prefix", "library", "package"):
            assert "/environment" in each[part], each
        assert each["outer"] is None, "what its programs start is not troubled by the libraries of the pack"
        ours = [path for path in each["mapped"] if path.startswith((f"{sys.base_prefix}/", f"{sys.prefix}/"))]
        assert not ours


@RESUMED
@pytest.mark.parametrize("pack", [SMALL_PACKS, TRAINING_PACKS], ids=["small", "large"])
def test_a_run_from_a_pack_with_a_driver_lost_for_good_is_reported_and_resumed_by_another_application(
    yarn_cluster: Yarn, tmp_path: Path, marks: Path, pack: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(UPLOADED[pack])
    sweep = [
        "--grid",
        f"marks={marks}",
        "--metric",
        "y",
        "--mode",
        "max",
        "--preload",
        "numpy",
        "--dir",
        "hdfs:///submitted",
    ]
    name = f"killed-{pack}"
    words = ["sweep", f"{TRAIN}:double", "--grid", "x=-1,1,0", *sweep, "--name", name]
    place = ["--deploy-mode", "cluster", "--label", "gpu", "--packs", f"hdfs:///{pack}", "--package", *PACKAGES[pack]]
    with command(yarn_cluster, tmp_path / "first", *place, *words) as first:
        done = "; 2 of 3 trials done, 1 running"
        wait_running(first, lambda: done in first.stderr, ENDS_S, done)
        kill_driver(first.application)
        assert first.wait(ENDS_S) == 5, first.output
    assert "nothing to upload, " in first.stderr
    assert " is RUNNING on " in first.stderr
    # Its Python has seen that its JVM is gone, or was ended as soon.
    assert re.search(r"; the same call resumes (it|the run)\n", first.stderr)
    check_python(marks)

    with command(yarn_cluster, tmp_path / "again", *place, "resume", f"hdfs:///submitted/{name}", "--json") as again:
        assert again.wait(ENDS_S) == 0, again.output
    trials = json.loads(again.stdout)["trials"]
    assert [each["status"] for each in trials] == ["failed", "succeeded", "succeeded"]
    assert [each["metrics"] for each in trials[1:]] == [{"y": 2}, {"y": 0}]
    assert "x (-1) is below zero" in trials[0]["error"]["summary"]
    ran = {path.name for path in marks.iterdir()}
    assert {"-1-1", "1-1", "0-1"} < ran
    # The executors of a lost driver end one after the other: it may have placed the trial on the last one in between.
    assert ran - {"-1-1", "1-1", "0-1"} <= {"0-2", "0-3"}, "no other trial was restarted"
    check_python(marks)


OF_THIS_MACHINE = ["--pack", "none", "--conf", f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={sys.executable}"]


@pytest.mark.usefixtures("packs")
@pytest.mark.parametrize(
    "python",
    [
        ["--packs", f"hdfs:///{SMALL_PACKS}", "--package", *SMALL],
        pytest.param(OF_THIS_MACHINE, marks=WITHOUT_A_PACK),
    ],
    ids=["pack", "none"],
)
def test_a_call_that_the_driver_refuses_in_its_container_has_its_code_and_its_words(
    yarn_cluster: Yarn, tmp_path: Path, python: list[str]
) -> None:
    words = ["sweep", f"{TRAIN}:no_such", "--grid", "x=1", "--dir", "hdfs:///submitted", "--name", "refused"]
    with command(yarn_cluster, tmp_path / "call", "--deploy-mode", "cluster", *python, *words) as done:
        assert done.wait(ENDS_S) == 2, done.stderr
    assert "exited with 2 before it ended a run" in done.stderr
    assert "the end of what the driver printed:\n" in done.stderr
    assert "no_such" in done.stderr.rpartition("the end of what the driver printed:")[2]
