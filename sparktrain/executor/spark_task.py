"""The host and resources of an agent: from Spark's task, or given by the driver on this machine."""

import os
import socket
import tempfile
from contextlib import suppress
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from sparktrain.base import process_tree
from sparktrain.base.ids import SparkTask
from sparktrain.base.routes import address_towards
from sparktrain.config.connect_server import ConnectOperation, operation_in
from sparktrain.config.environment import KERAS_BACKEND, keras_backend
from sparktrain.config.versions import REPORTED, installed_versions
from sparktrain.executor.devices import Device, devices
from sparktrain.protocol.ticket import AgentTicket

NODE_KEY = "SPARKTRAIN_NODE"
"""The variable with the node of a pod, which a pod template can set: Spark gives executors that of the pod alone."""
_TAGS = "spark.job.tags"
"""The property of a task with the tags of its job."""


class Placement(Struct, frozen=True):
    """The host and resources of one Spark task."""

    slot: int
    host: str
    """In a pod the node, where its template names it; else the pod."""
    pid: int
    executor: int
    """The id of Spark's process that starts all tasks of the executor."""
    cpus: int | None
    """Cores that Spark assigns to the task; None outside of a task."""
    gpus: tuple[str, ...]
    """Addresses of GPUs that Spark assigns to the task."""
    devices: tuple[Device, ...]
    """The same GPUs by names that are unique on the host."""
    versions: dict[str, str]
    address: str = "127.0.0.1"
    """The IP address of this host for other agents."""
    task: SparkTask | None = None
    jvm: int | None = None
    """The process of Spark's executor, which starts `executor`; None outside of a task."""
    operation: ConnectOperation | None = None
    """The operation of a Connect server that runs the task; None where a classic session does."""


def placement(slot: int, ticket: AgentTicket) -> Placement:
    """The placement of the calling Spark task; without cores and GPUs outside of a task."""
    from pyspark import TaskContext  # a local agent needs no Spark

    task = TaskContext.get()
    resources = task.resources() if task is not None else {}
    gpus = tuple(resources["gpu"].addresses) if "gpu" in resources else ()
    cpus = task.cpus() if task is not None else None
    jvm = process_tree.parent_of(os.getppid()) if task is not None else None
    # No coordinator exists yet towards which there were a way: what reaches this host is what reaches Spark's executor.
    address = executor_hosts(jvm)[0] if ticket.home is not None else _address_towards(ticket.hosts, ticket.port)
    spark_task = SparkTask(task.stageId(), task.taskAttemptId()) if task is not None else None
    return Placement(
        slot=slot,
        host=os.environ.get(NODE_KEY) or socket.gethostname(),
        pid=os.getpid(),
        executor=os.getppid(),
        cpus=cpus,
        gpus=gpus,
        devices=devices(gpus),
        versions=reported_versions(),
        address=address,
        task=spark_task,
        jvm=jvm,
        operation=running_operation(),
    )


def running_operation() -> ConnectOperation | None:
    """The operation of a Connect server that runs the calling task; None outside of one."""
    from pyspark import TaskContext  # as above

    task = TaskContext.get()
    return None if task is None else operation_in(task.getLocalProperty(_TAGS))


def reported_versions() -> dict[str, str]:
    """What an executor reports about its Python when an agent joins."""
    return installed_versions(REPORTED) | _keras()


def _keras() -> dict[str, str]:
    """The backend that Keras takes in this process, where its environment or a file of Keras chooses one."""
    setting = keras_backend(os.environ)
    return {} if setting is None else {KERAS_BACKEND: setting[0]}


def local_placement(
    slot: int, task: SparkTask, cpus: int, gpus: tuple[str, ...], gpu_totals: tuple[int, ...] = ()
) -> Placement:
    """The placement of an agent on the driver's machine, with the cores and GPUs that the driver assigns.

    `gpu_totals` has the MiB of each GPU, where the driver knows them.
    """
    totals = dict(zip(gpus, gpu_totals, strict=False))
    return Placement(
        slot=slot,
        host=socket.gethostname(),
        pid=os.getpid(),
        executor=os.getppid(),
        cpus=cpus,
        gpus=gpus,
        devices=tuple(Device(gpu, totals.get(gpu, 0)) for gpu in gpus),
        versions=installed_versions(REPORTED),
        task=task,
    )


def _address_towards(hosts: tuple[str, ...], port: int) -> str:
    """This host's address in the network that leads to the coordinator."""
    addresses = [address for host in hosts if (address := address_towards(host, port)) is not None]
    reachable = [address for address in addresses if not ip_address(address).is_loopback]
    return next(iter([*reachable, *addresses]), "127.0.0.1")


def settle_temporary_folder() -> None:
    """Have this process and those that it starts use Spark's own folder where that of the system cannot be written to:
    in a container with a read-only root Spark mounts one."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        if writable := [folder for folder in folders if folder and os.access(folder, os.W_OK)]:
            os.environ["TMPDIR"] = writable[0]


def spark_version() -> str:
    """The version of the PySpark that runs this task."""
    from pyspark import __version__ as pyspark_version  # as above

    return str(pyspark_version)


def executor_hosts(jvm: int | None) -> tuple[str, ...]:
    """The addresses of this host for others, the likeliest first; `jvm` is the process of Spark's executor, if any.

    May block on a lookup of names.
    """
    if name := _hostname_of(jvm):
        # The address comes before its name: other hosts may not resolve it.
        return tuple(dict.fromkeys(filter(None, (_address(name), name))))
    names = tuple(dict.fromkeys((socket.getfqdn(), socket.gethostname())))
    addresses = [address for address in map(_address, names) if address]
    reachable = [address for address in addresses if not ip_address(address).is_loopback]
    return tuple(dict.fromkeys((*(reachable or addresses), *names)))


def _address(name: str) -> str:
    """The address of a name; empty where it does not resolve."""
    with suppress(OSError):
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    return ""


def _hostname_of(jvm: int | None) -> str:
    """The name under which Spark itself reaches the executor: every cluster manager passes it on its command line."""
    if jvm is None:
        return ""
    try:
        words = Path(f"/proc/{jvm}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return next((word for flag, word in pairwise(words) if flag == "--hostname"), "")


def in_pod() -> bool:
    """Whether this process is in a pod, by what Kubernetes puts into the environment of each."""
    return "KUBERNETES_SERVICE_HOST" in os.environ
