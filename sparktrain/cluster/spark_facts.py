"""What a Spark session is: its master, its configuration, its slots, and whether it has stopped."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktrain.base.formatting import first_line
from sparktrain.base.optional_packages import is_supported, require_spark
from sparktrain.cluster import driver_address, spark_settings, yarn_capacity
from sparktrain.cluster.kubernetes_pods import KUBERNETES
from sparktrain.config.connect_server import (
    DETACHED_KEY,
    SESSION_KEY,
    STREAM_KEY,
    ConnectLimits,
    ConnectServer,
    seconds_of,
)
from sparktrain.errors import SessionError

_PORT_KEY = "spark.connect.grpc.binding.port"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession
    """A session of the user's, classic or Connect: for code that must not depend on Spark itself."""

FAILURES_KEY = "spark.task.maxFailures"
"""After this many failed attempts of one task, on any executor, Spark ends the job of the agents."""
DEFAULT_FAILURES = 4
"""Spark's default."""

NOTICE_KEY = "spark.sparktrain.notice"
"""The default of `notice` for all calls on a session."""

DECOMMISSION_KEY = "spark.decommission.enabled"

YARN = "yarn"
"""As Spark's master."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")

KEYS = (
    "spark.task.cpus",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.cores.max",
    "spark.dynamicAllocation.maxExecutors",
    "spark.executor.resource.gpu.amount",
    "spark.task.resource.gpu.amount",
    "spark.master",
    "spark.authenticate",
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    FAILURES_KEY,
    NOTICE_KEY,
    DECOMMISSION_KEY,
    *driver_address.KEYS,
    *yarn_capacity.KEYS,
    *spark_settings.KEYS,
)
"""The configuration keys that sparktrain reads."""


class Facts(Struct, frozen=True):
    """What a run needs to know of a Spark session."""

    master: str
    conf: dict[str, str]
    """The keys of `KEYS` that are set."""
    cores: int
    """Cores of this machine, for `local[*]`."""
    executors: int | None = None
    """Registered executors; None where the session does not report them."""
    connect: bool = False
    """Whether it is a Spark Connect session: its driver and executors may be on other machines."""

    @property
    def local(self) -> bool:
        """Whether executors are threads of the driver's JVM."""
        return _LOCAL.fullmatch(self.master) is not None

    @property
    def on_kubernetes(self) -> bool:
        """Whether executors are pods."""
        return self.master.startswith(KUBERNETES)

    @property
    def on_one_machine(self) -> bool:
        """Whether this process, Spark's driver and all executors are on one machine by the kind of the master."""
        return not self.connect and (self.local or _LOCAL_CLUSTER.fullmatch(self.master) is not None)

    @property
    def address(self) -> driver_address.Address:
        """Where the coordinator listens. Raises SessionError when there is no such address."""
        conf = self.conf
        bind = conf.get("spark.driver.bindAddress")
        # With Connect it is the server's, where Spark's driver is: this process could not even listen there.
        if self.connect and bind is not None and not driver_address.is_ours(bind):
            conf = {key: value for key, value in conf.items() if key != "spark.driver.bindAddress"}
        return driver_address.address_of(conf, on_one_machine=self.on_one_machine)

    def number(self, key: str, default: int) -> int:
        """The whole number at `key`, or `default` where it is not set."""
        return spark_settings.whole(self.conf, key, str(default))

    def amount(self, key: str, default: int) -> Decimal:
        """The number at `key`, or `default` where it is not set. Raises SessionError for what is no number."""
        return spark_settings.amount(self.conf, key, str(default))

    @property
    def task_cpus(self) -> Decimal:
        """The cores of a task, perhaps a fraction of one."""
        cpus = self.amount("spark.task.cpus", 1)
        if cpus <= 0:
            raise SessionError(f"spark.task.cpus ({cpus}) must be above 0: set it when you create the session")
        return cpus

    @property
    def task_gpus(self) -> Decimal:
        """The GPUs of a task, perhaps a fraction of one; 0 without."""
        return self.amount("spark.task.resource.gpu.amount", 0)


def slots(facts: Facts) -> int | None:
    """How many tasks the session can run at a time, by its configuration; None where that does not determine it."""
    if match := _LOCAL.fullmatch(facts.master):
        cores = {None: 1, "*": facts.cores}.get(match[1])
        return int((cores if cores is not None else int(match[1])) // facts.task_cpus)
    if match := _LOCAL_CLUSTER.fullmatch(facts.master):
        return int(match[1]) * slots_of_executor(facts, int(match[2]))
    if facts.master.startswith("spark://"):
        return _standalone_slots(facts)
    if spark_settings.is_on(facts.conf.get("spark.dynamicAllocation.enabled", "")):
        executors = facts.number("spark.dynamicAllocation.maxExecutors", 0)
    elif facts.master.startswith((YARN, KUBERNETES)):
        # Two executors are the default of Spark on both.
        executors = facts.number("spark.executor.instances", 2)
    else:
        executors = facts.number("spark.executor.instances", 0)
    return executors * slots_of_executor(facts) if executors else None


def _standalone_slots(facts: Facts) -> int | None:
    """The slots of a standalone cluster, where an executor has all cores of its worker unless it is configured."""
    if "spark.cores.max" not in facts.conf:
        return None
    cores = facts.number("spark.cores.max", 1)
    per_executor = facts.number("spark.executor.cores", 0)
    if not per_executor:
        return int(cores // facts.task_cpus)
    return cores // per_executor * slots_of_executor(facts)


def registered_slots(facts: Facts) -> int | None:
    """The slots of the executors that have registered, to which others may be added; None where they are not known."""
    if facts.executors is None:
        return None
    return facts.executors * slots_of_executor(facts, math.ceil(facts.task_cpus))


def slots_of_executor(facts: Facts, default_cores: int = 1) -> int:
    """How many tasks an executor runs at a time; with `default_cores` where the session sets no number of cores."""
    by_cores = int((facts.number("spark.executor.cores", 0) or default_cores) // facts.task_cpus)
    return min(by_cores, _gpu_slots(facts, by_cores))


def _gpu_slots(facts: Facts, otherwise: int) -> int:
    amount = facts.task_gpus
    gpus = facts.number("spark.executor.resource.gpu.amount", 0)
    if not amount:
        return otherwise
    # A task has its part of one GPU: two GPUs have room for four tasks of 0.4, and not for five.
    return gpus * int(1 // amount) if amount < 1 else int(gpus // amount)


def executors_for(facts: Facts, agents: int) -> int:
    """How many executors this many agents need."""
    return -(-agents // max(1, slots_of_executor(facts)))


def active_session(spark: "SparkSession | None") -> "SparkSession":
    """`spark`, or else the active session. Raises SessionError where there is none, or it is stopped."""
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
    require_spark("a call without spark=")
    from pyspark.sql import SparkSession  # a run on this machine alone needs no Spark

    try:
        return SparkSession.getActiveSession() or SparkSession.active()
    except Exception:  # there is none; PySpark's errors differ between classic and Connect sessions
        return None


def is_stopped(session: "SparkSession") -> bool:
    """Whether the session is stopped or its JVM has ended. Any other error of the query counts as running."""
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
    """Whether Py4J reports that the JVM does not answer, unlike an exception in Java or a shortage in this process."""
    kinds = {kind.__name__ for kind in type(error).__mro__}  # a driver with Spark Connect alone has no Py4J
    return isinstance(error, ConnectionError | EOFError) or ("Py4JError" in kinds and "Py4JJavaError" not in kinds)


def read_facts(session: "SparkSession", cores: int) -> Facts:
    """Query the session. Raises SessionError when it cannot be reached, and for one of another Spark than 4."""
    try:
        settings = {key: session.conf.get(key, None) for key in KEYS}
        master = settings.get("spark.master") or ""
        conf = {key: str(value) for key, value in settings.items() if value is not None}
        connect = getattr(session, "_sc", None) is None
        facts = Facts(master=master, conf=conf, cores=cores, executors=_executors(session), connect=connect)
        version = str(session.version)
    except Exception as error:  # Py4J, gRPC and Spark errors have no common root
        reason = first_line(error)
        raise SessionError(f"the SparkSession cannot be used ({reason}): make a new one") from error
    if not is_supported(version):
        raise SessionError(
            f"the SparkSession is one of Spark {version}, and sparktrain needs Spark 4: connect to one, or train on "
            "this machine without Spark (spark=sparktrain.local())"
        )
    return facts


def _executors(session: "SparkSession") -> int | None:
    context = getattr(session, "_sc", None)
    if context is None:  # Spark Connect does not report executors
        return None
    # The map has an entry for the driver too.
    return max(0, int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1) or None


def limits_of(session: "Session") -> ConnectLimits:
    """The limits of the server of a session; Spark's defaults where it does not report them. Blocks."""
    defaults = ConnectLimits()
    get = _getter(session)
    return ConnectLimits(
        detached_s=seconds_of(get(DETACHED_KEY), defaults.detached_s),
        session_s=seconds_of(get(SESSION_KEY), defaults.session_s),
        stream_s=seconds_of(get(STREAM_KEY), defaults.stream_s),
    )


def server_of(session: "Session") -> ConnectServer:
    """The server of a session, as this client reaches it, and as its executors may. Blocks.

    A client behind a tunnel has an address that is only its own; executors reach the host of Spark's driver, which is
    the server itself.
    """
    builder: Any = getattr(getattr(session, "client", None), "_builder", None)
    secure = bool(getattr(builder, "secure", False))
    endpoint = getattr(builder, "endpoint", None)
    targets = [endpoint] if isinstance(endpoint, str) else []
    get = _getter(session)
    host = get(driver_address.SPARK_HOST_KEY)
    port = get(_PORT_KEY)
    # With TLS something stands before the server: its own port does not speak TLS, and would get the token in the open.
    if host and port and not secure:
        targets.append(f"{host}:{port}")
    headers = [(name, str(value)) for name, value in (builder.metadata() if hasattr(builder, "metadata") else ())]
    if token := getattr(builder, "token", None):
        headers.append(("authorization", f"Bearer {token}"))
    return ConnectServer(
        targets=tuple(dict.fromkeys(targets)), secure=secure, headers=tuple(headers), limits=limits_of(session)
    )


def _getter(session: "Session") -> Callable[[str], str | None]:
    def get(key: str) -> str | None:
        try:
            return session.conf.get(key, None)
        except Exception:  # a server of another kind may refuse a key; its errors have no common root
            return None

    return get
