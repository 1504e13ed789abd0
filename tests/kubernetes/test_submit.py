"""`sparktrain submit` to Kubernetes: its files reach the driver's pod, and its exit code is that of the run."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.kubernetes import Kubernetes, Mode, sparktrain_submit
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

TRAIN = Path(__file__).with_name("submitted.py")
HELD = Path(__file__).with_name("held_trial.py")
END_S = 200.0
ONE = {"spark.executor.instances": "1"}


def words_for(folder: Path, function: str) -> list[str]:
    """The arguments of a sweep with its run in that folder, which is made for the user of the pods."""
    folder.mkdir()
    folder.chmod(0o777)
    place = ["--dir", str(folder / "runs"), "--name", "submitted"]
    return ["sweep", f"{TRAIN}:{function}", "--grid", "x=1,2", "--metric", "y", "--mode", "max", *place]


def uploads(kubernetes: Kubernetes) -> dict[str, str]:
    """Settings by which files of this machine reach a driver's pod."""
    return ONE | {"spark.kubernetes.file.upload.path": f"file://{kubernetes.shared}"}


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_sweep_is_submitted_and_followed_to_its_end(mode: Mode, kubernetes: Kubernetes) -> None:
    words = words_for(kubernetes.shared / f"submitted-{mode}", "double")
    with sparktrain_submit(kubernetes, *words, mode=mode, conf=uploads(kubernetes)) as submitted:
        assert submitted.wait(END_S) == 0, submitted.output
        printed = submitted.log.read_text()
    assert "submitted: succeeded. 2 trials" in printed
    assert "best" in printed
    if mode == "cluster":
        assert "-driver is Running on node-" in printed
        assert "-driver is Succeeded on node-" in printed


def test_a_call_that_the_driver_refuses_in_its_pod_has_its_code(kubernetes: Kubernetes) -> None:
    words = words_for(kubernetes.shared / "no-such-function", "no_such")
    with sparktrain_submit(kubernetes, *words, conf=uploads(kubernetes)) as submitted:
        assert submitted.wait(END_S) == 2, submitted.output
        printed = submitted.log.read_text()
        assert "no_such" in submitted.output.removeprefix(printed), "in the log of the pod"
    assert "-driver exited with 2 before it ended a run" in printed
    assert "`kubectl logs " in printed


def test_a_command_that_is_interrupted_leaves_its_driver_and_one_that_is_deleted_can_resume(
    kubernetes: Kubernetes,
) -> None:
    folder = kubernetes.shared / "interrupted"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "hold-1").touch()
    place = ["--dir", str(folder / "runs"), "--name", "held"]
    sweep = ["--grid", "x=0,1", "--grid", f"folder={folder}", "--metric", "y", "--mode", "max"]
    words = ["sweep", f"{HELD}:held", *sweep, *place]
    with sparktrain_submit(kubernetes, *words, conf=uploads(kubernetes)) as submitted:
        wait_until(lambda: "1 of 2 trials done" in submitted.log.read_text(), END_S, "a trial has ended")
        os.kill(submitted.pid, signal.SIGINT)
        assert submitted.wait(END_S) == 130, submitted.output
        [delete] = re.findall(r"continues without this command: kubectl (delete pod .+) ends it", submitted.output)
        [driver] = [pod for pod in submitted.pods if pod["metadata"]["labels"]["spark-role"] == "driver"]
        assert driver["status"]["phase"] == "Running"
        kubernetes.kubectl(*delete.split())
    with sparktrain_submit(kubernetes, *words, conf=uploads(kubernetes)) as submitted:
        wait_until(lambda: len(list(folder.glob("start-1-*"))) == 2, END_S, "the next driver has resumed the run")
        [driver] = [pod for pod in submitted.pods if pod["metadata"]["labels"]["spark-role"] == "driver"]
        kubernetes.delete_pod(driver["metadata"]["name"])
        assert submitted.wait(END_S) == 5, submitted.output
        assert "the same call resumes" in submitted.output
    (folder / "hold-1").unlink()
    assert len(list(folder.glob("start-0-*"))) == 1, "what has ended is not repeated"
