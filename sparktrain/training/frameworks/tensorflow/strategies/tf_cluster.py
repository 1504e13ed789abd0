"""TensorFlow's cluster for a gang with backend "tensorflow": servers, their ports, and members that do not come."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from sparktrain.base.clock import Clock, pause
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress

_PROBE_S = 0.05
_PROBE_TIMEOUT_S = 0.5
_REUSE_PORT = "TF_GRPC_REUSE_PORT"
_NO_SERVER = "Could not start gRPC server"


def serve_cluster(formation: Formation, release_port: Callable[[], None]) -> NoReturn:
    """Run a server of TensorFlow until this process ends, for a member that `is_server`.

    Blocks in native code for the life of the process, even after the loss of the chief: its parent ends it by SIGTERM.
    Call it in the main thread, before any op. Raises FormError when the port is taken.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    # A worker that waits for a parameter server holds a thread: with fewer threads than workers all could block.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, formation.trainers + 1)
    if formation.role is Role.PS:
        config.device_count["GPU"] = 0  # it keeps variables in memory: GPUs are for workers
    with port_kept(formation.mine, release_port):
        server = tf.distribute.Server(
            tf.train.ClusterSpec(formation.cluster_spec()),
            job_name=formation.role.value,
            task_index=formation.index,
            protocol="grpc",
            config=config,
        )
    server.join()
    raise FormError(f"TensorFlow's server at {formation.mine.address}:{formation.mine.port} ended by itself")


@contextmanager
def port_kept(place: MemberAddress, release_port: Callable[[], None]) -> Iterator[None]:
    """Hold the port of `place` within this context, in which TensorFlow's server binds it too; then release it.

    Another process could take a port that is released before. The server binds a held port only with a variable of the
    environment; both sockets have SO_REUSEPORT then, and only the server's listens. Raises FormError when the server
    cannot start.
    """
    old_value = os.environ.get(_REUSE_PORT)
    os.environ[_REUSE_PORT] = "true"
    try:
        yield
    except Exception as error:
        if _NO_SERVER not in str(error):
            raise
        where = f"{place.address}:{place.port}"
        raise FormError(f"TensorFlow's server cannot be started at {where}, another process has that port") from error
    finally:
        os.environ.pop(_REUSE_PORT)
        if old_value is not None:
            os.environ[_REUSE_PORT] = old_value
        release_port()


def port_is_kept() -> bool:
    """Whether this process is in a context of `port_kept`."""
    return _REUSE_PORT in os.environ


def await_members(formation: Formation, timeout_s: float, why: str, clock: Clock) -> None:
    """Block until every other member of the cluster listens at its port; this one listens meanwhile.

    TensorFlow waits for its members too, but for an hour, and blocks all Python threads. A member that has continued
    has its server at the port and listens as well, so no message is needed. Raises FormError, which names the missing
    members and appends `why`, after `timeout_s`.
    """
    missing = {rank for rank, place in enumerate(formation.places) if place.role is not Role.EVALUATOR}
    missing.discard(formation.rank)
    with _listening(formation.mine.port):
        _await_reached(formation, missing, timeout_s, why, clock)


def await_servers(formation: Formation, timeout_s: float, why: str, clock: Clock) -> None:
    """Block until every parameter server listens. Raises FormError, which names the missing ones, as `await_members`.

    For a member that has its server.
    """
    servers = {rank for rank, place in enumerate(formation.places) if place.role is Role.PS}
    _await_reached(formation, servers, timeout_s, why, clock)


def _await_reached(formation: Formation, missing: set[int], timeout_s: float, why: str, clock: Clock) -> None:
    deadline = clock.now() + timeout_s
    while missing := {rank for rank in missing if not _reached(formation.places[rank])}:
        if clock.now() > deadline:
            break
        pause(_PROBE_S)
    else:
        return
    places = [(rank, formation.places[rank]) for rank in sorted(missing)]
    members = ", ".join(f"rank {rank} ({place.role.value}) at {place.host}:{place.port}" for rank, place in places)
    raise FormError(f"{members} did not come within {timeout_s:g} s; {why}")


@contextmanager
def _listening(port: int) -> Iterator[None]:
    """Listen at the port that this process holds. It accepts nothing: the kernel completes connections."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("", port))
        listener.listen()
        yield


def _reached(place: MemberAddress) -> bool:
    try:
        socket.create_connection((place.address, place.port), _PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True
