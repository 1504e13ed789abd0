"""Applications of Spark that run in pods, from a driver on this machine with the rights of the role alone."""

import json
from pathlib import Path

import pytest

from tests.support.kubernetes import Kubernetes, submission

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_trainings.py")
END_S = 240.0


def test_a_sweep_and_a_gang_train_in_pods_of_two_nodes(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "trainings"
    folder.mkdir()
    with submission(kubernetes, PROGRAM, str(folder)) as submitted:
        assert submitted.wait(END_S) == 0, submitted.output
        output = submitted.output
    assert "forbidden" not in output
    results = json.loads((folder / "results.json").read_text())
    assert results["sweep"] == [{"y": 2.0}, {"y": 4.0}, {"y": 6.0}]
    assert results["gang"]["weight"] == pytest.approx(3.0, abs=0.01)
    assert results["gang"]["bias"] == pytest.approx(1.0, abs=0.01)
    addresses = [(folder / rank).read_text() for rank in ("0", "1")]
    assert {address.rpartition(".")[0] for address in addresses} == {"198.18.2", "198.18.3"}
