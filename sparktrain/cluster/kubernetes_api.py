"""Kubernetes' API server, asked by a client of Spark's own, also where no session could start."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sparktrain.base.formatting import first_line
from sparktrain.cluster.driver_address import SPARK_HOST_KEY
from sparktrain.cluster.kubernetes_pods import KUBERNETES

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

NAMESPACE_KEY = "spark.kubernetes.namespace"
_ACCOUNT_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
"""In each pod, the certificate by which it knows the API server."""


class ApiError(Exception):
    """The API server has refused a request (`status` is that of HTTP), or has not answered (0)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """An API server, asked with the credentials of Spark's driver. Any thread may use it."""

    def __init__(self, jvm: Any, conf: "SparkConf") -> None:
        self.namespace = conf.get(NAMESPACE_KEY) or "default"
        """Of the session's pods."""
        self.driver = conf.get(SPARK_HOST_KEY) or "the address of the driver"
        """Where executors look for Spark's driver."""
        in_pod = conf.get("spark.kubernetes.submitInDriver") == "true"
        master = conf.get("spark.kubernetes.driver.master") if in_pod else conf.get("spark.master")
        self.url = (master or "").removeprefix(KUBERNETES)
        self._jvm = jvm
        self._conf: Any = conf
        self._none = _object(jvm.scala, "None$")
        kubernetes = jvm.org.apache.spark.deploy.k8s
        self._client = kubernetes.SparkKubernetesClientFactory.createKubernetesClient(
            self.url,
            self._none,
            f"spark.kubernetes.authenticate{'.driver.mounted' if in_pod else ''}",
            _object(kubernetes, "SparkKubernetesClientFactory$ClientType$").Driver(),
            self._conf._jconf,
            jvm.scala.Some(jvm.java.io.File(_ACCOUNT_CA)) if in_pod else self._none,
        )

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is at `path`, or the answer to a POST of `body` there. Blocks. Raises ApiError."""
        try:
            answer = self._client.raw(path) if body is None else self._client.raw(path, "POST", json.dumps(body))
        except Exception as error:  # Py4J's, for any exception of Java
            raise _refusal(error) from None
        if answer is None:
            raise ApiError(f"{path} does not exist", 404)
        return dict(json.loads(answer))

    def executor_pod(self) -> dict[str, Any]:
        """A pod as Spark requests it for an executor, with another name. Raises ApiError where Spark cannot make it."""
        spark = self._jvm.org.apache.spark
        conf = self._conf._jconf
        try:
            profile = _object(spark.resource, "ResourceProfile$").getOrCreateDefaultProfile(conf)
            of_executor = _object(spark.deploy.k8s, "KubernetesConf$").createExecutorConf(
                conf, "1", "sparktrain-doctor", self._none, 0
            )
            secret_file = _object(spark.internal.config, "package$").AUTH_SECRET_FILE_EXECUTOR()
            security = spark.SecurityManager(conf, self._none, secret_file)
            builder = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
            parts = builder.buildFromFeatures(of_executor, security, self._client, profile).pod()
        except Exception as error:  # Py4J's, for any exception of Java
            raise _refusal(error) from None
        pod = as_json(self._jvm, parts.pod())
        pod["metadata"]["name"] = f"sparktrain-doctor-{uuid4().hex[:8]}"
        sidecars = pod["spec"].get("containers") or ()
        return {**pod, "spec": {**pod["spec"], "containers": [*sidecars, as_json(self._jvm, parts.container())]}}

    def close(self) -> None:
        """End the client's connections."""
        self._client.close()


@contextmanager
def spark_api(spark: "SparkSession | None") -> Iterator[Api | None]:
    """The API server of a session, or of the session that Spark's driver in this process could not start.

    None where executors are no pods, or this process has no JVM of Spark, as with Spark Connect. Makes no request.
    """
    try:
        from pyspark import SparkConf, SparkContext  # the doctor works without PySpark
    except ImportError:
        yield None
        return
    context = getattr(spark, "_sc", None)
    context_class: Any = SparkContext  # without types
    jvm = context_class._jvm
    if jvm is None or (spark is not None and context is None):
        yield None
        return
    try:
        conf = context.getConf() if context is not None else SparkConf()
        master = conf.get("spark.master") or ""
    except Exception:  # Py4J's: a JVM that could not start a session may have ended
        master = ""
    if not master.startswith(KUBERNETES):
        yield None
        return
    api = Api(jvm, conf)
    try:
        yield api
    finally:
        api.close()


def as_json(jvm: Any, part: Any) -> dict[str, Any]:
    """What the API server would write of an object of Java's client."""
    return dict(json.loads(jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson(part)))


def _object(package: Any, name: str) -> Any:
    """An object of Scala, by the name of its class."""
    return getattr(getattr(package, name), "MODULE$")


def _refusal(error: Exception) -> ApiError:
    """What an exception of Java reports: the API server's own words, where it has answered."""
    java: Any = getattr(error, "java_exception", None)
    if java is None or not hasattr(java, "getCode"):
        return ApiError(first_line(error) if java is None else str(java.getMessage()), 0)
    status = java.getStatus()
    return ApiError(str(java.getMessage() if status is None else status.getMessage()), int(java.getCode()))
