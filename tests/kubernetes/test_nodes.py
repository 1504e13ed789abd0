"""A node is lost: what trains there continues on others, Spark gets new pods in time, and the call reports why."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.test_moves import CONF, MOVE_S, NODES, PROGRAM, START_S, check_steps, last, steps
from tests.support.kubernetes import Knobs, Kubernetes, NodeSpec, kubernetes, missing, submission
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

GRACE_S = 15.0
REPLACED_S = 100.0
"""Until new pods have agents: Spark itself gives up executors on a silent node after 120 s at the earliest."""


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """Two nodes, which Kubernetes soon gives up when they are silent."""
    if reason := missing():
        pytest.skip(reason)
    nodes = [NodeSpec(name=name, kubelet={"nodeLeaseDurationSeconds": 8}) for name in NODES]
    with kubernetes(tmp_path_factory.mktemp("frail") / "cluster", nodes, Knobs(node_grace_s=GRACE_S)) as cluster:
        yield cluster


def test_a_ring_leaves_a_lost_node_and_new_pods_follow(frail: Kubernetes, record_property: Any) -> None:
    folder = frail.shared / "moves"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(frail, PROGRAM, str(folder), "3", conf=CONF) as submitted:
        notes = [folder / f"steps-{rank}.jsonl" for rank in (0, 1)]
        wait_until(lambda: submitted.exit_code or all(path.exists() for path in notes), START_S, "both members train")
        assert submitted.exit_code is None, submitted.output
        wait_until(lambda: sorted(last(folder, "node")) == sorted(NODES), MOVE_S, "the members have spread")
        wait_until(lambda: submitted.output.count(" has joined from ") == 4, START_S, "four agents have joined")
        trained = max(last(folder, "step"))
        wait_until(lambda: min(last(folder, "step")) > trained + 20, MOVE_S, "the ring trains there")
        lost, other = last(folder, "node")[1], last(folder, "node")[0]
        cut_at = time.time()
        with frail.node(lost).cut_off():
            wait_until(lambda: last(folder, "node") == [other, other], MOVE_S, "the ring is on the other node")
            first_step = min(step["at"] for step in steps(folder, 1) if step["entered"] > cut_at)
            record_property("seconds until the ring trains again", round(first_step - cut_at, 1))
            assert "no other member reaches its host" in submitted.output, "before the lease of its agent has ended"
            wait_until(lambda: submitted.output.count(" has joined from ") == 6, REPLACED_S, "new pods have agents")
            record_property("seconds until new pods have agents", round(time.time() - cut_at, 1))
            assert submitted.output.count(f" on host {other}") == 4
        (folder / "go").touch()
        assert submitted.wait(START_S) == 0, submitted.output
    restarts = json.loads((folder / "results.json").read_text())
    [restart] = [restart for restart in restarts if not restart["cause"].startswith("spread")]
    assert (restart["rank"], restart["loss"], restart["healed"], restart["steps_lost"]) == (1, "node", True, 0)
    assert f"its node {lost} does not answer Kubernetes any more" in restart["cause"]
    check_steps(folder, 0)  # the lost process may have noted a step that the other one had not completed
