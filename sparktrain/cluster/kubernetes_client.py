"""What Spark's client for Kubernetes knows of executors' pods: why they do not start, their nodes, and why they end."""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.ids import SparkTask
from sparktrain.cluster.executor_loss import lost_executor, silent_node, with_pod
from sparktrain.cluster.kubernetes_api import NAMESPACE_KEY, as_json
from sparktrain.cluster.kubernetes_log import log_rarely, logged
from sparktrain.cluster.kubernetes_pods import KUEUE, admission, held_groups, nodes, on_silent_nodes, waiting
from sparktrain.cluster.kubernetes_refusals import PodRefusal, refusal
from sparktrain.errors import ResourceError

ATTEMPT_S = 2.0
"""How long to wait for Spark's next attempt to create a pod: by default it makes one each second."""
LASTING_S = 10.0
"""A refusal that another attempt does not change ends a call after this time: an application and the role of its
account may be created at the same moment."""
_POLL_S = 0.1
_VERSIONS = ("v1beta2", "v1beta1")
"""Of Kueue's API: old and new releases of Kueue serve one of them, and most serve both."""
RETRY_S = 30.0
"""After an answer that failed, the time until the next request for the nodes of pods: agents wait for it."""
SILENT_S = 5.0
"""Interval at which the API server is asked for silent nodes, while lost agents have no reason."""

Places = Callable[[Iterable[int]], dict[int, tuple[str, str]]]
"""Executor and host of the tasks of stages that Spark counts among those that run, by task id."""

logger = logging.getLogger("sparktrain")


def executor_pods(context: Any) -> list[dict[str, Any]]:
    """The executors' pods of a Spark context, as the API server has them.

    Asks by the client of Spark's own scheduler, with its credentials and its timeout
    (`spark.kubernetes.driver.requestTimeout`, 10 s), so that it needs no right that Spark does not need. Blocks, in any
    thread; raises what Py4J raises.
    """
    pods = _pods(context)
    labelled = pods.withLabel("spark-app-selector", context.applicationId).withLabel("spark-role", "executor")
    return list(as_json(context._jvm, labelled.list()).get("items", ()))  # left out where it is empty


def _pods(context: Any) -> Any:
    return _part_of_backend(context, "kubernetesClient").pods().inNamespace(_namespace(context))


def _namespace(context: Any) -> str:
    """Of the session's pods."""
    return str(context.getConf().get(NAMESPACE_KEY, "default"))


def last_state(context: Any, executor: int) -> dict[str, Any] | None:
    """The pod of an executor as Spark has last seen it, which may have been deleted; None where Spark has forgotten it.

    Spark remembers a deleted pod until it lists all pods next (`spark.kubernetes.executor.apiPollingInterval`, 30 s);
    the API server forgets it at once. Blocks for a moment, in any thread; raises what Py4J raises.
    """
    state = _part_of_backend(context, "podAllocator").lastSnapshot().executorPods().get(executor)
    return as_json(context._jvm, state.get().pod()) if state.isDefined() else None


def admissions(context: Any, groups: Iterable[str]) -> dict[str, str]:
    """What Kueue reports of groups of pods, by their names; without those that the driver's account may not read.

    Blocks, in any thread.
    """
    client = _part_of_backend(context, "kubernetesClient")
    workloads = f"namespaces/{_namespace(context)}/workloads"
    reports = {}
    for group in groups:
        try:
            paths = (f"/apis/{KUEUE}/{version}/{workloads}/{group}" for version in _VERSIONS)
            answer = next(filter(None, map(client.raw, paths)), "{}")  # none where it does not exist
        except Exception as error:  # Py4J's, for any exception of Java
            logger.debug("what Kueue reports of %s is not known: %s: %s", group, type(error).__name__, error)
        else:
            reports[group] = admission(json.loads(answer))
    return reports


def _part_of_backend(context: Any, name: str) -> Any:
    """A private part of Spark's scheduler for Kubernetes.

    Spark has no public way to it; a client of our own would repeat how Spark finds its credentials in each mode.
    """
    backend = context._jsc.sc().schedulerBackend()
    field = backend.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(backend)


class LostPods:
    """Adds to Spark's message of a lost executor why Kubernetes has ended its pod. Any thread may call it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        # Messages come again while another loss is unexplained, and Spark soon forgets the pod.
        self._messages: dict[str, str] = {}

    def __call__(self, message: str) -> str:
        """The message of a failed task, and what became of the pod. Blocks for a moment; never raises."""
        if message not in self._messages:
            self._messages[message] = self._with_pod(message)
        return self._messages[message]

    def _with_pod(self, message: str) -> str:
        executor = lost_executor(message)
        if executor is None:
            return message
        try:
            return with_pod(message, last_state(self._context, executor))
        except Exception as error:  # as in `PodOutlook`
            logger.info("why Kubernetes has ended a pod is not known: %s: %s", type(error).__name__, error)
            return with_pod(message, None)


class SilentNodes:
    """Deletes the pods of lost agents on nodes that do not answer Kubernetes. One thread at a time may call it.

    Spark waits for `spark.network.timeout` (120 s) until it gives such an executor up. But it counts its pod, which
    nothing ends, among those that run, and starts no other one for as long as the API server has it. What still runs
    on the node ends by itself with the lease of its agent.
    """

    def __init__(self, context: Any, places: Places, clock: Clock | None = None) -> None:
        self._context = context
        self._places = places
        self._clock = clock or SystemClock()
        self._next_at = 0.0

    def __call__(self, tasks: Collection[SparkTask]) -> dict[int, str]:
        """The messages for lost tasks in pods that this call deletes, by task id.

        Blocks for a moment, and asks at most once in `SILENT_S`; never raises.
        """
        messages: dict[int, str] = {}
        if not tasks or self._clock.now() < self._next_at:
            return messages
        self._next_at = self._clock.now() + SILENT_S
        try:
            places = self._places({task.stage for task in tasks})
            pods = on_silent_nodes(executor_pods(self._context))
            for task in tasks:
                executor, _ = places.get(task.id, ("", ""))
                if (pod := pods.get(executor)) is not None:
                    # Another task of the same pod may have deleted it: then there is nothing to delete.
                    _pods(self._context).withName(pod["metadata"]["name"]).withGracePeriod(0).delete()
                    messages[task.id] = silent_node(pod["spec"]["nodeName"])
        except Exception as error:  # as in `PodOutlook`
            logger.info("which nodes are silent is not known: %s: %s", type(error).__name__, error)
        return messages


class PodOutlook:
    """Explains what the executors of a Spark context wait for. One thread at a time may call it."""

    def __init__(self, context: Any, clock: Clock | None = None) -> None:
        self._context = context
        self._clock = clock or SystemClock()
        self._refusal: PodRefusal | None = None
        self._since = 0.0
        """When the refusal was first seen."""

    def __call__(self) -> str:
        """Blocks for some seconds. Raises ResourceError where Kubernetes refuses all pods and will not cease to."""
        try:
            refused = self._refused()
            pods = executor_pods(self._context)
            waits = waiting(pods, admissions(self._context, held_groups(pods)))
        except Exception as error:  # a hint must not end a run: a stopped session, another version of Spark
            logger.info("what Kubernetes reports of pods is not known: %s: %s", type(error).__name__, error)
            return ""
        now = self._clock.now()
        if refused != self._refusal:
            self._refusal, self._since = refused, now
        text = "" if refused is None else f"Kubernetes refuses executor pods: {refused.text}"
        if refused is not None and refused.final and now >= self._since + LASTING_S:
            raise ResourceError(text)
        return "; ".join(filter(None, (text, waits)))

    def _refused(self) -> PodRefusal | None:
        """Why Spark's next attempt to create a pod fails; None where it succeeds, or there is none."""
        with logged(self._context) as read:
            until = self._clock.now() + ATTEMPT_S
            while (refused := refusal(read())) is None and self._clock.now() < until:
                self._clock.pause(_POLL_S)
        if refused is not None:
            log_rarely(self._context)
        return refused


class PodNodes:
    """The nodes of the pods of a Spark context's executors. Any thread may call it; blocks, never raises."""

    def __init__(self, context: Any, clock: Clock | None = None) -> None:
        self._context = context
        self._clock = clock or SystemClock()
        self._nodes: dict[str, str] = {}
        self._retry_at = 0.0
        self._lock = threading.Lock()

    def __call__(self, host: str) -> str:
        """The node of the pod with this host name; the name itself where no answer has it, as for a node."""
        with self._lock:  # one request is for all agents that join together
            is_answered = host in self._nodes or host in self._nodes.values()
            if not is_answered and self._clock.now() >= self._retry_at:
                try:
                    self._nodes |= nodes(executor_pods(self._context))
                except Exception as error:  # as above
                    self._retry_at = self._clock.now() + RETRY_S
                    logger.info("the node of pod %s is not known: %s: %s", host, type(error).__name__, error)
            return self._nodes.get(host, host)
