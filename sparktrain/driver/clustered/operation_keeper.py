"""Stands in for the client of a call at the Connect server that runs the agents, once that client is gone.

The server ends an operation minutes after its client has left, and a session that no call uses. The coordinator lives
in a task of the operation, so it would end with both. It reads in the folder of the call which operations those are
(each agent notes its own), and whether the client still sends heartbeats. From when it does not, it touches each
operation in time. A client that only slept attaches again by itself; its heartbeats end the touches.
"""

import logging

from sparktrain.base.clock import Clock, SystemClock, pause
from sparktrain.config.connect_server import ConnectOperation, ConnectServer
from sparktrain.protocol.connect_calls import ConnectCaller
from sparktrain.rundir.coordinator_folder import ClientTrace, CoordinatorFolder

logger = logging.getLogger("sparktrain")


class OperationKeeper:
    """The keeper of one coordinator. All methods belong to one thread, and block on the store and the server."""

    def __init__(
        self,
        folder: CoordinatorFolder,
        server: ConnectServer,
        *,
        succeeds: bool,
        caller: ConnectCaller | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`succeeds`: another coordinator of the call was lost, so the client may be gone for long."""
        self._folder = folder
        self._server = server
        self._caller = caller or ConnectCaller(server)
        self._clock = clock or SystemClock()
        self._heartbeats = -1
        self._seen_at = self._clock.now() - (server.limits.gone_s if succeeds else 0.0)
        self._gone: set[ConnectOperation] = set()
        self._problem = ""
        self._stands_in = False

    def run(self) -> None:
        """Look and touch as long as this process lives."""
        while True:
            self.step()
            pause(self._server.limits.touch_s)

    def step(self) -> None:
        """Look once; where the client is gone, touch each operation."""
        try:
            trace = self._folder.client_trace()
        except OSError as error:
            logger.warning("the folder of the call cannot be read: %s", error)
            return
        if self._client_lives(trace):
            self._stands_in = False
            return
        for operation in sorted(trace.operations - self._gone, key=lambda operation: operation.operation):
            self._touch(operation)

    def _client_lives(self, trace: ClientTrace) -> bool:
        now = self._clock.now()
        # The first look of a successor shows no change: the heartbeat may be old.
        if trace.heartbeats != self._heartbeats:
            if self._heartbeats >= 0:
                self._seen_at = now
            self._heartbeats = trace.heartbeats
        return now < self._seen_at + self._server.limits.gone_s

    def _touch(self, operation: ConnectOperation) -> None:
        touch = self._caller.touch(operation)
        if touch.gone:
            self._gone.add(operation)
            return
        if touch.problem and touch.problem != self._problem:
            logger.warning(
                "the Connect server at %s does not let this process stand in for the client: %s; it ends the run %g s "
                "after the client has left",
                self._server.targets[0],
                touch.problem,
                self._server.limits.left_s,
            )
        elif not touch.problem and not self._stands_in:
            self._stands_in = True
            logger.warning("the client is gone: this coordinator keeps the agents' operation on the server")
        self._problem = touch.problem
