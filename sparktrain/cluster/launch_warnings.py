"""What the configuration of a session means for a run, decided from its facts alone."""

import logging

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.cluster import driver_address, preflight, spark_facts, spark_settings, yarn_capacity
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned
from sparktrain.cluster.spark_facts import DECOMMISSION_KEY, Facts
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.errors import ResourceError

logger = logging.getLogger("sparktrain")

PYTHON_MIB = 1024
"""Memory that the processes of one slot use with TensorFlow and Keras imported, before there is a model."""
LEAST_JAVA = 17
"""The oldest Java that Spark 4 supports."""


class Driver(Struct, frozen=True, kw_only=True):
    """The process in which the doctor runs, and its Spark."""

    host: str
    python: str
    """The full version."""
    versions: dict[str, str]
    """As of `SlotReport.versions`."""
    pyspark: str
    """The version of PySpark here; empty where it is not installed."""
    java: str
    """Version of the driver's Java; empty where it is unknown, as with Spark Connect."""
    spark: str | None = None
    """Version of the session's Spark; None without a session."""


def launch_findings(facts: Facts) -> list[Finding]:
    """What each launch checks beside the preflight, from the configuration alone, in no time."""
    return [*_memory(facts), *_driver_name(facts), *_notice(facts), *spark_settings.harms(facts.conf)]


def check_settings(facts: Facts) -> None:
    """Raises ResourceError for a setting of the session under which no agent can work."""
    for finding in spark_settings.harms(facts.conf):
        if finding.level is Level.FAIL:
            raise ResourceError(f"{finding.message}; {finding.fix}")


def warn(facts: Facts) -> None:
    """Log the findings of `launch_findings` that cost something."""
    for finding in launch_findings(facts):
        if finding.level is Level.WARN:
            logger.warning("%s: %s; %s", finding.check, finding.message, finding.fix)


def session_findings(facts: Facts, gpus: int) -> list[Finding]:
    """Memory, GPUs, and what Spark does by itself, for trials that each need this many GPUs."""
    return [*_gpus(facts, gpus), *launch_findings(facts)]


def slots_finding(facts: Facts, agents: int | None) -> tuple[Finding, int]:
    """The finding for a run with this many agents, by default one for each slot; and that number, 0 where none fits.

    Raises SpecError when `agents` is not a valid number.
    """
    try:
        count = preflight.agents_for(facts, agents, None)
    except ResourceError as error:
        return of_message("slots", Level.FAIL, str(error)), 0
    slot_count = spark_facts.slots(facts)
    if slot_count is not None:
        return passed("slots", f"{formatting.count(slot_count, 'slot')} on {facts.master}; a run takes {count}"), count
    return (
        warned(
            "slots",
            f"the configuration does not determine how many slots {facts.master or 'the session'} has; a run starts "
            f"{formatting.count(count, 'agent')}",
            "pass max_concurrent_trials= (sweep) or agents= (run, pool), or set spark.executor.instances and "
            "spark.executor.cores",
        ),
        count,
    )


def security_findings(facts: Facts) -> list[Finding]:
    """Who can read or change what the driver and its executors send each other."""
    findings = [passed("security", "agents and the coordinator use mutual TLS, with certificates for one call")]
    if facts.master.startswith("local"):
        return [*findings, passed("security", f"Spark stays on this machine ({facts.master})")]
    if facts.conf.get("spark.authenticate") != "true":
        problem = "Spark does not authenticate its processes: clients that reach their ports can run code as you"
        return [
            *findings,
            warned("security", problem, "set spark.authenticate=true and spark.network.crypto.enabled=true"),
        ]
    if "true" not in (facts.conf.get("spark.network.crypto.enabled"), facts.conf.get("spark.ssl.rpc.enabled")):
        problem = "Spark sends tasks unencrypted, and with them the key that authenticates agents"
        return [*findings, warned("security", problem, "set spark.network.crypto.enabled=true")]
    return [*findings, passed("security", "Spark authenticates its processes and encrypts what they send")]


def spark_findings(driver: Driver) -> list[Finding]:
    """Versions of Spark and Java on the driver."""
    java = f"Java {driver.java}" if driver.java else "a Java on another machine"
    findings = []
    if driver.java and _major(driver.java) < LEAST_JAVA:
        findings.append(
            failed(
                "java", f"Java is {driver.java}, and Spark 4 needs {LEAST_JAVA}", f"set JAVA_HOME to a JDK {LEAST_JAVA}"
            )
        )
    elif not driver.java and driver.spark is None and driver.pyspark:
        findings.append(
            failed(
                "java",
                "there is no Java: without it, only Spark Connect works",
                f"install a JDK {LEAST_JAVA}, or set JAVA_HOME to one",
            )
        )
    if driver.spark is not None and _minor(driver.spark) != _minor(driver.pyspark):
        findings.append(
            warned(
                "spark",
                f"PySpark is {driver.pyspark} here, and the session's Spark is {driver.spark}",
                "install the PySpark of the session's version",
            )
        )
    if not driver.pyspark:
        findings.append(
            warned(
                "spark",
                "PySpark is not installed here: only runs on this machine work, by spark=local() or --local",
                "pip install 'sparktrain[spark]', or set SPARK_HOME to the Spark of your cluster",
            )
        )
    if findings:
        return findings
    of_session = f"Spark {driver.spark}" if driver.spark else f"PySpark {driver.pyspark}"
    return [passed("spark", f"{of_session}, {java}")]


def packages_findings(driver: Driver) -> list[Finding]:
    """What is installed where the driver runs."""
    names = {"sparktrain": "sparktrain", "tensorflow": "TensorFlow", "keras": "Keras", "horovod": "Horovod"}
    versions = [f"{names[name]} {driver.versions[name]}" for name in names if name in driver.versions]
    findings = [passed("python", ", ".join([f"Python {driver.python}", *versions, f"on {driver.host}"]))]
    try:
        preflight.check_installed(GangSpec(workers=2, backend=Backend.HOROVOD), lambda name: name in driver.versions)
    except ResourceError as error:
        findings.append(of_message("horovod", Level.WARN, str(error)))
    return findings


def _gpus(facts: Facts, gpus: int) -> list[Finding]:
    try:
        preflight.check_gpus(facts, gpus)
    except ResourceError as error:
        return [of_message("gpus", Level.FAIL, str(error))]
    return [passed("gpus", f"each slot gets {float(facts.task_gpus):g}")] if facts.task_gpus else []


def _memory(facts: Facts) -> list[Finding]:
    """The memory of an executor on YARN, which ends a container that exceeds its memory; other masters count none."""
    if facts.master != spark_facts.YARN:
        return []
    slots = max(1, spark_facts.slots_of_executor(facts))
    heap = yarn_capacity.heap_mib(facts.conf)
    python = yarn_capacity.beside_heap_mib(facts.conf)
    memory = (
        f"an executor has {heap} MiB for its JVM, and {python} MiB for the Python of {formatting.count(slots, 'slot')}"
    )
    if python >= slots * PYTHON_MIB:
        return [passed("memory", memory)]
    return [
        warned(
            "memory",
            f"{memory}: with TensorFlow a slot uses about {PYTHON_MIB} MiB before there is a model, and YARN ends a "
            f"container that uses more than it has",
            f"set {yarn_capacity.OVERHEAD_KEY}={2 * slots * PYTHON_MIB}m or more, and lower "
            "spark.executor.memory for it",
        )
    ]


def _driver_name(facts: Facts) -> list[Finding]:
    """A driver in a pod that spark-submit has not made: Spark takes the name of the pod, which is in no DNS."""
    name = driver_address.bare_name(facts.conf) if facts.on_kubernetes else None
    if name is None:
        return []
    return [
        warned(
            "driver address",
            f"{driver_address.SPARK_HOST_KEY} is {name}: executors look for it by DNS, which has a name without a dot "
            "only for a service of their namespace, and they end at once where it has none",
            f"set {driver_address.SPARK_HOST_KEY} to the address of this pod or machine before the session starts, or "
            "start the session by sparktrain.session(), which does so",
        )
    ]


def _notice(facts: Facts) -> list[Finding]:
    """Whether pods that Kubernetes deletes have time to leave: else Spark's executor, and its pod, end at SIGTERM."""
    if not facts.on_kubernetes or spark_settings.is_on(facts.conf.get(DECOMMISSION_KEY, "")):
        return []
    problem = f"{DECOMMISSION_KEY} is not true: a pod that is deleted or evicted ends at once, with what trains there"
    return [warned("decommission", problem, "set it to true, so that members move within the pod's grace period")]


def _major(version: str) -> int:
    """The major version of Java: 17 for `17.0.15`, 8 for `1.8.0_402`."""
    parts = [part for part in version.replace("_", ".").split(".") if part.isdigit()]
    first, second = [*map(int, parts), 0, 0][:2]
    return second if first == 1 else first


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
