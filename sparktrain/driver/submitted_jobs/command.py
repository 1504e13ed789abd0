"""Builds the `spark-submit` line of a job. Pure."""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from sparktrain.cluster import yarn_capacity
from sparktrain.cluster.kubernetes_pods import KUBERNETES
from sparktrain.cluster.spark_facts import YARN
from sparktrain.errors import SpecError

MASTER_KEY = "spark.master"
MODE_KEY = "spark.submit.deployMode"
TAGS_KEY = "spark.yarn.tags"
UPLOAD_KEY = "spark.kubernetes.file.upload.path"
ENVIRONMENT = "environment"
"""The folder of an executor's pack, in the working directory of its container."""
PYTHON = f"./{ENVIRONMENT}/bin/python"

_EXECUTOR_PYTHON_KEY = "spark.pyspark.python"
_DRIVER_PYTHON_KEY = "spark.pyspark.driver.python"
_MASTER_PYTHON_KEY = "spark.yarn.appMasterEnv.PYSPARK_PYTHON"
_SELECTOR_KEY = "spark.kubernetes.executor.node.selector."
_WAIT_KEY = "spark.kubernetes.submission.waitAppCompletion"
_SECRET = re.compile(r"secret|password|token|credential|access[.]?key|account[.]?key", re.IGNORECASE)
"""Names of secret settings: those that Spark hides in its own logs, and those of cloud stores."""
_REFERENCE = re.compile(r"File$|pullSecrets$|^spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")
"""Names of settings that only name where a secret is."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PROPERTY = re.compile(r"\s*([^\s=:]+)\s*[\s=:]\s*(.*?)\s*")


class Mode(StrEnum):
    """Where the driver runs. The value is spark-submit's name for it."""

    CLIENT = "client"  # on this machine
    CLUSTER = "cluster"  # in a container of YARN, or a pod


class ClusterPlacement(Struct, frozen=True, kw_only=True):
    """Where an application runs; None leaves a value to Spark's own configuration."""

    master: str = YARN
    mode: Mode = Mode.CLIENT
    queue: str | None = None
    """Of YARN alone."""
    label: str | None = None
    """On YARN a name, on Kubernetes `KEY=VALUE`."""
    executors: int | None = None
    cores: int | None = None
    """Cores of each executor."""
    memory: str | None = None
    """Memory of each executor, in Spark's format."""

    @property
    def in_pods(self) -> bool:
        """Whether it runs on Kubernetes."""
        return self.master.startswith(KUBERNETES)


class Job(Struct, frozen=True, kw_only=True):
    """A job for spark-submit."""

    program: str
    """A file of `jobs/`."""
    words: tuple[str, ...]
    """The arguments of the program."""
    place: ClusterPlacement = ClusterPlacement()
    conf: Mapping[str, str] = {}
    properties_file: str | None = None
    properties: Mapping[str, str] = {}
    """The settings in that file."""
    files: tuple[str, ...] = ()
    """Files for the driver's working directory, in cluster mode."""
    py_files: tuple[str, ...] = ()
    archive: str | None = None
    """The path or URL of the pack that executors run from; None for the Python of the nodes."""
    python: str = "python3"
    """The Python of a driver on this machine."""
    tag: str = ""
    """The tag that identifies the application on YARN."""


def line_of(job: Job, spark_submit: str = "spark-submit") -> list[str]:
    """The words of the command line, as a user would write them."""
    place = job.place
    words = [spark_submit, "--master", place.master, "--deploy-mode", str(place.mode)]
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


def _all(job: Job, key: str, additions: Sequence[str]) -> str | None:
    """The value of an option in place of the setting `key`: the user's entries and `additions`. None for no option."""
    # The option of spark-submit replaces the setting, with all that the user has listed there.
    user_entries = (job.conf.get(key) or job.properties.get(key) or "").split(",")
    return ",".join(dict.fromkeys((*filter(None, map(str.strip, user_entries)), *additions))) if additions else None


def settings_of(job: Job) -> dict[str, str]:
    """Spark's configuration as far as the line sets it, for checks before it is submitted."""
    place = job.place
    named = {
        yarn_capacity.QUEUE_KEY: place.queue,
        "spark.executor.instances": place.executors,
        "spark.executor.cores": place.cores,
        "spark.executor.memory": place.memory,
    }
    return {**job.properties, **{key: str(value) for key, value in named.items() if value is not None}, **_conf(job)}


def _conf(job: Job) -> dict[str, str]:
    conf = {**(_conf_of_pods(job) if job.place.in_pods else _conf_of_containers(job)), **job.conf}
    if job.place.in_pods and job.place.mode is Mode.CLUSTER:
        conf[_WAIT_KEY] = "true"  # what spark-submit prints while it waits is all that is known of the driver
    elif job.tag and not job.place.in_pods:
        user_tags = conf.get(TAGS_KEY) or job.properties.get(TAGS_KEY)
        conf[TAGS_KEY] = f"{user_tags},{job.tag}" if user_tags else job.tag
    return conf


def _conf_of_containers(job: Job) -> dict[str, str]:
    conf = {yarn_capacity.LABEL_KEY: job.place.label} if job.place.label is not None else {}
    if job.archive is not None and job.place.mode is Mode.CLIENT:
        conf |= {_EXECUTOR_PYTHON_KEY: PYTHON, _DRIVER_PYTHON_KEY: job.python}
    elif job.archive is not None:
        conf |= {_EXECUTOR_PYTHON_KEY: PYTHON, _DRIVER_PYTHON_KEY: PYTHON, _MASTER_PYTHON_KEY: PYTHON}
    return conf


def _conf_of_pods(job: Job) -> dict[str, str]:
    key, _, value = (job.place.label or "").partition("=")
    conf = {f"{_SELECTOR_KEY}{key}": value} if key else {}
    # The Python of pods is that of their image, which the user's own configuration names.
    is_named = _DRIVER_PYTHON_KEY in job.properties
    return conf | ({_DRIVER_PYTHON_KEY: job.python} if job.place.mode is Mode.CLIENT and not is_named else {})


def check_open(keys: Iterable[str], given_by: str) -> None:
    """Raises SpecError for a secret: all users of this machine see the line while the application runs."""
    for key in keys:
        if _SECRET.search(key) and not _REFERENCE.search(key):
            raise SpecError(
                f"{given_by} {key}=... would show a secret to all users of this machine: write it into a file that "
                "only you can read, and pass that with --properties-file"
            )


def properties_in(text: str) -> dict[str, str]:
    """The settings in a properties file of Spark: a key, a blank or `=`, and a value on each line."""
    properties = {}
    for line in text.splitlines():
        match = _PROPERTY.fullmatch(line)
        if match is not None and not match[1].startswith(("#", "!")):
            properties[match[1]] = match[2]
    return properties


# ---- files of a driver in a container


class Shipped(Struct, frozen=True):
    """Arguments for a driver in a container, and the files that it needs."""

    words: tuple[str, ...]
    files: tuple[str, ...]


def shipped(words: Sequence[str], files: Sequence[str]) -> Shipped:
    """`words` with each of `files` under its name in the driver's working directory.

    Raises SpecError for two files with the same name there.
    """
    names: dict[str, str] = {}
    for path in dict.fromkeys(files):
        name = os.path.basename(path)
        if name in names.values():
            paths = ", ".join([path, *(other_path for other_path in names if names[other_path] == name)])
            raise SpecError(f"{paths} cannot go to one driver, which would have both as {name}: rename one of them")
        names[path] = name
    return Shipped(tuple(_renamed(word, names) for word in words), tuple(names))


def file_of_target(target: str) -> str | None:
    """The file of a training function; None for one that is named by its module."""
    path, _, function = target.rpartition(":")
    return path if function and path.endswith(".py") else None


def check_shared(directory: str | None, option: str = "--dir") -> None:
    """Raises SpecError for a run directory that would be lost with the driver's container."""
    if directory is None or not (_URL.match(directory) or posixpath.isabs(directory)):
        subject = f"{option} {directory}" if directory is not None else f"without {option}, the run directory"
        raise SpecError(
            f"{subject} is in the driver's container in cluster mode, and is lost with it: pass {option} with a URL "
            "such as hdfs:///runs, or an absolute path that all nodes share"
        )


def check_place(place: ClusterPlacement) -> None:
    """Raises SpecError for a cluster that no job can be submitted to, and for options that it does not have."""
    if place.master != YARN and not place.in_pods:
        raise SpecError(
            f"--master {place.master} is neither {YARN} nor {KUBERNETES}URL, the masters that submit brings a job to: "
            "pass the master to the command of the job itself"
        )
    if not place.in_pods:
        return
    if place.queue is not None:
        raise SpecError(f"--queue {place.queue} is for YARN alone, and the master is {place.master}: leave it out")
    if place.label is not None and not all(place.label.partition("=")):
        raise SpecError(f"--label {place.label} must be KEY=VALUE on Kubernetes, as in accelerator=gpu")


def check_uploads(job: Job) -> None:
    """Raises SpecError where the files of a driver in a pod have no way there."""
    if job.place.in_pods and job.place.mode is Mode.CLUSTER and not settings_of(job).get(UPLOAD_KEY):
        names = ", ".join(os.path.basename(path) for path in (job.program, *job.files, *job.py_files))
        raise SpecError(
            f"{names} must reach the driver's pod: pass --conf {UPLOAD_KEY}=URL with a folder of HDFS or an "
            "object store (s3a://) that Spark reaches from here and from the pod"
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
