"""Why agents were lost: Spark's messages are explained and reach the run, and agents that came back need none."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import AgentId, SparkTask
from sparktrain.cluster.executor_loss import (
    FORGET_S,
    UnexplainedLosses,
    explain_failure,
    lost_executor,
    silent_node,
    with_pod,
)
from sparktrain.driver import coordinator
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import TICK_S, Coordinator
from sparktrain.driver.run_request import RunOutcome
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Link
from sparktrain.state.outcome import Loss, Outcome
from tests.support.run_stages import in_store, requested
from tests.unit.driver.drivers import QuickClock, World, prepared

CONTAINER = "container_1795280325843_0001_01_000002 on host: node-3"
LOST = "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason:"
PODS = json.loads((Path(__file__).parent / "kubernetes_answers" / "losses.json").read_text())
POD = """ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason:\x20
The executor with id 2 exited with exit code {code}.
{brief}
{message}
The API gave the following container statuses:


\t container name: spark-kubernetes-executor
\t container image: localhost/sparktrain:1
\t container state: terminated
\t container started at: 2026-11-30T05:46:29Z
\t container finished at: 2026-11-30T05:48:40Z
\t exit code: {number}
\t termination reason: {reason}
      """
DELETED = (
    "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: The executor with id 1 was deleted "
)
DELETED += "by a user or the framework."


LOW_BEFORE = "The node was low on resource: memory. Container main was using 90Mi, which exceeds its request of 0. "
"""What kubelets before 1.26 wrote."""
SHUT = "Pod was terminated in response to imminent node shutdown."
SHUT_DOWN: dict[str, Any] = {
    "status": {
        "phase": "Failed",
        "reason": "Terminated",
        "message": SHUT,
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": SHUT}
        ],
    }
}
"""What a kubelet with shutdownGracePeriod writes, which needs systemd: not recorded."""


def exited(code: str, number: int, reason: str, status: Mapping[str, str] | None = None) -> str:
    """Spark's message of a pod that has failed, with its status."""
    brief = f"The API gave the following brief reason: {status['reason']}" if status else ""
    message = f"The API gave the following message: {status['message']}" if status else ""
    return POD.format(code=code, number=number, reason=reason, brief=brief, message=message)


def failed(pod: Mapping[str, Any]) -> str:
    """The same of one that was recorded, with the reason for which Kubernetes has ended it."""
    return with_pod(exited("137(SIGKILL, possible container OOM)", 137, "Error", pod["status"]), pod)


BAD = f"{LOST} Container from a bad node: {CONTAINER}."
MESSAGES = [
    (
        f"ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: Container {CONTAINER} was "
        "preempted.",
        Loss.PREEMPTED,
        "YARN preempted its container, .*; to keep containers, set spark.yarn.queue to .* not preempted",
    ),
    (
        f"{LOST} Container killed by YARN for "
        "exceeding physical memory limits. 1.6 GB of 896 MB physical memory used. Consider boosting "
        "spark.executor.memoryOverhead.",
        Loss.MEMORY,
        "which used 1.6 GB of the 896 MB of physical memory that it may; raise spark.executor.memoryOverhead, .*",
    ),
    (
        f"{LOST} Container killed by YARN for "
        "exceeding virtual memory limits. 4.1 GB of 2.1 GB virtual memory used. Consider boosting ...",
        Loss.MEMORY,
        "which used 4.1 GB of the 2.1 GB of virtual memory that it may; .*",
    ),
    (
        f"{BAD} Exit status: -100. Diagnostics: Container released on a *lost* node.",
        Loss.NODE,
        "YARN lost the node of its container; .* with min_workers continues smaller",
    ),
    (
        f"{BAD} Exit status: 137. Possible causes: Unknown executor exit code (137) (died from signal "
        "9?) Diagnostics: [2026-11-21 10:00:00]Container killed on request. Exit code is 137\n",
        Loss.KILLED,
        "by SIGKILL .exit status 137., and YARN does not report by whom; .*memoryOverhead.*",
    ),
    (
        f"{BAD} Exit status: 143. Possible causes: ... (died from signal 15?)",
        Loss.KILLED,
        "by SIGTERM .exit status 143., .*",
    ),
    (
        f"{LOST} Executor Process Lost",
        Loss.MASTER,
        "no application master reported why.*spark.yarn.maxAppAttempts is 2 or more",
    ),
    (
        f"{LOST} Attempted to get executor "
        "loss reason for executor id 1 at RPC address 127.0.0.1:1, but got no response. Marking as agent lost.",
        Loss.MASTER,
        "all executors with it; .*",
    ),
    (
        "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: Executor decommission: spark "
        "scale down",
        Loss.DECOMMISSIONED,
        "taken out of service; .*",
    ),
    (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat org.apache...",
        Loss.OTHER,
        "its Python process crashed or was killed; .*memoryOverhead.*",
    ),
    (
        f"{LOST} Executor heartbeat timed out after 125331 ms",
        Loss.NODE,
        "spark.network.timeout., so its node is most likely down; .*",
    ),
    (
        f"{LOST} Killing executor JVM because killed task 3 could not be stopped within 5000 ms.",
        Loss.OTHER,
        "or raise spark.task.reaper.killTimeout",
    ),
    (
        "org.apache.spark.SparkException: Python worker process terminated due to idle timeout (timeout: 4 seconds)",
        Loss.OTHER,
        "set spark.python.worker.killOnIdleTimeout=false",
    ),
    (
        f"{LOST} Worker lost\nand more",
        Loss.OTHER,
        "Spark reports: Worker lost",
    ),
    (
        f"{LOST} \nThe executor with id 1 is gone.\n\n",
        Loss.OTHER,
        "Spark reports: The executor with id 1 is gone.",
    ),
    (DELETED, Loss.KILLED, "its pod was deleted by a request, as `kubectl delete` makes: .*"),
    (with_pod(DELETED, None), Loss.KILLED, "its pod was deleted by a request, .*"),
    (with_pod(DELETED, PODS["deleted"]), Loss.KILLED, "its pod was deleted by a request, .*"),
    (
        with_pod(DELETED, PODS["drained"]),
        Loss.DECOMMISSIONED,
        "its pod was evicted on request, as `kubectl drain` does, .*; a gang waits .*",
    ),
    (
        with_pod(DELETED, PODS["preempted"]),
        Loss.PREEMPTED,
        "a pod of higher priority preempted its pod; to keep pods, set priorityClassName in "
        "spark.kubernetes.executor.podTemplateFile .*",
    ),
    (
        with_pod(f"{LOST} Executor heartbeat timed out after 125331 ms", PODS["node"]),
        Loss.NODE,
        "the node of its pod was lost, or has a taint that the pod does not tolerate .Taint manager: deleting due to "
        "NoExecute taint.; .*",
    ),
    (
        failed(PODS["storage"]),
        Loss.STORAGE,
        "its pod used more local storage than it may .Pod ephemeral local storage usage exceeds the total limit of "
        "containers 10Mi.; raise the limit in .*",
    ),
    (
        failed(PODS["volume"]),
        Loss.STORAGE,
        'its pod used more local storage than it may .Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".; .*',
    ),
    (
        failed(PODS["pressure"]),
        Loss.NODE,
        r"its node had too little memory or disk, and evicted its pod .Pod was rejected: The node had condition: "
        r"\[MemoryPressure\].; .*",
    ),
    (
        failed(PODS["memory"]),
        Loss.NODE,
        r"its node had too little memory or disk, and evicted its pod .The node was low on resource: memory\. .*",
    ),
    (
        with_pod(DELETED, PODS["memory"]),
        Loss.NODE,
        r"its node had too little memory or disk, and evicted its pod .The node was low on resource: memory\. .*",
    ),
    (
        failed({"status": {"reason": "Evicted", "message": LOW_BEFORE}}),
        Loss.NODE,
        "its node had too little memory or disk, .*which exceeds its request of 0.; .*",
    ),
    (failed(SHUT_DOWN), Loss.DECOMMISSIONED, "its node was shut down; .*"),
    (with_pod(DELETED, SHUT_DOWN), Loss.DECOMMISSIONED, "its node was shut down; .*"),
    (
        silent_node("node-b"),
        Loss.NODE,
        "its node node-b does not answer Kubernetes any more, so sparktrain has deleted its pod, .*",
    ),
    (
        f"{DELETED} Kubernetes has ended the pod: WorkloadEvicted: another queue needs it",
        Loss.KILLED,
        "Kubernetes has ended its pod .WorkloadEvicted: another queue needs it.; .*",
    ),
    (
        with_pod(f"{LOST} Executor Process Lost", None),
        Loss.OTHER,
        "Spark lost its executor, and neither Spark nor Kubernetes reports why: `kubectl describe node` may",
    ),
    (
        exited("137(SIGKILL, possible container OOM)", 137, "OOMKilled"),
        Loss.MEMORY,
        "its pod used more memory than it may .OOMKilled.; raise spark.executor.memoryOverhead, .*",
    ),
    (
        exited("137(SIGKILL, possible container OOM)", 137, "Error"),
        Loss.KILLED,
        "by SIGKILL .exit code 137., and Kubernetes does not report by whom.*",
    ),
    (
        exited("143(unexpected)", 143, "OOMKilled"),
        Loss.KILLED,
        "by SIGTERM .exit code 143., and Kubernetes does not report by whom.*",
    ),
    (
        exited("3(unexpected)", 3, "Error"),
        Loss.OTHER,
        "ended by itself, with exit code 3: .*",
    ),
    ("", Loss.OTHER, "Spark reports: nothing"),
]


@pytest.mark.parametrize(("message", "loss", "expected"), MESSAGES)
def test_a_message_of_spark_is_explained(message: str, loss: Loss, expected: str) -> None:
    found, line = explain_failure(message)
    assert found is loss
    assert re.search(f"{expected}$", line), line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("message", "loss", "expected"), [row for row in MESSAGES if "executor with id" in row[0] or "Kubernetes" in row[0]]
)
def test_the_loss_of_a_pod_has_no_words_of_yarn(message: str, loss: Loss, expected: str) -> None:
    assert not re.search("YARN|spark.yarn|application master", explain_failure(message)[1])


def test_every_loss_has_a_message() -> None:
    assert {loss for _, loss, _ in MESSAGES} == set(Loss) - {Loss.ANNOUNCED}, "which agents announce themselves"


def test_a_message_names_its_executor() -> None:
    assert lost_executor(DELETED) == 1
    assert lost_executor(exited("3(unexpected)", 3, "Error")) == 2
    assert lost_executor("Python worker exited unexpectedly (crashed)") is None


@pytest.mark.parametrize("loss", list(Loss))
def test_what_the_training_has_caused_itself_is_not_excused(loss: Loss) -> None:
    assert loss.excused is (loss not in (Loss.MEMORY, Loss.STORAGE, Loss.OTHER))
    assert loss.own is (loss in (Loss.MEMORY, Loss.STORAGE))


def agents(*names: str) -> list[AgentId]:
    return [AgentId(name) for name in names]


def test_a_lost_agent_is_looked_up_until_spark_explains_it_and_returned_once() -> None:
    unexplained, [a, b] = UnexplainedLosses(), agents("a", "b")
    unexplained.joined(a, SparkTask(3, 10))
    unexplained.joined(b, SparkTask(3, 11))
    assert unexplained.lost_tasks(0.0) == set()
    unexplained.lost(a, 0.0)
    assert unexplained.lost_tasks(1.0) == {SparkTask(3, 10)}
    assert unexplained.settle({11: "of another"}) == []
    assert unexplained.settle({10: "why", 11: "of another"}) == [(a, "why")]
    assert unexplained.settle({10: "why"}) == []
    assert unexplained.lost_tasks(1.0) == set()


def test_nothing_follows_for_agents_that_left_came_back_or_are_in_no_task_of_spark() -> None:
    unexplained, [left, back, again, alone] = UnexplainedLosses(), agents("left", "back", "again", "alone")
    unexplained.joined(left, SparkTask(1, 1))
    unexplained.departed(left)
    unexplained.lost(left, 0.0)
    unexplained.joined(alone, None)
    unexplained.lost(alone, 0.0)
    unexplained.joined(back, SparkTask(1, 2))
    unexplained.lost(back, 0.0)
    unexplained.joined(again, SparkTask(1, 2))
    assert unexplained.lost_tasks(0.0) == set()
    unexplained.lost(again, 1.0)
    assert unexplained.settle({1: "x", 2: "why"}) == [(again, "why")]


def test_a_loss_is_not_looked_up_for_ever() -> None:
    unexplained, [a] = UnexplainedLosses(), agents("a")
    unexplained.joined(a, SparkTask(1, 1))
    unexplained.lost(a, 5.0)
    assert unexplained.lost_tasks(5.0 + FORGET_S - 1.0) == {SparkTask(1, 1)}
    assert unexplained.lost_tasks(5.0 + FORGET_S) == set()
    assert unexplained.settle({1: "too late"}) == []


async def started(link: Link, name: str, task: SparkTask) -> m.StartMember:
    """An agent joins, and receives the command to start a member."""
    link.post(m.Join(agent=AgentId(name), slot=0, host="host-b", pid=0, versions={}, task=task))
    await link.receive()
    link.post(m.Ready())
    while not isinstance(message := await link.receive(), m.StartMember):
        if isinstance(message, m.Prepare):
            link.post(m.Ready(message.run))
    return message


async def preempted_once() -> RunOutcome:
    """A run without retries; the container of its first agent is preempted."""
    transport, store = MemoryTransport(), World().store
    messages = {5: MESSAGES[0][0]}
    server = Server(transport.listener, QuickClock(), {}, ())
    made = Coordinator(server, QuickClock(), loss_reasons=lambda tasks: messages if SparkTask(2, 5) in tasks else {})
    sweep = in_store(prepared(1), store)
    work = requested(sweep.with_spec(replace(sweep.definition.spec, max_retries=0)))
    await made.open()
    running = asyncio.create_task(made.run(work))
    first, second = transport.dialer("first"), transport.dialer("second")
    await started(await first.attend(1.0), "first", SparkTask(2, 5))
    first.vanish()
    link = await second.attend(1.0)
    start = await started(link, "second", SparkTask(2, 6))
    link.post(m.MemberEnded(start.member, Outcome(0.1, metrics={"y": 0.0})))
    link.post(m.MemberStored(start.member))
    ran = await running
    second.vanish()
    await made.close("the test is over")
    return ran


def test_a_preempted_container_costs_no_retry_and_the_result_names_the_loss() -> None:
    with patch.object(coordinator, "WORDS_S", TICK_S):
        ran = asyncio.run(asyncio.wait_for(preempted_once(), 30.0))
    [trial] = ran.trials
    assert (trial.status, trial.metrics) == ("succeeded", {"y": 0.0})
    [restart] = trial.restarts
    assert restart.loss is Loss.PREEMPTED
    assert restart.cause.startswith("agent on host-b was lost: YARN preempted its container")
