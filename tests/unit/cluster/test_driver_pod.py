"""What spark-submit prints of a driver's pod, recorded on a real cluster of two nodes, as its state."""

from pathlib import Path

from sparktrain.cluster.driver_pod import DriverPod, driver_pod

ANSWERS = Path(__file__).parent / "kubernetes_answers"
FAILS = (ANSWERS / "driver-fails.txt").read_text()
IMAGE = (ANSWERS / "driver-image.txt").read_text()
NAME = "fails-py-7ad57aa22b65a77f-driver"


def pod(printed: str) -> DriverPod:
    reported = driver_pod(printed)
    assert reported is not None
    return reported


def test_a_driver_is_followed_from_its_container_to_its_exit_code() -> None:
    lines = FAILS.splitlines(keepends=True)
    states = [driver_pod("".join(lines[:end])) for end in range(len(lines))]
    shown = list(dict.fromkeys(state.line for state in states if state is not None))
    assert shown == [f"{NAME} is Pending on node-b", f"{NAME} is Running on node-b", f"{NAME} is Failed on node-b"]
    last = pod(FAILS)
    assert (last.over, last.runs, last.succeeded, last.driver_exit) == (True, False, False, 3)
    assert last.diagnostics == "its container ended with exit code 3 (Error)"
    assert last.end_command == f"kubectl delete pod {NAME} --namespace training"


def test_a_driver_without_an_image_is_reported_with_the_next_step() -> None:
    waits = pod(IMAGE)
    assert waits.line == (
        f"{waits.id} is Pending on node-b: ErrImagePull; `kubectl describe pod {waits.id} --namespace training` "
        "prints why"
    )
    assert (waits.over, waits.runs, waits.driver_exit) == (False, False, None)


def test_a_driver_without_a_node_is_reported_with_the_next_step() -> None:
    waits = pod(IMAGE.replace("node name: node-b", "node name: N/A").replace("ErrImagePull", "N/A"))
    assert waits.line.startswith(f"{waits.id} is Pending; `kubectl describe pod ")


def test_an_exit_code_that_the_driver_has_not_chosen_is_a_reason() -> None:
    killed = pod(FAILS.replace("exit code: 3", "exit code: 137").replace("reason: Error", "reason: OOMKilled"))
    assert killed.driver_exit is None
    assert killed.diagnostics == "its container ended with exit code 137 (OOMKilled)"


def test_a_driver_that_spark_submit_lost_sight_of_has_not_ended() -> None:
    until_it_runs = FAILS.partition("Application status for")[0]
    assert "was deleted, or the API server does not answer" in pod(until_it_runs).diagnostics


def test_before_the_first_report_nothing_is_known() -> None:
    assert driver_pod("26/11/30 INFO SparkKubernetesClientFactory: Auto-configuring K8S client\n") is None
    assert driver_pod(FAILS.partition("\t pod name:")[0]) is None
