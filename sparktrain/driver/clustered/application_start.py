"""A call that an application of its own on YARN performs, from the client: it stores the call, and has it submitted.

`spark-submit` takes seconds to minutes, and the client may end at any time. So a process in a session of its own
submits the application, and stores in the run directory why it could not.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.cluster.yarn_client import ResourceManager
from sparktrain.display.progress import Display
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.clustered.application_packet import (
    ATTEMPTS,
    ApplicationPacket,
    ApplicationRequest,
    StoredApplication,
    write_application,
)
from sparktrain.driver.clustered.application_settings import ATTEMPTS_KEY, python_of_driver, settings_of_application
from sparktrain.driver.clustered.cluster_launch import pickled_callbacks, store_for_cluster
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.submitted_jobs.follow import spark_submit
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.locate import RunLocation

_SUBMITTER = "sparktrain.driver.clustered.application_submitter"
_OF_THE_CLIENT = ("PYSPARK_", "_PYSPARK_", "_SPARK_")
"""Starts of names of variables that lead `spark-submit` to the Spark of this process."""


def start_application(
    call: CheckedCall, agents: OwnAgents, display: Display, settings: Mapping[str, str]
) -> RunLocation:
    """Store a checked call, and have an application submitted that performs it; returns where the run is.

    `settings` are those of the session. Blocks on Spark and the store, and not on YARN. Raises as
    `cluster_launch.start_in_cluster`, and SpecError where a driver in a container would have no Python, or this machine
    has no `spark-submit`.
    """
    python_of_driver(settings, os.environ)  # before the run has a name
    program = spark_submit(os.environ.get("SPARK_HOME"))
    callbacks = pickled_callbacks(call.observers.callbacks)
    cluster_call = store_for_cluster(call, agents, display, "an application of its own on YARN has the driver")
    if isinstance(cluster_call, SweepResult):
        return RunLocation(call.definition.store, call.definition.layout)
    definition = cluster_call.run.definition
    packet = ApplicationPacket(
        store=definition.store.address,
        run=definition.spec.name,
        call=cluster_call.name,
        attempts=int(settings.get(ATTEMPTS_KEY, ATTEMPTS)),
        env=cluster_call.run.call.env,
        callbacks=callbacks,
    )
    tag = f"sparktrain-{secrets.token_hex(6)}"
    urls = ResourceManager.configured().urls
    application = StoredApplication(tag=tag, at=SystemClock().wall(), urls=urls)
    write_application(definition.store, definition.layout, cluster_call.name, application)
    application_settings = settings_of_application(settings, definition.spec.name, os.environ)
    _submit(ApplicationRequest(packet=packet, tag=tag, spark_submit=program, settings=application_settings))
    return RunLocation(definition.store, definition.layout)


def _submit(request: ApplicationRequest) -> None:
    """Start the process that submits; it outlives this one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_CLIENT)}
    environment.pop("SPARK_ENV_LOADED", None)  # spark-submit would not read conf/spark-env.sh
    # This process may import from folders that are not in its environment, such as that of a notebook.
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {_SUBMITTER} import main; main()"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(msgspec.msgpack.encode(request))
    spawn(lambda: _reap(process), "sparktrain-submitter")


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process, which would stay a zombie otherwise."""
    process.wait()
