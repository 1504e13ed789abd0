"""The Horovod that `make horovod` builds: it works in forked members, and its fixes are in it."""

import asyncio
import importlib.metadata
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process.harness import MARK, Bench, Trial, marked

of_one_zygote = pytest.mark.asyncio(loop_scope="module")

GIVE_UP_S = 60.0
"""For a run that must end by itself in a tenth of it."""


class Keys(BaseHTTPRequestHandler):
    """What Gloo asks of its rendezvous: keys with values."""

    protocol_version = "HTTP/1.1"
    values: dict[str, bytes]

    def do_PUT(self) -> None:
        self.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_GET(self) -> None:
        value = self.values.get(self.path)
        self.answer(404) if value is None else self.answer(200, value)

    def do_DELETE(self) -> None:
        self.values.pop(self.path, None)
        self.answer(200)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """The port of an unused rendezvous on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("FreshKeys", (Keys,), {"values": {}}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("horovod")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(folder: Path) -> AsyncIterator[Bench]:
    """A zygote that has imported TensorFlow and Horovod; the tests' members are forked from it."""
    mark = os.fspath(folder)
    zygote = ZygoteProcess(folder, env={MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "2"})
    zygote.start()
    assert await zygote.preload(("tensorflow", "keras", "horovod.tensorflow")) == {}
    yield Bench(zygote, folder)
    await zygote.close()
    assert not marked(mark)


async def run_ranks(bench: Bench, function: Callable[..., Any], count: int, **params: Any) -> list[Trial]:
    """Run the function as ranks 0, 1, ... at the same time."""
    runs = (bench.run(function, params={"rank": rank, **params}) for rank in range(count))
    return await asyncio.wait_for(asyncio.gather(*runs), GIVE_UP_S)


def join_ring(rank: int, size: int, port: int, **settings: int) -> None:
    """In a member: configure Horovod for its ring, and join it."""
    import horovod.tensorflow as hvd

    place = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size, "CROSS_RANK": 0, "CROSS_SIZE": 1}
    gloo = {"GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "GLOO_RENDEZVOUS_PORT": port, "GLOO_IFACE": "lo"}
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in (place | gloo | settings).items()})
    os.environ.update(HOROVOD_HOSTNAME="localhost", HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo")
    hvd.init()


def reduce_both(rank, port):
    """A sum and a mean over two ranks; and whether this process had any thread of Horovod's before it joined."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    threads = len(os.listdir("/proc/self/task"))
    join_ring(rank, 2, port, GLOO_TIMEOUT_SECONDS=20)
    (total,) = hvd.allreduce(tf.constant([rank + 1.0]), op=hvd.Sum, name="total")
    _, mean = hvd.grouped_allreduce([tf.zeros(5), tf.constant(4.0 * rank)], op=hvd.Average, name="means")
    hvd.shutdown()
    return {"threads": threads, "total": total, "mean": mean}


def reduce_alone(rank, port, met):
    """Three steps of two ranks; then rank 0 continues, and rank 1 is alive but does not come."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    join_ring(rank, 2, port, STALL_CHECK_TIME_SECONDS=2, STALL_SHUTDOWN_TIME_SECONDS=4)
    for _ in range(3):
        hvd.allreduce(tf.constant([1.0]), name="gradients")
    if rank == 1:
        Path(met).read_bytes()  # of a pipe that rank 0 holds open for as long as it waits
        return {"seconds": 0.0}
    with open(met, "wb"):
        begin = time.monotonic()
        try:
            hvd.allreduce(tf.constant([1.0]), name="gradients")
        except tf.errors.UnknownError as error:
            print(error)
            return {"seconds": time.monotonic() - begin}


def go_on_alone(rank, port):
    """The other rank never comes; then a ring of its own, in the same process."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    begin = time.monotonic()
    try:
        join_ring(rank, 2, port, GLOO_TIMEOUT_SECONDS=2)
    except ValueError as error:
        print(error)
    seconds = time.monotonic() - begin
    hvd.shutdown()
    join_ring(0, 1, port)
    (total,) = hvd.allreduce(tf.constant([5.0]), op=hvd.Sum, name="total")
    return {"seconds": seconds, "size": hvd.size(), "total": total}


def test_the_build_differs_from_the_plain_horovod() -> None:
    version = importlib.metadata.version("horovod")

    assert f"+sparktrain.tf{importlib.metadata.version('tensorflow')}." in version


@of_one_zygote
async def test_members_of_one_zygote_reduce_with_each_other(bench: Bench, port: int) -> None:
    trials = await run_ranks(bench, reduce_both, 2, port=port)

    assert [trial.metrics["total"] for trial in trials] == [3.0, 3.0]
    assert [trial.metrics["mean"] for trial in trials] == [2.0, 2.0]
    assert [trial.metrics["threads"] for trial in trials] == [1.0, 1.0]


@pytest.mark.all(
    case="the wait for a rank that misses a step", covered_by="`training/test_broken_rings`: a member that is stuck"
)
@of_one_zygote
async def test_the_wait_for_a_rank_that_misses_a_step_ends(bench: Bench, port: int) -> None:
    met = bench.folder / "met"
    os.mkfifo(met)

    waiting, absent = await run_ranks(bench, reduce_alone, 2, port=port, met=str(met))

    assert waiting.metrics["seconds"] < 12.0
    assert "Horovod has been shut down" in waiting.log
    assert "Missing ranks:\n1!: [" in waiting.log
    assert absent.metrics == {"seconds": 0.0}


@of_one_zygote
async def test_a_rank_that_never_joins_is_an_error_that_the_others_survive(bench: Bench, port: int) -> None:
    (trial,) = await run_ranks(bench, go_on_alone, 1, port=port)

    assert "Horovod initialization failed" in trial.log
    assert 2.0 <= trial.metrics["seconds"] < 6.0
    assert trial.metrics["size"] == 1
    assert trial.metrics["total"] == 5.0
