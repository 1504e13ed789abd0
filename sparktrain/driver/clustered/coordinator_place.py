"""Whether the coordinator of a call runs in this process or in the cluster, and whether it can run there."""

import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparktrain.config.connect_server import ConnectServer
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.clustered.cluster_call import check_storable
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.errors import DriverUnreachableError, ResourceError, SessionError, SpecError
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.store.base import Store

CLUSTER = "cluster"
DRIVER = "driver"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_cluster_call(call: CheckedCall, engine: Engine) -> None:
    """Raise SpecError where a coordinator in the cluster makes no sense, or could not find the run."""
    if not engine.runs_jobs:
        raise SpecError(
            "coordinator='cluster' with spark=sparktrain.local(): there is no cluster, and the agents of a local run "
            "end with this process; leave coordinator out, or start the program with nohup or tmux"
        )
    check_storable(call)
    _check_shared(call.definition.store, call.coordinator.directory, engine)


def _check_shared(store: Store, directory: str, engine: Engine) -> None:
    # By what the user wrote: a plain path is that of this machine more often than a mount, and a URL of file: is
    # for a mount. The scout proves it then.
    if engine.on_one_machine or _URL.match(directory):
        return
    raise SpecError(
        f"dir={directory} with coordinator='cluster': this is a path of this machine, and the coordinator and every "
        "agent must reach the run directory from their hosts; pass the URL of a shared store, such as hdfs:///runs or "
        f"s3://bucket/runs, or file://{store.where()} if all hosts mount that folder"
    )


def runs_in_cluster(call: CheckedCall, engine: Engine) -> str | None:
    """Why the coordinator of a call runs in the cluster; None where it runs in this process. Blocks on a Connect
    session, where the call names no place.

    Raises SpecError where it was asked for and cannot run there; DriverUnreachableError where it can run nowhere.
    """
    if call.coordinator.place == CLUSTER:
        check_cluster_call(call, engine)
        return "as the call asks"
    if call.coordinator.place == DRIVER or not engine.is_remote:
        return None
    if not (problem := _unreachable(call, engine)):
        return None
    try:
        check_cluster_call(call, engine)
    except SpecError as error:
        raise DriverUnreachableError(
            f"{problem}, so the coordinator must run in the cluster, and cannot: {error}"
        ) from error
    return problem


def _unreachable(call: CheckedCall, engine: Engine) -> str:
    """Why executors do not reach this process; empty where one of them does. Blocks."""
    try:
        address = engine.address()
        listener = socket.create_server((address.bind, address.port))
    except (SessionError, OSError) as error:
        return f"executors cannot reach this client ({error})"
    with _accepting(listener) as port:
        ticket = ScoutTicket(StoreAddress(""), "", address.hosts, port)
        report = engine.scout(ticket, call.definition.spec.start_timeout_s)
    if report.reaches_client:
        return ""
    return f"executors such as {report.host} cannot reach this client at {' or '.join(address.hosts)}"


@contextmanager
def _accepting(server: socket.socket) -> Iterator[int]:
    """Accept connections and close them; yields the port."""
    with server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=accept, name="sparktrain-reach", daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            with suppress(OSError):  # it wakes `accept`
                server.shutdown(socket.SHUT_RDWR)


def scout(call: CheckedCall, engine: Engine, tokens: bytes, server: ConnectServer | None = None) -> ScoutReport:
    """What an executor reports that can use the run's store; it tries to reach `server`. Blocks on Spark and the store.

    Raises ResourceError where it cannot, or has another directory than this process; SessionError, JoinTimeoutError.
    """
    store = call.definition.store
    marker = f".sparktrain-scout-{secrets.token_hex(8)}"
    store.put_if_absent(marker, b"")
    try:
        ticket = ScoutTicket(store.address, marker, tokens=tokens, server=server)
        report = engine.scout(ticket, call.definition.spec.start_timeout_s)
    finally:
        with suppress(OSError):
            store.delete(marker)
    where = store.where()
    if report.problem:
        raise ResourceError(
            f"coordinator='cluster': host {report.host} cannot use {where}: {report.problem}; the coordinator writes "
            "the run directory from there"
        )
    if not report.sees_marker:
        raise ResourceError(
            f"coordinator='cluster': host {report.host} sees another {where} than this process: all hosts must reach "
            "one directory; pass the URL of a shared store, such as hdfs:///runs or s3://bucket/runs"
        )
    return report
