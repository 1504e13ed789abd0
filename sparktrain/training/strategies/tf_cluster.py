"""TensorFlow's own cluster: what a gang with backend "tensorflow" is to TF_CONFIG, to servers, and when it breaks."""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from sparktrain.clock import Clock, pause
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.ring_errors import causes

_PROBE_S = 0.05
_PROBE_TIMEOUT_S = 0.5
_REUSE_PORT = "TF_GRPC_REUSE_PORT"
_NO_SERVER = "Could not start gRPC server"
_LOST = ("UnavailableError", "AbortedError", "DeadlineExceededError")
_LOST_WORDS = ("Collective ops is aborted", "stopped sending heartbeats", "coordination service")


def cluster_spec(formation: Formation) -> dict[str, list[str]]:
    """`host:port` of the members by role, as TensorFlow writes a cluster; an evaluator watches it and is not in it."""
    return {role: addresses for role, addresses in formation.cluster().items() if role != Role.EVALUATOR}


def tf_config(formation: Formation) -> str:
    """TF_CONFIG, as JSON, of this member; without a cluster for one that is alone."""
    if formation.size == 1:
        return "{}"
    task = {"type": formation.role.value, "index": formation.index}
    return json.dumps({"cluster": cluster_spec(formation), "task": task, "rpc_layer": "grpc"})


def trainers(formation: Formation) -> int:
    """Members that run the training function in order to train: all but parameter servers and evaluators."""
    return sum(place.role in (Role.CHIEF, Role.WORKER) for place in formation.places)


def has_ps(formation: Formation) -> bool:
    """Whether the gang has parameter servers, and its other workers are servers too."""
    return any(place.role is Role.PS for place in formation.places)


def is_server(formation: Formation) -> bool:
    """Whether this member serves its chief, and so never enters the training function."""
    return formation.role is Role.PS or (formation.role is Role.WORKER and has_ps(formation))


def serve_if_server(formation: Formation, release_port: Callable[[], None]) -> bool:
    """Be a server of TensorFlow until this process is ended; False, at once, for a member that is none.

    Blocks in native code for as long as the process lives, whatever becomes of the chief: whoever started the process
    ends it, and SIGTERM does. To be called by the main thread, before any op. Raises FormError when the port is taken.
    """
    if not is_server(formation):
        return False
    _serve(formation, release_port)


def _serve(formation: Formation, release_port: Callable[[], None]) -> NoReturn:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    # A worker that waits for a parameter server holds a thread: with fewer threads than workers all could wait.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, trainers(formation) + 1)
    if formation.role is Role.PS:
        config.device_count["GPU"] = 0  # it keeps variables in memory, and shall leave the GPUs to those that compute
    with port_kept(formation.mine, release_port):
        server = tf.distribute.Server(
            tf.train.ClusterSpec(cluster_spec(formation)),
            job_name=formation.role.value,
            task_index=formation.index,
            protocol="grpc",
            config=config,
        )
    server.join()
    raise FormError(f"TensorFlow's server at {formation.mine.address}:{formation.mine.port} ended by itself")


@contextmanager
def port_kept(place: MemberAddress, release_port: Callable[[], None]) -> Iterator[None]:
    """Hold the port of `place` until TensorFlow's server has bound it too, within this context; then let it go.

    A port that is let go before could be given to anyone. The server binds a port that is held only when it is told so
    by a variable of the environment; both sockets have SO_REUSEPORT then, and only the server's listens. Raises
    FormError when the server cannot be started.
    """
    kept = os.environ.get(_REUSE_PORT)
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
        if kept is not None:
            os.environ[_REUSE_PORT] = kept
        release_port()


def is_cluster_error(error: BaseException) -> bool:
    """Whether `error` says that another member of TensorFlow's cluster is gone, and not that the function is wrong.

    It may be what such an error has caused: an error of the user's, or an aborted closure of a coordinator. The same
    types are raised where a file system of TensorFlow's cannot be reached, which is no mistake of the function either.
    """
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    return errors is not None and any(_is_lost(each, errors) for each in causes(error))


def _is_lost(error: BaseException, errors: Any) -> bool:
    if isinstance(error, tuple(getattr(errors, name) for name in _LOST)):
        return True
    return isinstance(error, errors.OpError) and any(word in str(error) for word in _LOST_WORDS)


def await_members(formation: Formation, timeout_s: float, why: str, clock: Clock) -> None:
    """Block until every other member of the cluster listens at its port, as this one does meanwhile.

    TensorFlow waits for its members too, but for an hour, and without letting any thread of Python's run. A member that
    has gone on, and has its server at the port, listens as well: so nobody has to be told. Raises FormError, which
    names who did not come and says `why` they should have, when `timeout_s` is over.
    """
    deadline = clock.now() + timeout_s
    missing = {rank for rank, place in enumerate(formation.places) if place.role is not Role.EVALUATOR}
    missing.discard(formation.rank)
    with _listening(formation.mine.port):
        while True:
            missing = {rank for rank in missing if not _reached(formation.places[rank])}
            if not missing:
                return
            if clock.now() > deadline:
                break
            pause(_PROBE_S)
    places = [(rank, formation.places[rank]) for rank in sorted(missing)]
    who = ", ".join(f"rank {rank} ({place.role.value}) at {place.host}:{place.port}" for rank, place in places)
    raise FormError(f"{who} did not come within {timeout_s:g} s; {why}")


@contextmanager
def _listening(port: int) -> Iterator[None]:
    """Listen at the port that this process holds. Nothing is accepted: the kernel greets whoever connects."""
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
