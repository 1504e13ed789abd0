"""A cluster of processes on this machine: agents with tickets as of Spark's tasks, that find their coordinator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

import sparktrain as st
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.engines.local_engine import LocalEngine
from sparktrain.driver.launch import launch
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.executor.scout import scout
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.results.sweep_result import SweepResult
from sparktrain.search.space import single
from tests.support.processes import descendants

COORDINATOR = "sparktrain.driver.clustered"
"""The module that a coordinator's command line names."""


class ProcessCluster(LocalEngine):
    """In place of a Spark session: its agents are processes of this machine, and its scout is a call."""

    runs_jobs = True
    on_one_machine = True

    def scout(self, ticket: ScoutTicket, timeout_s: float) -> ScoutReport:
        """See base class."""
        return msgspec.json.decode(scout(ticket), type=ScoutReport)


def sweep_in_cluster(function: Any, space: dict[str, Sequence[Any]], folder: Path, **options: Any) -> SweepResult:
    """A sweep on two agents, or `slots`, with its coordinator beside one of them; its runs are in FOLDER/runs."""
    return launch(*cluster_call(function, space, folder, **options))


def cluster_call(
    function: Any, space: dict[str, Sequence[Any]], folder: Path, *, slots: int = 2, **options: Any
) -> tuple[CheckedCall, OwnAgents]:
    """The call of such a sweep, and its agents."""
    given = {"metric": "y", "mode": "max", "backend": "none", "name": "run", "progress": False, "preload": []}
    chosen = SweepOptions(coordinator="cluster", dir=str(folder / "runs"), **(given | options))
    return compose(function, space, chosen), OwnAgents(ProcessCluster(st.local(slots=slots)))


def run_in_cluster(function: Any, params: dict[str, Any], folder: Path, *, slots: int, **options: Any) -> SweepResult:
    """One gang with the parameters `params`, likewise."""
    chosen = RunOptions(coordinator="cluster", dir=str(folder / "runs"), name="run", progress=False, **options)
    return launch(compose(function, single(params), chosen), OwnAgents(ProcessCluster(st.local(slots=slots))))


def coordinators(above: int | None = None) -> list[psutil.Process]:
    """The coordinators below a process, by default this one."""
    return descendants(psutil.Process().pid if above is None else above, COORDINATOR)
