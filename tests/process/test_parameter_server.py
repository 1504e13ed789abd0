"""A parameter server that is killed: another process at another port continues from its copy, and so do its members."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest

from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_client import ShardClient, ShardCopy
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import layout_of
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_server import ShardServer
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import PushOutcome, Sender
from tests.support.plain_sgd import PlainSgd

LAYOUT = layout_of([("float64", 50_000)])
RATE = 0.125
MEMBERS = 3
WAIT_S = 30.0


def serve(certificates: CertificateBundle, pipe: Connection) -> None:
    server = ShardServer(Endpoint("127.0.0.1", 0), certificates, lambda _, values: PlainSgd(RATE))
    pipe.send(server.endpoint.port)
    threading.Event().wait(2 * WAIT_S)


class ServerProcess:
    """A server in a process of its own."""

    def __init__(self, certificates: CertificateBundle) -> None:
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        self._process = context.Process(target=serve, args=(certificates, far), daemon=True)
        self._process.start()
        far.close()
        assert near.poll(WAIT_S), "the server has not started"
        self.endpoint = Endpoint("127.0.0.1", near.recv())
        near.close()

    def kill(self) -> None:
        """End it by SIGKILL, and wait for that."""
        if self._process.is_alive():
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(WAIT_S)


class Trainer(threading.Thread):
    """A member that pushes the gradient of half the squared distance to 1, until `end`."""

    def __init__(self, client: ShardClient) -> None:
        super().__init__()
        self.client = client
        self.applied = threading.Semaphore(0)
        """Released for each push that counts."""
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        buffer = memoryview(bytearray(LAYOUT.nbytes))
        try:
            while not self._ended.is_set():
                self.client.pull(buffer)
                gradient = LAYOUT.views(buffer)[0] - 1.0
                if self.client.push(memoryview(gradient).cast("B")).outcome is not PushOutcome.LATE:
                    self.applied.release()
            self.client.leave()
        except BaseException as error:
            self.error = error

    def await_pushes(self, count: int) -> None:
        for _ in range(count):
            assert self.applied.acquire(timeout=WAIT_S), self.error

    def end(self) -> None:
        self._ended.set()
        self.join(WAIT_S)
        assert not self.is_alive()


@pytest.fixture
def servers() -> Iterator[list[ServerProcess]]:
    started: list[ServerProcess] = []
    yield started
    for each in started:
        each.kill()


@pytest.mark.parametrize("mode", [ServerMode.STALENESS_AWARE, ServerMode.SYNC])
def test_members_continue_at_the_successor_of_a_killed_server(servers: list[ServerProcess], mode: ServerMode) -> None:
    certificates, settings = issue("a-run"), ServerSettings(mode, MEMBERS)
    servers.append(ServerProcess(certificates.server))

    def client(rank: int) -> ShardClient:
        where = Sender(rank, 0)
        return ShardClient(0, LAYOUT, where, certificates.agent, lambda: servers[-1].endpoint, budget_s=WAIT_S)

    keeper = client(0)
    keeper.fill(settings, ShardCopy(0, memoryview(bytes(LAYOUT.nbytes))), b"")
    trainers = [Trainer(client(rank)) for rank in range(MEMBERS)]
    for each in trainers:
        each.start()
    for each in trainers:
        each.await_pushes(3)
    copy = keeper.save()
    for each in trainers:
        each.await_pushes(2)
    servers[0].kill()
    for each in trainers:
        each.applied = threading.Semaphore(0)
    servers.append(ServerProcess(certificates.server))
    keeper.fill(settings, copy, b"")
    for each in trainers:
        each.await_pushes(10)
    for each in trainers:
        each.end()
    assert [each.error for each in trainers] == [None] * MEMBERS
    assert servers[0].endpoint != servers[1].endpoint
    buffer = memoryview(bytearray(LAYOUT.nbytes))
    version = keeper.pull(buffer)
    assert version >= copy.version + 9, "at most one push of each member was answered before the kill"
    values = LAYOUT.views(buffer)[0]
    if mode is ServerMode.SYNC:  # every round is one step on the common gradient, also those that were lost
        np.testing.assert_allclose(values, 1.0 - (1.0 - RATE) ** version, rtol=1e-12)
    assert np.ptp(values) == 0.0
    assert 1.0 - values[0] < 1.0 - np.frombuffer(copy.values, np.float64)[0], "training has continued from the copy"
    for each in (keeper, *(trainer.client for trainer in trainers)):
        each.close()
