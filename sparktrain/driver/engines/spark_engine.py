"""Agents as tasks of a Spark session."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from sparktrain.base.decoding import from_json
from sparktrain.cluster import announced_losses, preflight, spark_facts, task_failures
from sparktrain.cluster.announced_losses import AnnouncedLosses
from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.import_failures import advice
from sparktrain.cluster.jvm import hush
from sparktrain.cluster.kubernetes_client import PodNodes
from sparktrain.cluster.launch_warnings import check_settings, warn
from sparktrain.cluster.python_version import settle_python
from sparktrain.cluster.spark_facts import NOTICE_KEY, Facts, slots
from sparktrain.cluster.spark_settings import harms
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper, tokens_for
from sparktrain.config.connect_server import ConnectServer
from sparktrain.config.option_rules import notice_address
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import check_sessions
from sparktrain.driver.engines.engine import Engine, JobEnd, OnBatchEnd
from sparktrain.driver.spark_job import AgentJob, ScoutJob, refused_s, without_gpus
from sparktrain.driver.submitted_jobs.command import MODE_KEY
from sparktrain.errors import JoinTimeoutError, SessionError, SpecError
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.protocol.ticket import AgentTicket

NO_SLOTS = "either other jobs hold the session's slots, or it has no executors yet"

_SHUT_DOWN = "cancelled because SparkContext was shut down"
_EXECUTORS_END = (
    "Spark ends an application on Kubernetes after too many ends of executors and refused pods "
    "(spark.executor.maxNumFailures), and its log has these; with "
    "spark.kubernetes.executor.deleteOnTermination=false pods of executors stay, and kubectl logs prints why they end, "
    "such as a user without a line in /etc/passwd"
)
_ENDS_WITH_THIS = (
    "submit() with a session on Kubernetes: Spark ends its application, and the run with it, when this process ends; "
    "bring the job with `sparktrain submit --deploy-mode cluster`, or submit it to a Spark Connect server in a pod "
    "(conf/kubernetes/connect.yaml). A run that may end with this process starts with sweep(), run() or launch()"
)


class SparkEngine(Engine):
    """The slots of one Spark session."""

    notes = ()
    runs_jobs = True
    batch_name = "the Spark job of the agents"

    def __init__(self, session: SparkSession, facts: Facts, gpu_mib: int = 0) -> None:
        self._session = session
        self._facts = facts
        self.gpu_mib = gpu_mib

    @property
    def name(self) -> str:
        """See base class."""
        return self._facts.master

    @property
    def holder(self) -> object:
        """Sessions of one SparkContext share its slots."""
        return getattr(self._session, "_sc", None) or self._session

    @property
    def slots(self) -> int | None:
        """See base class."""
        return spark_facts.slots(self._facts)

    @property
    def ended(self) -> bool:
        """See base class."""
        return spark_facts.is_stopped(self._session)

    def sharing(self, gpu_mib: int) -> "SparkEngine":
        """See base class. Whether the memory of a GPU is enough, agents report when they join."""
        if not gpu_mib:
            return self
        preflight.check_gpu_memory(self._facts, gpu_mib)
        return SparkEngine(self._session, self._facts, gpu_mib)

    @property
    def inherits(self) -> bool:
        """See base class. The JVM of a local master, which starts the executors, has them from this process."""
        return self._facts.local

    @property
    def notice(self) -> str | None:
        """See base class."""
        address = self._facts.conf.get(NOTICE_KEY)
        return notice_address(address, NOTICE_KEY) if address else None

    def check_data(self, plan: DataPlan) -> None:
        """See base class."""
        check_sessions(plan, self.holder)

    def check_run(self, spec: SweepSpec) -> None:
        """See base class."""
        preflight.check_gpus(self._facts, spec.gpus if not spec.gpu_mib else 0)
        preflight.check_gpu_memory(self._facts, spec.gpu_mib)
        preflight.check_failures(self._facts, spec.max_retries)

    def check_cluster(self) -> None:
        """See base class."""
        preflight.check_cluster(self._facts)

    def agents_for(
        self, spec: SweepSpec | None, agents: int | None, trials: int | None, concurrent: int | None = None
    ) -> tuple[int, int]:
        """See base class."""
        if spec is None:
            return preflight.agents_for(self._facts, agents, trials), 0
        gang = spec.gang
        apart = 0 if agents is not None else preflight.members_without_gpus(self._facts, gang)
        preflight.check_standby(
            slots(self._facts), agents, gang, f"the session ({self._facts.master})", "give it more executors or cores"
        )
        seats = gang.size + gang.standby - apart
        main_agents = preflight.agents_for(self._facts, agents, trials, seats, concurrent)
        alone = apart * (main_agents // seats)
        return main_agents + alone, alone

    def tokens(self, store: StoreAddress) -> TokenKeeper | None:
        """See base class."""
        return tokens_for(self._session, store)

    def address(self) -> Address:
        """See base class."""
        return self._facts.address

    def loss_reasons(self) -> TaskFailures | None:
        """See base class."""
        return task_failures.loss_reasons(self._session, self._facts)

    def announcements(self) -> AnnouncedLosses | None:
        """See base class."""
        return announced_losses.announcements(self._session, self._facts)

    def outlook(self, agents: int) -> Callable[[], str]:
        """See base class."""
        return task_failures.start_outlook(self._session, self._facts, agents)

    def batch(
        self, ticket: AgentTicket, slots: range, held: Sequence[int], on_end: OnBatchEnd, *, without_gpus: bool
    ) -> AgentJob:
        """See base class."""
        explained = partial(self._end, on_end)
        return AgentJob(self._session, ticket, slots, explained, self._bare_profile if without_gpus else None)

    def _end(self, on_end: OnBatchEnd, end: JobEnd) -> None:
        """Add to why Spark gave the job up the settings of the session that may be the cause."""
        causes = [finding.message for finding in harms(self._facts.conf)] if end.error else []
        if self._facts.on_kubernetes and _SHUT_DOWN in (end.error or ""):
            causes.append(_EXECUTORS_END)
        on_end(replace(end, error="; ".join([end.error or "", *causes])) if causes else end)

    @property
    def is_remote(self) -> bool:
        """See base class: of a Connect session only the server knows its cluster, and where this client is for it."""
        return self._facts.connect

    @property
    def on_one_machine(self) -> bool:
        """See base class."""
        return self._facts.on_one_machine

    def pod_nodes(self) -> PodNodes | None:
        """See base class. None for Spark Connect too, which has no client of Kubernetes here."""
        context = getattr(self._session, "_sc", None)
        return PodNodes(context) if self._facts.on_kubernetes and context is not None else None

    def application_settings(self) -> dict[str, str] | None:
        """See base class: a session in client mode, because a container may have no spark-submit."""
        if self._facts.connect or not (self._facts.on_kubernetes or self._facts.master == spark_facts.YARN):
            return None
        settings = dict(self._session.sparkContext.getConf().getAll())
        if settings.get(MODE_KEY, "client") != "client":
            return None
        if self._facts.on_kubernetes:
            raise SpecError(_ENDS_WITH_THIS)
        return settings

    def connect_server(self) -> ConnectServer | None:
        """See base class."""
        return spark_facts.server_of(self._session) if self._facts.connect else None

    def scout(self, ticket: ScoutTicket, timeout_s: float) -> ScoutReport:
        """See base class."""
        job = ScoutJob(self._session, ticket)
        job.start()
        if not job.join(timeout_s):
            lacking = job.lacking()
            job.cancel()
            if lacking is not None:
                raise SessionError(advice(lacking))
            raise JoinTimeoutError(f"no task of {self.name} has run within {timeout_s:g} s: {NO_SLOTS}")
        if not job.reports:
            raise SessionError(
                f"a task on {self.name} has failed: {advice(job.missing) if job.missing is not None else job.error}"
            )
        return from_json(job.reports[0], ScoutReport)

    def refused_s(self) -> float | None:
        """See base class."""
        return refused_s(self._session)

    @cached_property
    def _bare_profile(self) -> ResourceProfile:
        """A profile with executors like those of the session, without GPUs."""
        cpus = math.ceil(self._facts.task_cpus)
        return without_gpus(self._facts.number("spark.executor.cores", cpus), cpus)


def spark_engine(spark: SparkSession | None) -> SparkEngine:
    """The engine of a session; None is the active one. Blocks on the session.

    Makes executors of a local master run this Python, and logs warnings about settings that slow a run down. Raises
    UserError.
    """
    session = spark_facts.active_session(spark)
    facts = spark_facts.read_facts(session, os.cpu_count() or 1)
    settle_python(session, facts)
    hush(session)
    check_settings(facts)
    warn(facts)
    return SparkEngine(session, facts)
