"""The program of an application on YARN that performs one stored call: the driver, with a session of its own.

`spark-submit` runs this file in a container, with the name of the packet's file. A second driver of the application
makes the same call, and resumes the run. How the call ends is stored for good only where no other driver can change it:
an infrastructure error of the first driver is no end while YARN has an attempt left.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparktrain.base.decoding import from_msgpack
from sparktrain.cluster.spark_session import local_session
from sparktrain.cluster.yarn_container import this_attempt
from sparktrain.display.live import choose_display
from sparktrain.driver.agent_sources import LateAgents
from sparktrain.driver.clustered.application_packet import ApplicationPacket
from sparktrain.driver.clustered.cluster_call import read_call
from sparktrain.driver.clustered.coordinator_main import end_of
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.engines.spark_engine import spark_engine
from sparktrain.driver.launch import launch
from sparktrain.errors import InfraError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorFolder
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.sweep_outcome import CODE_OF_STATUS
from sparktrain.store.url import open_store

_RAISED = 1


def main(path: str) -> int:
    """Perform the call of the packet in the file `path`; returns the exit code of the driver. Blocks."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs a traceback for each socket that closes under it
    packet = from_msgpack(Path(path).read_bytes(), ApplicationPacket)
    folder = CoordinatorFolder(open_store(packet.store), RunLayout(packet.run).coordinator(packet.call))
    try:
        sweep_result = _performed(packet)
    except Exception as error:  # and not for SIGTERM: YARN may start the next driver, or reports who has ended this one
        if not isinstance(error, InfraError) or this_attempt()[1] >= packet.attempts:
            folder.finish(end_of(error))
        print(f"error: {error}", file=sys.stderr, flush=True)
        return _RAISED
    folder.finish(CallEnd())
    return CODE_OF_STATUS[sweep_result.status]


def _performed(packet: ApplicationPacket) -> SweepResult:
    """The result of the call. Raises as `sparktrain.sweep`."""
    store = open_store(packet.store)
    layout = RunLayout(packet.run)
    stored_call = read_call(store, layout, packet.call)
    call = stored_call.checked(store, layout, dict(packet.env), packet.callbacks, succeeds=False)
    return launch(call, LateAgents(lambda: _engine(packet.run)), choose_display())


@contextmanager
def _engine(run: str) -> Iterator[Engine]:
    with local_session(None, {}, f"sparktrain {run}") as spark:
        yield spark_engine(spark)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
