"""The configuration of an application that performs a call of a session: the session's, but for its place. Pure."""

import re
from collections.abc import Mapping

from sparktrain.errors import SpecError

EXECUTOR_PYTHON_KEY = "spark.pyspark.python"
DRIVER_PYTHON_KEY = "spark.pyspark.driver.python"
MASTER_PYTHON_KEY = "spark.yarn.appMasterEnv.PYSPARK_PYTHON"
ATTEMPTS_KEY = "spark.yarn.maxAppAttempts"

_ARCHIVES_KEYS = ("spark.archives", "spark.yarn.dist.archives")
_PLACE = re.compile(
    r"""
    spark\.(?:
        master | submit\.deployMode | app\.(?:id|name|startTime|submitTime|initial\..*|attempt\.id)
        | driver\.(?:host|port|bindAddress|appUIAddress|blockManager\.port) | executor\.id | ui\.(?:filters|proxyBase)
        | org\.apache\.hadoop\..* | sql\.warehouse\.dir | sql\.catalogImplementation | repl\..* | jars
        | yarn\.(?:tags|app\..*|isPython|secondary\.jars|cache\..*|dist\.(?:pyFiles|jars)|submit\..*)
        | sparktrain\.driver\..*
    )
    """,
    re.VERBOSE,
)
"""What Spark sets for one application, or what belongs to a driver on the client's host."""


def settings_of_application(settings: Mapping[str, str], name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The configuration of the application for the run `name`, from that of the session and the client's environment.

    Raises SpecError where the session names no Python for a driver in a container.
    """
    python = python_of_driver(settings, environment)
    session_settings = {key: value for key, value in settings.items() if not _PLACE.fullmatch(key)}
    return {
        EXECUTOR_PYTHON_KEY: environment.get("PYSPARK_PYTHON") or python,
        **session_settings,
        DRIVER_PYTHON_KEY: python,
        MASTER_PYTHON_KEY: python,
        "spark.app.name": f"sparktrain {name}",
        # The process that submits it ends then: the run directory and the ResourceManager have the rest.
        "spark.yarn.submit.waitAppCompletion": "false",
    }


def python_of_driver(settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The Python of a driver in a container: that of the session's archive, or the one that the session names.

    Raises SpecError where there is none: a path of the client may be missing on the nodes.
    """
    if python := settings.get(MASTER_PYTHON_KEY):
        return python
    executor_python = settings.get(EXECUTOR_PYTHON_KEY) or environment.get("PYSPARK_PYTHON") or ""
    folder = executor_python.removeprefix("./").partition("/")[0]
    if folder and folder in _archive_folders(settings):
        return executor_python
    raise SpecError(
        "submit() on YARN runs the driver in a container, and this session has no Python for it: `sparktrain pack` "
        "prints the URL of an archive with this Python; start the session with spark.archives=URL#environment and "
        f"{EXECUTOR_PYTHON_KEY}=./environment/bin/python, or, if all nodes have one Python with sparktrain, set "
        f"{MASTER_PYTHON_KEY} to its path"
    )


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings as the text of a properties file, which Java reads."""
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value, ' ')}\n" for key, value in settings.items())


def _archive_folders(settings: Mapping[str, str]) -> set[str]:
    """The names that archives have in the working directory of a container."""
    entries = [entry.strip() for key in _ARCHIVES_KEYS for entry in settings.get(key, "").split(",")]
    return {entry.rpartition("#")[2].rpartition("/")[2] for entry in entries if entry}


def _escaped(text: str, special: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "".join(f"\\{character}" if character in special else character for character in escaped)
