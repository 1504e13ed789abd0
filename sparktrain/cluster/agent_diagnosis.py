"""Why agents were lost, and why they do not start: what Spark and YARN report of their tasks and executors."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparktrain.cluster.spark_facts import YARN, Facts, executors_for
from sparktrain.cluster.spark_settings import harms
from sparktrain.cluster.task_failures import TaskFailures, task_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def loss_reasons(session: "SparkSession", facts: Facts) -> TaskFailures | None:
    """Why agents were lost, as Spark and YARN report it; None where neither reports anything."""
    failures = task_failures(session) if facts.master == YARN else None
    return _with_nodes(failures) if failures is not None else None


def _with_nodes(failures: TaskFailures) -> TaskFailures:
    """The same failures, each with what became of its node."""
    from sparktrain.cluster import yarn_client  # HTTP, which only YARN needs

    nodes = yarn_client.Nodes()
    return lambda stages: {task: nodes(message) for task, message in failures(stages).items()}


def start_outlook(facts: Facts, agents: int) -> Callable[[], str]:
    """A function that explains why this many agents do not start. It blocks, and returns "" where the cluster reports
    nothing."""
    exclusion = "; ".join(finding.message for finding in harms(facts.conf) if finding.check == "exclusion")
    if facts.master != YARN:
        return lambda: exclusion
    from sparktrain.cluster import yarn_client  # as above

    outlook = yarn_client.Outlook(facts.conf, executors_for(facts, agents))
    return lambda: "; ".join(filter(None, (outlook(), exclusion)))
