"""The process of a coordinator in the cluster: a driver without Spark, beside an agent of its own call.

It performs the stored call through the one door, `launch`, on agents that it adopts. What follows its start is what
follows that of any driver: it takes the next term of the journal, and recovers what earlier ones have recorded. Three
things are different. It publishes its address as soon as it listens, because no agent can know it otherwise. It asks an
earlier coordinator of the same call first, and stands back where that one answers: its own agent was cut off, and the
others were not. And when it is deposed it ends without dismissing agents, which its successor has by then.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from sparktrain import errors
from sparktrain.base import process_tree
from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.decoding import from_msgpack
from sparktrain.base.threads import spawn
from sparktrain.display.progress import NullDisplay
from sparktrain.driver.agent_sources import Admitted, OwnAgents
from sparktrain.driver.clustered.cluster_call import ClusterCall, read_call
from sparktrain.driver.clustered.operation_keeper import OperationKeeper
from sparktrain.driver.engines.adopted_engine import AdoptedEngine
from sparktrain.driver.launch import launch
from sparktrain.driver.pool import AgentPool
from sparktrain.errors import DeposedError, StoreTimeoutError
from sparktrain.protocol.certificates import RunCertificates, server_fingerprint
from sparktrain.protocol.coordinator_office import CoordinatorOffice, CoordinatorSecrets
from sparktrain.rundir.coordinator_folder import (
    CallEnd,
    CoordinatorAddress,
    CoordinatorFolder,
    CoordinatorHeartbeat,
    this_home,
)
from sparktrain.rundir.journal.writer import newest_driver
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import answers
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

HEARTBEAT_S = 10.0
"""Interval of the heartbeats."""

logger = logging.getLogger("sparktrain")


def main() -> None:
    """Run one coordinator to the end of its call; the standard input has its `CoordinatorOffice`."""
    process_tree.die_with_parent(signal.SIGKILL, int(sys.argv[1]))
    process_tree.name_process("sparktrain-coord")
    # A signal to the whole container or process group is for the agent, which leaves in order; this process ends with
    # it, and the successor continues the run. Handled here, SIGTERM would end the run.
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    office = from_msgpack(sys.stdin.buffer.read(), CoordinatorOffice)
    sys.path[:] = [*office.sys_path, *(path for path in sys.path if path not in office.sys_path)]
    logging.basicConfig(format="sparktrain coordinator: %(message)s", level=logging.WARNING)
    with held("agent-held", str(Path.cwd())) as scratch, closing(TokenFile(scratch)) as tokens:
        if office.tokens:
            tokens.keep(office.tokens)
        # In a thread: only in the main thread a call would take over the signals.
        working = threading.Thread(target=HostedCoordinator(office).run, name="sparktrain-coordinator-main")
        working.start()
        working.join()


class AdoptedAgents(OwnAgents):
    """Agents that stay when this coordinator does not."""

    @contextmanager
    def _opened(self, admitted: Admitted) -> Iterator[AgentPool]:
        with super()._opened(admitted) as pool:
            try:
                yield pool
            except (DeposedError, StoreTimeoutError) as error:
                # Before the pool closes: agents that it dismisses would be lost for the successor. Where the store
                # was away for too long, there is one as soon as an agent can put its claim.
                print(f"sparktrain coordinator: ends without the run: {error}", file=sys.stderr, flush=True)
                os._exit(1)


class HostedCoordinator:
    """One coordinator of a call."""

    def __init__(self, office: CoordinatorOffice) -> None:
        self._office = office
        self._secrets = from_msgpack(office.secrets, CoordinatorSecrets)
        self._fingerprint = server_fingerprint(self._secrets.server.certificate)
        self._store = open_store(office.store)
        self._layout = RunLayout(office.run)
        self._heartbeats = False
        self._folder = CoordinatorFolder(self._store, self._layout.coordinator(office.call))

    def run(self) -> None:
        """Perform the call, and store how it has ended. Blocks; raises nothing but for a store that fails."""
        if self._stands_back():
            return
        try:
            self._perform(read_call(self._store, self._layout, self._office.call))
        except BaseException as error:
            self._folder.finish(end_of(error))
            if not isinstance(error, errors.SparktrainError):
                raise
        else:
            self._folder.finish(CallEnd())

    def _perform(self, stored_call: ClusterCall) -> None:
        newest = newest_driver(self._store, self._layout.journal)
        succeeds = newest is not None and newest.fingerprint == self._fingerprint
        call = stored_call.checked(
            self._store, self._layout, dict(self._secrets.env), self._secrets.callbacks, succeeds=succeeds
        )
        launch(call, AdoptedAgents(self._engine(stored_call)), NullDisplay())

    def _engine(self, stored_call: ClusterCall) -> AdoptedEngine:
        secrets = self._secrets
        certificates = RunCertificates(
            self._office.run,
            datetime.fromtimestamp(secrets.starts, UTC),
            datetime.fromtimestamp(secrets.expires, UTC),
            secrets.server,
            secrets.agent,
        )
        agents = stored_call.agents, stored_call.without_gpus
        return AdoptedEngine(agents, self._office.hosts, certificates, self._publish)

    def _publish(self, port: int) -> None:
        address = CoordinatorAddress(self._office.hosts, port, self._fingerprint)
        self._folder.publish(self._office.number, address)
        if not self._heartbeats:
            self._heartbeats = True
            spawn(self._heartbeat, "sparktrain-heartbeats")
            if (server := self._secrets.connect) is not None:
                keeper = OperationKeeper(self._folder, server, succeeds=self._office.number > 1)
                spawn(keeper.run, "sparktrain-keeper")

    def _heartbeat(self) -> None:
        """Show that this coordinator lives, as long as this process does: clients cannot ask it."""
        for number in count(1):
            try:
                heartbeat = CoordinatorHeartbeat(SystemClock().wall(), self._fingerprint, this_home(), os.getpid())
                self._folder.heartbeat(self._office.number, number, heartbeat)
            except OSError as error:  # the next one may come through
                logger.warning("no heartbeat could be stored: %s", error)
            pause(HEARTBEAT_S)

    def _stands_back(self) -> bool:
        """Whether an earlier coordinator of this call answers: then agents get its address again."""
        newest = newest_driver(self._store, self._layout.journal)
        if newest is None or newest.fingerprint != self._fingerprint or not answers(newest):
            return False
        lookout = self._folder.look()
        if lookout.address is not None and lookout.number < self._office.number:
            logger.warning("the coordinator on %s answers: this one is not needed", newest.host)
            self._folder.publish(self._office.number, lookout.address)
        return True


def end_of(error: BaseException) -> CallEnd:
    """An error as the client raises it again: by the nearest class that every process has."""
    names = [kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind]
    name = names[0] if names else "InfraError"
    text = str(error).strip() or type(error).__name__
    return CallEnd(name, text if names else f"the coordinator ended by {type(error).__name__}: {text}")
