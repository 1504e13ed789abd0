"""The examination of a cluster, with checks in parallel. A check that fails or takes too long is a finding."""

import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.cluster import launch_warnings, preflight, spark_facts, yarn_capacity
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned, worst
from sparktrain.cluster.kubernetes_api import spark_api
from sparktrain.cluster.kubernetes_pods import KUBERNETES
from sparktrain.cluster.launch_warnings import Driver
from sparktrain.cluster.spark_facts import Facts
from sparktrain.cluster.yarn_client import ResourceManager
from sparktrain.config.connect_server import DETACHED_KEY, SESSION_KEY, ConnectServer
from sparktrain.config.quantities import count as number
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.clustered.absent_client import unkept
from sparktrain.errors import InfraError, SparktrainError, UserError
from sparktrain.ops.doctor import hadoop, kubernetes, observe
from sparktrain.ops.doctor.rollcall import Shared, call_roll
from sparktrain.ops.doctor.slots import Roll, slots_findings
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.store.url import open_store

CHECK = "client gone"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MACHINE_S = 6.0
"""The time for the checks of this machine."""
STORE_S = 12.0
SIDE_S = 20.0
"""The time for the checks in parallel with store and slots, from the start."""
KUBERNETES_S = 8.0
"""The time for the questions to Kubernetes, after the slots, so that these explain why none has answered."""
FORGET_S = 3.0
ABSENCE_S = 5.0
"""The least time for the question what becomes of a run without its client."""
WHOLE_S = 60.0
"""The time for all checks. The slots have what those before them leave, less `FORGET_S`."""
AFTER_JOB_S = 7.0
"""The time to open and end the job that queries the slots."""

OpenSession = Callable[[], AbstractContextManager["SparkSession"]]
Check = Callable[[], list[Finding]]


@dataclass(frozen=True)
class ExaminationRequest:
    """What to examine."""

    directory: str | None = None
    open_session: OpenSession | None = None
    agents: int | None = None
    gpus: int = 0
    master: str = ""
    """Of the session, where the call names it."""


@dataclass
class Examination:
    """The findings; they grow during the examination."""

    findings: list[Finding] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """What was not checked, and what a check of it needs."""
    roll: Roll | None = None

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return worst(self.findings)


class ClusterExaminer:
    """One examination; its `examine` is called once."""

    def __init__(self, request: ExaminationRequest, cores: int, clock: Clock | None = None) -> None:
        """`cores` is the number of this machine's cores."""
        self._request = request
        self._cores = cores
        self._clock = clock or SystemClock()
        self._examination = Examination()
        self._driver: Driver | None = None
        self._shared = Shared()
        self._settings: dict[str, str] = {}
        """Hadoop's configuration on this machine."""

    def examine(self) -> Examination:
        """Run all checks of the request. Blocks for at most a minute beside the start and the end of the session.

        Raises SpecError when the directory belongs to no store, or the number of agents or GPUs is not valid.
        """
        if self._request.directory is not None:
            open_store(self._request.directory)
        preflight.check_agents(self._request.agents)
        number(self._request.gpus, "gpus", least=0)
        if self._request.open_session is None:
            self._examination.unseen.append("the session and its executors: pass --master, or use spark-submit")
            self._look(None, None)
            return self._examination
        try:
            with self._request.open_session() as spark:
                self._look(spark, spark_facts.read_facts(spark, self._cores))
        except UserError as error:  # the session cannot start, or cannot be used
            self._examination.findings.append(of_message("session", Level.FAIL, str(error)))
            self._examination.unseen.append("the executors: there is no session")
            self._look(None, None)
        return self._examination

    def _look(self, spark: "SparkSession | None", facts: Facts | None) -> None:
        start = self._clock.now()
        # Before the checks in parallel, which need the settings of Hadoop and the facts of the driver that it finds.
        self._settle("machine", start_check(lambda: self._machine(spark)), MACHINE_S)
        count = 1
        if facts is not None:
            slots, count = launch_warnings.slots_finding(facts, self._request.agents)
            self._examination.findings += [slots, *launch_warnings.session_findings(facts, self._request.gpus)]
        side = [("yarn", start_check(lambda: self._yarn(facts, count)))]
        side.append(("kerberos", start_check(lambda: observe.kerberos(self._settings, self._clock))))
        if self._hdfs:
            side.append(("namenode", start_check(self._namenode)))
        if self._request.directory is None:
            self._examination.unseen.append("the store: pass --dir")
        else:
            self._settle("store", start_check(self._store), STORE_S)
        if spark is not None and facts is not None:
            # The slots get what is left of the minute: executors of a busy cluster start slowly.
            reserved_s = FORGET_S + (KUBERNETES_S if facts.on_kubernetes else 0.0)
            left_s = WHOLE_S - reserved_s - (self._clock.now() - start)
            self._look_at_slots(spark, facts, count, left_s)
        self._look_at_kubernetes(spark, facts, count)
        for name, future in side:
            self._settle(name, future, max(0.1, SIDE_S - (self._clock.now() - start)))
        self._examination.findings += launch_warnings.security_findings(facts) if facts is not None else []
        self._examination.findings += hadoop.security_findings(self._settings, self._hdfs)
        if self._shared.marker:
            self._settle("store", start_check(self._forget), FORGET_S)

    def _look_at_slots(self, spark: "SparkSession", facts: Facts, count: int, left_s: float) -> None:
        driver = self._driver
        if driver is None or not count:
            self._examination.unseen.append("the executors: see the failures above")
            return
        job_s = left_s - AFTER_JOB_S
        start = self._clock.now()
        self._settle("executors", start_check(lambda: self._slots(spark, facts, count, driver, job_s)), left_s)
        if facts.connect:
            # After the slots, which need all of them at the same time.
            absence_s = max(ABSENCE_S, left_s - (self._clock.now() - start))
            self._settle(CHECK, start_check(lambda: absence_findings(spark, facts, absence_s)), absence_s)

    def _look_at_kubernetes(self, spark: "SparkSession | None", facts: Facts | None, count: int) -> None:
        findings = settle("kubernetes", start_check(lambda: self._kubernetes(spark, facts, count)), KUBERNETES_S)
        self._examination.findings += findings
        in_pods = self._request.master.startswith(KUBERNETES) or (facts is not None and facts.on_kubernetes)
        if (findings or in_pods) and not any(finding.check == "pods" for finding in findings):
            step = "see the failure above" if findings else "only the process of Spark's driver can ask"
            self._examination.unseen.append(f"what Kubernetes allows its pods: {step}")

    @property
    def _hdfs(self) -> bool:
        return (self._request.directory or "").startswith(("hdfs:", "webhdfs:", "swebhdfs:"))

    def _settle(self, check: str, pending: "Future[list[Finding]]", timeout_s: float) -> None:
        self._examination.findings += settle(check, pending, timeout_s)

    # ---- checks that run in parallel

    def _machine(self, spark: "SparkSession | None") -> list[Finding]:
        self._driver = driver = observe.driver_of(spark)
        findings = [*launch_warnings.packages_findings(driver), *launch_warnings.spark_findings(driver)]
        self._settings = observe.hadoop_settings()
        return findings

    def _yarn(self, facts: Facts | None, agents: int) -> list[Finding]:
        manager = ResourceManager.configured()
        on_yarn = facts is not None and facts.master == spark_facts.YARN
        if not manager.urls:
            return []
        demand = yarn_capacity.demand_of(facts.conf) if facts is not None and on_yarn else None
        executors = spark_facts.executors_for(facts, agents) if facts is not None else 0
        return hadoop.yarn_findings(manager.status(), " or ".join(manager.urls), demand, executors)

    def _namenode(self) -> list[Finding]:
        address = open_store(StoreAddress(self._request.directory or "")).address
        try:
            settings, where = observe.namenode_settings(address)
        except OSError as error:
            step = "ask the administrators of HDFS for the settings that docs/stores.md names"
            return [warned("namenode", f"its settings are not known: {error}", step)]
        return hadoop.namenode_findings(settings, where)

    def _store(self) -> list[Finding]:
        findings, self._shared = observe.probe(self._request.directory or "", self._clock)
        return findings

    def _slots(self, spark: "SparkSession", facts: Facts, count: int, driver: Driver, job_s: float) -> list[Finding]:
        self._examination.roll = roll = call_roll(spark, facts, count, self._shared, job_timeout_s=job_s)
        return slots_findings(roll, driver, facts.task_gpus > 0, remote=facts.connect)

    def _kubernetes(self, spark: "SparkSession | None", facts: Facts | None, count: int) -> list[Finding]:
        with spark_api(spark) as api:
            if api is None:
                return []
            findings = kubernetes.server_findings(api)
            if worst(findings) is Level.FAIL:
                return findings
            if spark is None or facts is None:
                return [*findings, *kubernetes.pods_findings(api)]
            roll = self._examination.roll
            pods = kubernetes.Pods(
                application=spark.sparkContext.applicationId,
                executors=spark_facts.executors_for(facts, count),
                answered=roll is not None and bool(roll.answers),
            )
            return [*findings, *kubernetes.pods_findings(api, pods)]

    def _forget(self) -> list[Finding]:
        observe.forget(self._shared)
        return []


def start_check(check: Check) -> "Future[list[Finding]]":
    """Run `check` in a thread that delays nothing when it hangs."""
    pending: Future[list[Finding]] = Future()

    def work() -> None:
        try:
            pending.set_result(check())
        except BaseException as error:
            pending.set_exception(error)

    spawn(work, "sparktrain-doctor")
    return pending


def settle(check: str, pending: "Future[list[Finding]]", timeout_s: float) -> list[Finding]:
    """The findings of a check, or one that explains its failure. Blocks for `timeout_s` at most; raises nothing."""
    try:
        return pending.result(timeout_s)
    except SparktrainError as error:
        return [of_message(check, Level.FAIL, str(error))]
    except (TimeoutError, subprocess.TimeoutExpired):
        if pending.done():
            return [_unknown(check, "no answer came in time")]
        step = "check that this machine reaches the service, and that the service works"
        return [failed(check, f"no answer within {timeout_s:.3g} s", step)]
    except Exception as error:
        return [_unknown(check, f"{type(error).__name__}: {error}")]


def _unknown(check: str, why: str) -> Finding:
    return warned(check, f"the check failed ({why})", "repeat it; if it fails again, report it with this line")


def absence_findings(spark: "SparkSession", facts: Facts, timeout_s: float) -> list[Finding]:
    """Whether a submitted run continues without its client. Blocks on one Spark task; raises nothing."""
    from sparktrain.driver.engines.spark_engine import SparkEngine  # the doctor works without PySpark

    engine = SparkEngine(spark, facts)
    server = engine.connect_server()
    if server is None:
        return []
    try:
        report = engine.scout(ScoutTicket(StoreAddress(""), "", server=server), timeout_s)
    except (InfraError, UserError) as error:
        return [warned(CHECK, f"no executor has tried to reach the Connect server: {error}", _step())]
    return [absence_finding(server, report)]


def absence_finding(server: ConnectServer, report: ScoutReport) -> Finding:
    """The finding from the report of one executor. Pure."""
    if report.server:
        return passed(
            CHECK,
            f"a submitted run continues without its client: executors such as {report.host} reach the Connect server "
            f"at {report.server}, where the coordinator keeps the run's operation",
        )
    return warned(
        CHECK,
        f"{unkept(server.limits, 'a submitted run', 'its client')}; the coordinator could keep it, but executors such "
        f"as {report.host} do not reach the server ({report.server_problem})",
        _step(),
    )


def _step() -> str:
    return (
        f"let executors connect to the server's port; else set {DETACHED_KEY} and {SESSION_KEY} there, such as to 30d"
    )
