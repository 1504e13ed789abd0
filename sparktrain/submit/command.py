"""The `spark-submit` line of a job: from what was asked for to its words. Pure."""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from sparktrain.cluster import yarn_capacity
from sparktrain.errors import SpecError

TAGS_KEY = "spark.yarn.tags"
MODE_KEY = "spark.submit.deployMode"
ENVIRONMENT = "environment"
"""The folder of an executor's pack, in the working directory of its container."""
PYTHON = f"./{ENVIRONMENT}/bin/python"

_EXECUTOR_PYTHON_KEY = "spark.pyspark.python"
_DRIVER_PYTHON_KEY = "spark.pyspark.driver.python"
_MASTER_PYTHON_KEY = "spark.yarn.appMasterEnv.PYSPARK_PYTHON"
_SECRET = re.compile(r"secret|password|token|credential|access[.]?key|account[.]?key", re.IGNORECASE)
"""Of the name of a setting: as Spark hides values from its own logs, and those of cloud stores."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PROPERTY = re.compile(r"\s*([^\s=:]+)\s*[\s=:]\s*(.*?)\s*")


class Mode(StrEnum):
    """Where the driver runs. The value is spark-submit's word."""

    CLIENT = "client"  # here
    CLUSTER = "cluster"  # in a container of YARN


class YarnPlacement(Struct, frozen=True):
    """Where an application runs on YARN; None for what Spark's own configuration says."""

    mode: Mode = Mode.CLIENT
    queue: str | None = None
    label: str | None = None
    executors: int | None = None
    cores: int | None = None
    """Of each executor."""
    memory: str | None = None
    """Of each executor, as Spark writes sizes."""


class Job(Struct, frozen=True):
    """What is submitted."""

    program: str
    """A file of `jobs/`."""
    words: tuple[str, ...]
    """Its arguments."""
    place: YarnPlacement = YarnPlacement()
    conf: Mapping[str, str] = {}
    properties_file: str | None = None
    properties: Mapping[str, str] = {}
    """What that file says."""
    files: tuple[str, ...] = ()
    """That the driver finds in its working directory, in cluster mode."""
    py_files: tuple[str, ...] = ()
    archive: str | None = None
    """Of the pack that executors run from, a path or a URL; None for the Python of the nodes."""
    python: str = "python3"
    """Of a driver that runs here."""
    tag: str = ""
    """By which the application is found among others."""


def line_of(job: Job, spark_submit: str = "spark-submit") -> list[str]:
    """The words of the line, as a user would write them."""
    place = job.place
    words = [spark_submit, "--master", "yarn", "--deploy-mode", str(place.mode)]
    options = {
        "--properties-file": job.properties_file,
        "--queue": place.queue,
        "--num-executors": place.executors,
        "--executor-cores": place.cores,
        "--executor-memory": place.memory,
        "--archives": _all(job, "spark.archives", [f"{job.archive}#{ENVIRONMENT}"] if job.archive is not None else []),
        "--files": _all(job, "spark.files", job.files),
        "--py-files": _all(job, "spark.submit.pyFiles", job.py_files),
    }
    for name, value in options.items():
        words += [name, str(value)] if value is not None else []
    for key, value in _conf(job).items():
        words += ["--conf", f"{key}={value}"]
    return [*words, job.program, *job.words]


def _all(job: Job, key: str, own: Sequence[str]) -> str | None:
    """What is listed for an option which prevails over a setting: that of the user's as well. None for no option."""
    others = (job.conf.get(key) or job.properties.get(key) or "").split(",")
    return ",".join(dict.fromkeys((*filter(None, map(str.strip, others)), *own))) if own else None


def settings_of(job: Job) -> dict[str, str]:
    """What Spark's configuration will be, as far as the line says it: for checks before it is submitted."""
    place = job.place
    named = {
        yarn_capacity.QUEUE_KEY: place.queue,
        "spark.executor.instances": place.executors,
        "spark.executor.cores": place.cores,
        "spark.executor.memory": place.memory,
    }
    return {**job.properties, **{key: str(value) for key, value in named.items() if value is not None}, **_conf(job)}


def _conf(job: Job) -> dict[str, str]:
    conf: dict[str, str] = {}
    if job.place.label is not None:
        conf[yarn_capacity.LABEL_KEY] = job.place.label
    if job.archive is not None and job.place.mode is Mode.CLIENT:
        conf |= {_EXECUTOR_PYTHON_KEY: PYTHON, _DRIVER_PYTHON_KEY: job.python}
    elif job.archive is not None:
        conf |= {_EXECUTOR_PYTHON_KEY: PYTHON, _DRIVER_PYTHON_KEY: PYTHON, _MASTER_PYTHON_KEY: PYTHON}
    conf |= job.conf
    if job.tag:
        others = conf.get(TAGS_KEY) or job.properties.get(TAGS_KEY)
        conf[TAGS_KEY] = f"{others},{job.tag}" if others else job.tag
    return conf


def check_open(keys: Iterable[str], given_by: str) -> None:
    """Raises SpecError for a secret: everybody on this machine sees the line while the application runs."""
    for key in keys:
        if _SECRET.search(key):
            raise SpecError(
                f"{given_by} {key}=... would show a secret to everybody on this machine: write it into a file that you "
                "alone can read, and pass that with --properties-file"
            )


def properties_in(text: str) -> dict[str, str]:
    """What a file of Spark's properties says: a key, a blank or `=`, and a value on each line."""
    found = {}
    for line in text.splitlines():
        match = _PROPERTY.fullmatch(line)
        if match is not None and not match[1].startswith(("#", "!")):
            found[match[1]] = match[2]
    return found


# ---- what a driver in a container finds


class Shipped(Struct, frozen=True):
    """Arguments for a driver elsewhere, and the files that go with them."""

    words: tuple[str, ...]
    files: tuple[str, ...]


def shipped(words: Sequence[str], files: Sequence[str]) -> Shipped:
    """`words` in which each of `files` is named as it is in the driver's working directory.

    Raises SpecError for two files of one name there.
    """
    names: dict[str, str] = {}
    for path in dict.fromkeys(files):
        name = os.path.basename(path)
        if name in names.values():
            both = ", ".join([path, *(other for other in names if names[other] == name)])
            raise SpecError(f"{both} cannot go to one driver, where both are {name}: rename one of them")
        names[path] = name
    return Shipped(tuple(_renamed(word, names) for word in words), tuple(names))


def file_of_target(target: str) -> str | None:
    """The file that a training function is in; None for one that is named by its module."""
    path, _, function = target.rpartition(":")
    return path if function and path.endswith(".py") else None


def check_shared(directory: str | None, option: str = "--dir") -> None:
    """Raises SpecError for a run directory that would be lost with the driver's container."""
    if directory is None or not (_URL.match(directory) or posixpath.isabs(directory)):
        told = f"{option} {directory}" if directory is not None else f"without {option}, the run directory"
        raise SpecError(
            f"{told} is in the driver's container in cluster mode, and goes with it: pass {option} with a URL such as "
            "hdfs:///runs, or an absolute path that all nodes share"
        )


def _renamed(word: str, names: Mapping[str, str]) -> str:
    """The word with the path in it renamed, if there is one: alone, before `:function`, or after `--option=`."""
    head, equals, tail = word.partition("=") if word.startswith("--") else ("", "", word)
    path, colon, function = tail.rpartition(":")
    if tail in names:
        return f"{head}{equals}{names[tail]}"
    if path in names:
        return f"{head}{equals}{names[path]}{colon}{function}"
    return word
