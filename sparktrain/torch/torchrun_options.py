"""The options of torchrun: what each is for a gang, or why it has no meaning here."""

from sparktrain.config.param_values import shown
from sparktrain.config.quantities import count
from sparktrain.errors import SpecError

_RENDEZVOUS = "the members of a gang meet by sparktrain's own rendezvous: leave it out"
_LOGS = "the run directory has a log of each member: leave it out, and read them by `sparktrain logs DIR`"
_PROCESSES = "sparktrain starts members by itself: leave it out"
REFUSED = {
    "rdzv-backend": _RENDEZVOUS,
    "rdzv-endpoint": _RENDEZVOUS,
    "rdzv-id": f"{_RENDEZVOUS}, and name the run by --name",
    "rdzv-conf": f"{_RENDEZVOUS}, and limit the wait for members by --start-timeout",
    "node-rank": "one call starts the members of all nodes: leave it out",
    "master-addr": _RENDEZVOUS,
    "master-port": _RENDEZVOUS,
    "local-addr": _RENDEZVOUS,
    "monitor-interval": "agents see at once that a member has ended: leave it out",
    "start-method": _PROCESSES,
    "event-log-handler": "pass --tracking or --notify for events of the run, or leave it out",
    "role": "members of a gang have one role: leave it out",
    "log-dir": "the run directory has a log of each member: pass --dir and --name",
    "redirects": _LOGS,
    "tee": _LOGS,
    "log-line-prefix-template": _LOGS,
    "local-ranks-filter": _LOGS,
    "duplicate-stdout-filters": _LOGS,
    "duplicate-stderr-filters": _LOGS,
    "logs-specs": _LOGS,
    "numa-binding": "Spark and the operating system place the processes: leave it out",
    "signals-to-handle": _PROCESSES,
    "shutdown-timeout": _PROCESSES,
}
"""Options with a value, and the next step for each."""
REFUSED_FLAGS = {
    "no-python": "a member is a Python process: pass a script of Python",
    "run-path": "a script runs under the name __main__ as it is: leave it out",
    "virtual-local-rank": "a member that sees only its own GPU has LOCAL_RANK 0 already: leave it out",
}
"""The same for options without one."""
SHORT = {"redirects": "-r", "tee": "-t"}


def gang_of(nodes: str | None, processes: str | None, *, local: bool) -> dict[str, int]:
    """The options `workers` and, for a range of nodes, `min_workers` of a run. Raises SpecError."""
    per_node = _processes(processes)
    least, separator, most = (nodes or "1").partition(":")
    most_nodes = _nodes(most if separator else least, nodes)
    least_nodes = _nodes(least, nodes)
    if least_nodes > most_nodes:
        raise SpecError(f"--nnodes ({nodes}) must be MIN:MAX with MIN up to MAX, such as {most_nodes}:{least_nodes}")
    if local and most_nodes > 1:
        raise SpecError(
            f"--nnodes ({nodes}): this machine is one node; pass --master for a cluster of Spark, call it by "
            "spark-submit, or leave it out"
        )
    gang = {"workers": most_nodes * per_node}
    return gang | ({"min_workers": least_nodes * per_node} if least_nodes < most_nodes else {})


def retries_of(restarts: str | None) -> dict[str, int]:
    """The option `max_retries` of a run, where it is given. Raises SpecError."""
    if restarts is None:
        return {}
    if not restarts.isdecimal():
        raise SpecError(f"--max-restarts ({shown(restarts)}) must be a number of restarts, such as 3")
    return {"max_retries": int(restarts)}


def _nodes(text: str, option: str | None) -> int:
    if not text.isdecimal():
        raise SpecError(f"--nnodes ({option}) must be a number of nodes or MIN:MAX, such as 2 or 1:4")
    return count(int(text), "--nnodes", least=1)


def _processes(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isdecimal():
        raise SpecError(
            f"--nproc-per-node ({shown(text)}) must be a number: which devices executors have is known to Spark alone; "
            "pass how many members each node gets, such as 2"
        )
    return count(int(text), "--nproc-per-node", least=1)
