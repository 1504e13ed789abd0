"""What a Spark Connect server does to runs that their client has left, as one of its executors finds it."""

from typing import TYPE_CHECKING

from sparktrain.cluster.check_finding import Finding, passed, warned
from sparktrain.cluster.spark_facts import Facts
from sparktrain.config.connect_server import DETACHED_KEY, SESSION_KEY, ConnectServer
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.clustered.absent_client import unkept
from sparktrain.errors import InfraError, UserError
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK = "client gone"


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
