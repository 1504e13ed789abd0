"""A client of Kubernetes' API server: why executors' pods do not start."""

import json
import logging
from typing import Any

from sparktrain.cluster.kubernetes_pods import waiting

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
