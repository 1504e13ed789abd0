"""Where an agent runs, and with what: read from Spark's task."""

import os
import socket

from msgspec import Struct
from pyspark import TaskContext

from sparktrain.spec.versions import installed_versions


class Placement(Struct, frozen=True):
    """One Spark task, as the agent in it sees it."""

    slot: int
    host: str
    pid: int
    cpus: int | None
    """Cores that Spark gives the task; None outside of one."""
    gpus: tuple[str, ...]
    versions: dict[str, str]


def placement(slot: int) -> Placement:
    """Of the Spark task that calls this; with no cores and GPUs of its own outside of one."""
    task = TaskContext.get()
    resources = task.resources() if task is not None else {}
    gpus = tuple(resources["gpu"].addresses) if "gpu" in resources else ()
    cpus = task.cpus() if task is not None else None
    return Placement(slot, socket.gethostname(), os.getpid(), cpus, gpus, installed_versions())
