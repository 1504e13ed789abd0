"""A client of Kubernetes' API server: why executors' pods do not start, and on which nodes they are."""

import json
import logging
import threading
from typing import Any

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.cluster.kubernetes_pods import nodes, waiting

RETRY_S = 30.0
"""After an answer that failed, the time until the next request for the nodes of pods: agents wait for it."""

logger = logging.getLogger("sparktrain")


def executor_pods(context: Any) -> list[dict[str, Any]]:
    """The executors' pods of a Spark context, as the API server has them.

    Asks by the client of Spark's own scheduler, with its credentials and its timeout
    (`spark.kubernetes.driver.requestTimeout`, 10 s), so that it needs no right that Spark does not need. Blocks, in any
    thread; raises what Py4J raises.
    """
    backend = context._jsc.sc().schedulerBackend()
    # Spark has no public way to its client; one of our own would repeat how Spark finds its credentials in each mode.
    field = backend.getClass().getDeclaredField("kubernetesClient")
    field.setAccessible(True)
    namespace = context.getConf().get("spark.kubernetes.namespace", "default")
    pods = field.get(backend).pods().inNamespace(namespace)
    labelled = pods.withLabel("spark-app-selector", context.applicationId).withLabel("spark-role", "executor")
    serialization = context._jvm.io.fabric8.kubernetes.client.utils.Serialization
    return list(json.loads(serialization.asJson(labelled.list()))["items"])


class PodOutlook:
    """Explains what the executors of a Spark context wait for. Any thread may call it; blocks, never raises."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __call__(self) -> str:
        try:
            return waiting(executor_pods(self._context))
        except Exception as error:  # a hint must not end a run: a stopped session, another version of Spark
            logger.info("what Kubernetes reports of pods is not known: %s: %s", type(error).__name__, error)
            return ""


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
