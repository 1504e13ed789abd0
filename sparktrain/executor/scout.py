"""The executor's side of the questions that a client asks before a run with its coordinator in the cluster."""

import socket
from contextlib import closing, suppress

import msgspec

from sparktrain.config.connect_server import ConnectServer
from sparktrain.errors import SparktrainError
from sparktrain.executor.spark_task import reported_versions, running_operation
from sparktrain.executor.zygote_process import scratch_root
from sparktrain.protocol.connect_calls import ConnectCaller
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

CONNECT_S = 2.0
"""How long an executor tries to reach each address of the client."""
_STORE_S = 20.0


def scout(ticket: ScoutTicket) -> str:
    """The report of this executor, as JSON. Blocks on the store, and on the network for some seconds at most."""
    report = ScoutReport(
        socket.gethostname(),
        reported_versions(),
        reaches_client=any(_reaches(host, ticket.port) for host in ticket.hosts),
    )
    if ticket.marker:
        problem, sees_marker = _try_store(ticket)
        report = msgspec.structs.replace(report, problem=problem, sees_marker=sees_marker)
    if ticket.server is not None:
        server, server_problem = _try_server(ticket.server)
        report = msgspec.structs.replace(report, server=server, server_problem=server_problem)
    return msgspec.json.encode(report).decode()


def _try_store(ticket: ScoutTicket) -> tuple[str, bool]:
    """Why this executor cannot write to the store, empty where it can; and whether it sees the client's file."""
    with held("agent-held", scratch_root()) as scratch, closing(TokenFile(scratch)) as tokens:
        if ticket.tokens:
            tokens.keep(ticket.tokens)
        try:
            store = open_store(msgspec.structs.replace(ticket.store, timeout_s=_STORE_S))
            sees_marker = store.exists(ticket.marker)
            # Only where it is the client's directory: a probe would create a local one on the host of the executor.
            if sees_marker:
                store.probe()
        except (SparktrainError, OSError, ImportError) as error:
            return str(error) or type(error).__name__, False
    return "", sees_marker


def _try_server(server: ConnectServer) -> tuple[str, str]:
    """At which address this executor reaches the server that runs its task, and why at none."""
    operation = running_operation()
    if operation is None:
        return "", "the task does not know its operation"
    problems = []
    for target in server.targets:
        caller = ConnectCaller(msgspec.structs.replace(server, targets=(target,)))
        try:
            problem = caller.check(operation)
        finally:
            caller.close()
        if not problem:
            return target, ""
        problems.append(f"{target}: {problem}")
    return "", "; ".join(problems) or "this client does not know its address"


def _reaches(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), CONNECT_S):
        return True
    return False
