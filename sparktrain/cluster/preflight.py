"""What the session has, against what a call wants: checked before anything starts."""

import importlib.util
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktrain import formatting
from sparktrain.cluster import yarn_capacity
from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.task_failures import Words, words_of
from sparktrain.config.gang_spec import Backend, GangSpec
from sparktrain.config.param_values import shown
from sparktrain.config.quantities import count
from sparktrain.errors import ResourceError, SessionError
from sparktrain.state.restart import EXCUSED_LIMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession
    """A session of the user's, classic or Connect: for code that must not depend on Spark itself."""

HOST_KEY = "spark.sparktrain.driver.host"
"""Address at which executors reach the driver, where Spark's own is not the one."""
PORT_KEY = "spark.sparktrain.driver.port"
"""Port on which the coordinator listens; 0 for any free one."""

FAILURES_KEY = "spark.task.maxFailures"
"""The agents of a job are given up when one of its tasks, with whatever executor, has failed so often."""
DEFAULT_FAILURES = 4
"""Spark's own."""

YARN = "yarn"
"""As Spark's master."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


class Facts(Struct, frozen=True):
    """What preflight needs to know of a Spark session."""

    master: str
    conf: dict[str, str]
    """The configuration keys that were asked for and are set."""
    cores: int
    """Cores of this machine, for `local[*]`."""
    executors: int | None = None
    """Executors that have registered, where the session tells."""

    @property
    def local(self) -> bool:
        """Executors are threads of the driver's JVM."""
        return _LOCAL.fullmatch(self.master) is not None

    def number(self, key: str, default: int) -> int:
        """The whole number at `key`."""
        return int(self.conf.get(key, default))


KEYS = (
    "spark.task.cpus",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.cores.max",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.maxExecutors",
    "spark.executor.resource.gpu.amount",
    "spark.task.resource.gpu.amount",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.master",
    "spark.speculation",
    "spark.authenticate",
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    HOST_KEY,
    PORT_KEY,
    FAILURES_KEY,
    *yarn_capacity.KEYS,
)


def slots(facts: Facts) -> int | None:
    """How many tasks the session can run at a time, by its configuration; None where that does not tell."""
    cpus = max(1, facts.number("spark.task.cpus", 1))
    if match := _LOCAL.fullmatch(facts.master):
        cores = {None: 1, "*": facts.cores}.get(match[1])
        return (cores if cores is not None else int(match[1])) // cpus
    if match := _LOCAL_CLUSTER.fullmatch(facts.master):
        return int(match[1]) * _slots_of_executor(facts, facts.number("spark.executor.cores", int(match[2])))
    if facts.master.startswith("spark://"):
        return _standalone_slots(facts)
    if facts.conf.get("spark.dynamicAllocation.enabled") == "true":
        executors = facts.number("spark.dynamicAllocation.maxExecutors", 0)
    elif facts.master.startswith(("yarn", "k8s://")):
        executors = facts.number("spark.executor.instances", 2)
    else:
        executors = facts.number("spark.executor.instances", 0)
    return executors * _slots_of_executor(facts, facts.number("spark.executor.cores", 1)) if executors else None


def _standalone_slots(facts: Facts) -> int | None:
    """Of a standalone cluster, whose executors have all cores of their worker when nothing else is said."""
    if "spark.cores.max" not in facts.conf:
        return None
    cores, per_executor = facts.number("spark.cores.max", 1), facts.number("spark.executor.cores", 0)
    if not per_executor:
        return cores // max(1, facts.number("spark.task.cpus", 1))
    return cores // per_executor * _slots_of_executor(facts, per_executor)


def _registered_slots(facts: Facts) -> int | None:
    """At least so many tasks run at a time on the executors that are there; others may still come."""
    if facts.executors is None:
        return None
    one_task = facts.number("spark.task.cpus", 1)
    return facts.executors * _slots_of_executor(facts, facts.number("spark.executor.cores", one_task))


def _slots_of_executor(facts: Facts, cores: int) -> int:
    by_cores = cores // max(1, facts.number("spark.task.cpus", 1))
    return min(by_cores, _gpu_slots(facts, by_cores))


def _gpu_slots(facts: Facts, otherwise: int) -> int:
    amount = float(facts.conf.get("spark.task.resource.gpu.amount", 0))
    return int(facts.number("spark.executor.resource.gpu.amount", 0) / amount) if amount else otherwise


def check_agents(wanted: int | None) -> None:
    """Raises SpecError when `wanted` is given, and no number of agents."""
    if wanted is not None:
        count(wanted, "agents", least=1)


def agents_for(
    facts: Facts, wanted: int | None, trials: int | None, size: int = 1, concurrent: int | None = None
) -> int:
    """How many agents to start for trials of `size` members: as many as were asked for, else as the slots have use for.

    At most `concurrent` trials train at a time; where nobody knows the number of slots, so many are asked for.

    Raises SpecError when that is no number of agents, ResourceError when there are fewer slots than were asked for, or
    than one trial needs, or fewer agents are asked for than that.
    """
    check_agents(wanted)
    there = slots(facts)
    if there is None and concurrent is not None:
        there = concurrent * size  # Spark brings executors as they are asked for
    if wanted is not None:
        _check_wanted(facts, wanted, there, size)
        return wanted
    if there is None and size > 1:
        # Executors that have not registered yet may bring the rest; until `start_timeout` the run waits for them.
        there = max(_registered_slots(facts) or DEFAULT_AGENTS, size)
    elif there is None:
        there = _registered_slots(facts)
    if there is not None and there < size:
        raise _too_few_slots(facts, there, size)
    there = there if there is not None else DEFAULT_AGENTS
    limits = [each for each in (there // size, trials, concurrent) if each is not None]
    return size * min(limits)


def _check_wanted(facts: Facts, wanted: int, there: int | None, size: int) -> None:
    if there is not None and there < size:
        raise _too_few_slots(facts, there, size)
    if there is not None and wanted > there:
        raise ResourceError(
            f"agents ({wanted}) exceeds the {there} slots of the session ({facts.master}): lower it, or give the "
            f"session more executors or cores (spark.executor.instances, spark.executor.cores)"
        )
    if wanted < size:
        raise too_few_agents(wanted, size)


def too_few_agents(wanted: int, size: int) -> ResourceError:
    """The error of a call that asks for fewer agents than its gang has members."""
    return ResourceError(
        f"agents ({wanted}) is below the {size} members of the gang, each of which needs one: raise it, or leave it out"
    )


def _too_few_slots(facts: Facts, there: int, size: int) -> ResourceError:
    more = f"give it more executors or cores, or lower spark.task.cpus ({facts.number('spark.task.cpus', 1)})"
    slots_there = formatting.count(there, "slot")
    if size == 1:
        return ResourceError(f"the session ({facts.master}) has {slots_there}, and one trial needs 1: {more}")
    return ResourceError(
        f"the gang has {size} members and the session has {slots_there}: a gang starts only when it has all of them; "
        f"on {facts.master}, {more}, or lower the number of workers"
    )


def check_pool(agents: int, size: int) -> None:
    """Raises ResourceError when a pool of `agents` is too small for gangs of `size` members."""
    if agents < size:
        raise ResourceError(
            f"the gang has {size} members and the pool has {formatting.count(agents, 'agent')}: open it with "
            f"sparktrain.pool(agents={size}), or lower the number of workers"
        )


def is_installed(package: str) -> bool:
    """Whether this process could import `package`; nothing is imported."""
    return importlib.util.find_spec(package) is not None


def check_installed(gang: GangSpec, installed: Callable[[str], bool] = is_installed) -> None:
    """Raises ResourceError when a gang's ring needs Horovod, and this machine trains without it.

    A driver without TensorFlow trains nothing, and cannot know what its executors have: it goes on.
    """
    if gang.size == 1 or gang.backend is not Backend.HOROVOD:
        return
    if installed("tensorflow") and not installed("horovod"):
        raise ResourceError(
            f"backend 'horovod' of a gang of {gang.size} needs Horovod, and it is not installed beside TensorFlow: "
            "build it with `make horovod` (scripts/build_horovod.sh) here and for the executors, or pass "
            "backend='tensorflow', which needs nothing else"
        )


DEFAULT_AGENTS = 2
"""Agents to start where the session does not tell how many slots it has."""


def check_gpus(facts: Facts, gpus: int) -> None:
    """Raises ResourceError when a trial wants GPUs that Spark's tasks do not get."""
    if gpus == 0:
        return
    if facts.local:
        raise ResourceError(
            f"gpus ({gpus}) cannot be had on {facts.master}: Spark schedules no GPUs on local masters, and its job "
            f"would hang; use local-cluster[1,1,1024], a standalone cluster, YARN or Kubernetes"
        )
    amount = float(facts.conf.get("spark.task.resource.gpu.amount", 0))
    if amount != gpus:
        raise ResourceError(
            f"gpus ({gpus}) must be what Spark gives a task, and spark.task.resource.gpu.amount is {amount:g}: set "
            f"spark.task.resource.gpu.amount={gpus} and spark.executor.resource.gpu.amount, with a discovery script, "
            f"when the session is made"
        )


def check_failures(facts: Facts, restarts: int) -> None:
    """Raises ResourceError when Spark would give up all agents before a trial with so many restarts is given up.

    Lost containers count as failures of a task, whoever took them; only YARN takes containers.
    """
    if facts.master != YARN:
        return
    there, needed = facts.number(FAILURES_KEY, DEFAULT_FAILURES), restarts + EXCUSED_LIMIT + 1
    if there < needed:
        raise ResourceError(
            f"{FAILURES_KEY} ({there}) must be {needed} or more on YARN, for lost containers count as failures, and a "
            f"trial may be restarted {restarts} times, and {EXCUSED_LIMIT} times more when YARN takes its containers: "
            f"set it when the session is made; agents themselves never fail"
        )


def members_without_gpus(facts: Facts, gang: GangSpec) -> int:
    """How many members of a gang can have executors of their own, which hold no GPU: those that do not train.

    Only a cluster manager that gives executors as they are asked for can tell them apart from the session's.
    """
    apart = facts.master == YARN or facts.master.startswith(("k8s://", "spark://"))
    has_gpus = "spark.executor.resource.gpu.amount" in facts.conf
    if not (apart and has_gpus and facts.conf.get("spark.dynamicAllocation.enabled") == "true"):
        return 0
    return gang.size - gang.workers


def check_cluster(facts: Facts) -> None:
    """Raises ResourceError when the cluster will never give the session an executor. Blocks for some seconds at most;
    only YARN is asked."""
    if facts.master == YARN:
        from sparktrain.cluster import yarn_client  # HTTP, which only YARN needs

        yarn_client.check(facts.conf)


def listener_of(session: "SparkSession", facts: Facts) -> Words | None:
    """Says why agents were lost, as far as the session tells; None where nothing is to be expected."""
    words = words_of(session) if facts.master == YARN else None
    return _with_nodes(words) if words is not None else None


def _with_nodes(words: Words) -> Words:
    """The same, with what became of lost nodes."""
    from sparktrain.cluster import yarn_client  # as above

    nodes = yarn_client.Nodes()
    return lambda stages: {task: nodes(said) for task, said in words(stages).items()}


def outlook_of(facts: Facts, agents: int) -> Callable[[], str]:
    """Says why so many agents do not come, as far as the cluster tells; what it returns may be empty, and blocks."""
    if facts.master != YARN:
        return str
    from sparktrain.cluster import yarn_client  # as above

    return yarn_client.Outlook(facts.conf, executors_for(facts, agents))


def slots_of_executor(facts: Facts) -> int:
    """How many tasks an executor runs at a time, on a cluster whose executors have one core unless it is said."""
    return _slots_of_executor(facts, facts.number("spark.executor.cores", 1))


def executors_for(facts: Facts, agents: int) -> int:
    """How many executors so many agents need."""
    return -(-agents // max(1, slots_of_executor(facts)))


# ---- reading a session


def active_session(spark: "SparkSession | None") -> "SparkSession":
    """`spark`, or the active session. Raises SessionError where there is none, or it is stopped."""
    session = spark if spark is not None else _default_session()
    if session is None:
        raise SessionError(
            "there is no active SparkSession: make one with SparkSession.builder.getOrCreate(), or pass spark=; "
            "the command line `sparktrain sweep` starts a local cluster by itself"
        )
    if not hasattr(session, "range"):
        raise SessionError(f"spark ({type(session).__name__}) must be a SparkSession")
    if is_stopped(session):
        raise SessionError("the SparkSession is stopped: make a new one with SparkSession.builder.getOrCreate()")
    return session


def _default_session() -> "SparkSession | None":
    """The active session of the calling thread, else that of the process: Spark's own default for a new thread."""
    from pyspark.sql import SparkSession  # a run on this machine alone needs no Spark

    try:
        return SparkSession.getActiveSession() or SparkSession.active()
    except Exception:  # there is none; PySpark's errors differ between classic and Connect sessions
        return None


def is_stopped(session: "SparkSession") -> bool:
    """Whether the session, or the JVM that it lives in, is gone. An error that does not say so is none of that."""
    context = getattr(session, "_sc", None)
    if context is None:  # Spark Connect
        return bool(getattr(session, "is_stopped", False))
    if context._jsc is None:
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception as error:
        return _is_of_a_dead_jvm(error)


def _is_of_a_dead_jvm(error: Exception) -> bool:
    """Py4J's error says that nobody answers; not an exception of Java's, or that this process is short of something."""
    kinds = {kind.__name__ for kind in type(error).__mro__}  # a driver with Spark Connect alone has no Py4J
    return isinstance(error, ConnectionError | EOFError) or ("Py4JError" in kinds and "Py4JJavaError" not in kinds)


def read_facts(session: "SparkSession", cores: int) -> Facts:
    """Ask the session. Raises SessionError when it cannot be reached."""
    try:
        found = {key: session.conf.get(key, None) for key in KEYS}
        master = found.get("spark.master") or ""
        return Facts(master, {k: str(v) for k, v in found.items() if v is not None}, cores, _executors(session))
    except Exception as error:  # Py4J, gRPC and Spark errors have no common root
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SessionError(f"the SparkSession cannot be used ({said}): make a new one") from error


def _executors(session: "SparkSession") -> int | None:
    context = getattr(session, "_sc", None)
    if context is None:  # Spark Connect has no such question
        return None
    return max(0, int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1) or None


def address_of(facts: Facts) -> Address:
    """From the session's configuration; this machine's own name where Spark's driver runs elsewhere, as with Connect.

    Raises SessionError when no address of this machine can be found, or the port is none.
    """
    named, sparks = facts.conf.get(HOST_KEY) or None, facts.conf.get("spark.driver.host")
    bind = facts.conf.get("spark.driver.bindAddress")
    hosts = [host for host in dict.fromkeys((named, sparks, socket.getfqdn(), socket.gethostname())) if host]
    here = [host for host in hosts if is_ours(host)]
    if bind is None and not here:
        raise SessionError(
            f"none of {', '.join(hosts)} is an address of this machine: set {HOST_KEY} to the one that executors "
            f"reach, and spark.driver.bindAddress to the one to listen on"
        )
    if named is not None:
        return Address(bind or here[0], (named,), _port(facts))
    # Spark's own may be that of a router or a container's host, which passes connections on.
    told = [*here, *(host for host in hosts if host == sparks and host not in here)]
    return Address(bind or here[0], tuple(told or hosts), _port(facts))


def _port(facts: Facts) -> int:
    port = facts.conf.get(PORT_KEY, "0").strip()
    if not port.isdecimal() or int(port) >= 2**16:
        raise SessionError(f"{PORT_KEY} ({shown(port)}) must be a port: a number below 65536, or 0 for any free one")
    return int(port)


def is_ours(host: str) -> bool:
    """Whether this machine can listen on `host`."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
