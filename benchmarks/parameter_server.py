"""A parameter server of sparktrain: how fast a member pulls and pushes, and what staleness costs with a slow worker.

    python -m benchmarks.parameter_server [--megabytes 50] [--steps 20] [--seconds 3]

The rival of the throughput is Arrow Flight with the same certificates and the same update, in the same run. Each server
is a process of its own. In the second table a step of a worker is a pause, and a third worker takes half as long again.
"""

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.machine import at_least, show
from sparktrain.base.clock import pause
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_client import ShardClient, ShardCopy
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import (
    PieceLayout,
    VariableSpec,
    layout_of,
    plan_shards,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_server import ShardServer
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import Sender
from tests.support.plain_sgd import PlainSgd

TARGET_MB_S = 800.0
OWN = "sparktrain"
LEAST_OF_SYNC = 0.9
"""Part of the accuracy of `sync` that `staleness-aware` must reach in the same time."""
RATE = 0.5
LEARNING_RATE = 0.02
"""So small that no mode has learned all within the time."""
BATCH = 16
STEP_S = 0.01
SLOW_STEP_S = 0.015
FEATURES, CLASSES, ROWS = 40, 10, 4000
HOST = "127.0.0.1"


# ---- throughput


def serve(certificates: CertificateBundle, size: int, pipe: Connection) -> None:
    """A server of sparktrain, until `pipe` ends."""
    server = ShardServer(Endpoint(HOST, 0), certificates, lambda _, values: PlainSgd(RATE))
    pipe.send(server.endpoint.port)
    _wait(pipe)


def serve_keras(certificates: CertificateBundle, size: int, pipe: Connection) -> None:
    """A server of sparktrain with an optimizer of Keras, until `pipe` ends."""
    from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import keras_rule

    server = ShardServer(Endpoint(HOST, 0), certificates, keras_rule)
    pipe.send(server.endpoint.port)
    _wait(pipe)


def keras_optimizer(name: str, size: int) -> bytes:
    """What a server makes the optimizer `name` from."""
    import keras

    from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import optimizer_bytes

    plan = plan_shards([VariableSpec("weights", (size,), "float32")], 1, sliceable=True)
    return optimizer_bytes(keras.optimizers.get({"class_name": name, "config": {"learning_rate": RATE}}), plan, 0)


class FlightShard(flight.FlightServerBase):  # type: ignore[misc] # it has no types
    """The same with Arrow Flight."""

    def __init__(self, certificates: CertificateBundle, size: int) -> None:
        self._values = np.zeros(size, np.float32)
        self._lock = threading.Lock()
        super().__init__(
            flight.Location.for_grpc_tls(HOST, 0),
            tls_certificates=[(certificates.certificate, certificates.key)],
            verify_client=True,
            root_certificates=certificates.authority,
        )

    def do_get(self, context: Any, ticket: Any) -> flight.RecordBatchStream:
        with self._lock:
            values = self._values.copy()
        return flight.RecordBatchStream(pa.table({"values": values}))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        gradient = reader.read_all().column(0).combine_chunks().to_numpy()
        with self._lock:
            self._values -= np.float32(RATE) * gradient


def serve_flight(certificates: CertificateBundle, size: int, pipe: Connection) -> None:
    """Arrow Flight, until `pipe` ends."""
    server = FlightShard(certificates, size)
    pipe.send(server.port)
    _wait(pipe)
    server.shutdown()


def _wait(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return


def timed(target: Callable[..., None], measure: Callable[[int], list[float]], *arguments: Any) -> list[float]:
    """What `measure` finds with the port of a server, which is a process that runs `target`."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=target, args=(*arguments, far))
    process.start()
    far.close()
    try:
        if not near.poll(60):
            raise TimeoutError("the server has not started within 60 s")
        return measure(near.recv())
    finally:
        near.close()
        process.join(10)
        if process.is_alive():
            process.kill()


def pulls_and_pushes(
    certificates: CertificateBundle, layout: PieceLayout, port: int, steps: int, optimizer: bytes = b""
) -> list[float]:
    """Seconds of each step with sparktrain. Every optimizer that it is called with makes steps of RATE here."""
    client = member(certificates, layout, port)
    client.fill(ServerSettings(), ShardCopy(0, memoryview(bytes(layout.nbytes))), optimizer)
    values, gradient = bytearray(layout.nbytes), bytearray(layout.nbytes)
    layout.views(gradient)[0][:] = 1.0
    found = []
    for step in range(steps):
        started_at = time.perf_counter()
        client.pull(memoryview(values))
        client.push(memoryview(gradient))
        found.append(time.perf_counter() - started_at)
        assert abs(layout.views(values)[0][-1] + RATE * step) < 1e-4
    client.close()
    return found


def flight_pulls_and_pushes(certificates: CertificateBundle, size: int, port: int, steps: int) -> list[float]:
    """Seconds of each step with Arrow Flight."""
    client = flight.FlightClient(
        flight.Location.for_grpc_tls(HOST, port),
        tls_root_certs=certificates.authority,
        cert_chain=certificates.certificate,
        private_key=certificates.key,
        override_hostname=SERVER_NAME,
    )
    gradient = pa.record_batch([np.ones(size, np.float32)], names=["values"])
    found = []
    for step in range(steps):
        started_at = time.perf_counter()
        values = client.do_get(flight.Ticket(b"")).read_all().column(0).combine_chunks().to_numpy()
        writer, metadata = client.do_put(flight.FlightDescriptor.for_command(b""), gradient.schema)
        writer.write_batch(gradient)
        writer.done_writing()
        metadata.read()
        writer.close()
        found.append(time.perf_counter() - started_at)
        assert values[-1] == -RATE * step
    client.close()
    return found


def member(certificates: CertificateBundle, layout: PieceLayout, port: int, rank: int = 0) -> ShardClient:
    return ShardClient(0, layout, Sender(rank, 0), certificates, lambda: Endpoint(HOST, port), budget_s=60.0)


def throughput(megabytes: int, steps: int) -> None:
    certificates, size = issue("benchmark"), megabytes * 250_000
    layout = layout_of([("float32", size)])
    own = timed(
        serve, lambda port: pulls_and_pushes(certificates.agent, layout, port, steps), certificates.server, size
    )
    rival = timed(
        serve_flight,
        lambda port: flight_pulls_and_pushes(certificates.agent, size, port, steps),
        certificates.server,
        size,
    )
    measured = [(OWN, own), ("Arrow Flight", rival)]
    for name in ("SGD", "Adam"):
        optimizer = keras_optimizer(name, size)

        def measure(port: int, optimizer: bytes = optimizer) -> list[float]:
            return pulls_and_pushes(certificates.agent, layout, port, steps, optimizer)

        measured.append((f"sparktrain, Keras's {name}", timed(serve_keras, measure, certificates.server, size)))
    rows = []
    for name, found in measured:
        rate = 2 * megabytes / median(found)
        target = at_least(rate, TARGET_MB_S) if name == OWN else ""
        rows.append((name, f"{median(found) * 1000:.0f} ms", f"{rate:,.0f} MB/s", target))
    title = f"A pull and a push of {megabytes} MB each (plain SGD, or as named), TLS, one connection, median of {steps}"
    show(title, ("", "both", "rate", "target"), rows)


# ---- accuracy with a slow worker


class Problem:
    """Classes that a network with random weights has given to random points; a linear model learns most of them."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        self.points = random.normal(size=(2 * ROWS, FEATURES)).astype(np.float32)
        hidden = np.tanh(self.points @ random.normal(size=(FEATURES, FEATURES)) * 0.1)
        self.classes = (hidden @ random.normal(size=(FEATURES, CLASSES))).argmax(axis=1)

    def gradient(self, weights: Any, random: np.random.Generator) -> Any:
        """That of the mean cross-entropy of a random batch of the first half."""
        rows = random.integers(0, ROWS, BATCH)
        logits = self.points[rows] @ weights
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        share[np.arange(BATCH), self.classes[rows]] -= 1.0
        return self.points[rows].T @ share / BATCH

    def accuracy(self, weights: Any) -> float:
        """The part of the second half that is classified as it should be."""
        return float(((self.points[ROWS:] @ weights).argmax(axis=1) == self.classes[ROWS:]).mean())


def trained(problem: Problem, mode: ServerMode, steps_s: tuple[float, ...], seconds: float) -> tuple[float, float]:
    """The accuracy after so many seconds, and the batches that counted for each second."""
    certificates, layout = issue("benchmark"), layout_of([("float32", FEATURES * CLASSES)])
    server = ShardServer(Endpoint(HOST, 0), certificates.server, lambda _, values: PlainSgd(LEARNING_RATE))
    settings = ServerSettings(mode, len(steps_s))
    copy = ShardCopy(0, memoryview(bytes(layout.nbytes)))
    clients = [member(certificates.agent, layout, server.endpoint.port, rank) for rank in range(len(steps_s))]
    clients[0].fill(settings, copy, b"")
    ends_at = time.perf_counter() + seconds

    def work(rank: int) -> None:
        random, values = np.random.default_rng(rank), bytearray(layout.nbytes)
        while time.perf_counter() < ends_at:
            clients[rank].pull(memoryview(values))
            pause(steps_s[rank])
            gradient = problem.gradient(layout.views(values)[0].reshape(FEATURES, CLASSES), random)
            clients[rank].push(memoryview(np.ascontiguousarray(gradient, np.float32).tobytes()))
        clients[rank].leave()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(steps_s))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    values = bytearray(layout.nbytes)
    updates = clients[0].pull(memoryview(values))
    for client in clients:
        client.close()
    server.close()
    batches = updates * (len(steps_s) if settings.in_rounds else 1)
    return problem.accuracy(layout.views(values)[0].reshape(FEATURES, CLASSES)), batches / seconds


def accuracies(seconds: float) -> None:
    problem, rows = Problem(), []
    even, uneven = (STEP_S,) * 3, (STEP_S, STEP_S, SLOW_STEP_S)
    sync = 0.0
    cases = [(ServerMode.SYNC, even), (ServerMode.SYNC, uneven), (ServerMode.ASYNC, uneven)]
    for mode, steps_s in [*cases, (ServerMode.STALENESS_AWARE, uneven)]:
        accuracy, speed = trained(problem, mode, steps_s, seconds)
        sync = accuracy if (mode, steps_s) == (ServerMode.SYNC, uneven) else sync
        target = at_least(accuracy / sync, LEAST_OF_SYNC) if mode is ServerMode.STALENESS_AWARE else ""
        which = "three equal workers" if steps_s == even else "one of three is slow"
        rows.append((f"{mode.value}, {which}", f"{speed:.0f} batches/s", f"{accuracy:.3f}", target))
    columns = ("", "speed", "accuracy", f"of sync after {seconds:g} s")
    show(f"Three workers with steps of {STEP_S * 1000:g} ms, a slow one of {SLOW_STEP_S * 1000:g} ms", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    throughput(asked.megabytes, asked.steps)
    accuracies(asked.seconds)


if __name__ == "__main__":
    main()
