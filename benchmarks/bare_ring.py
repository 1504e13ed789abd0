"""Two processes in a ring of Horovod without the product, by Gloo's own plain way: the rival of benchmarks.

    python -m benchmarks.bare_ring PORT

Run alone, it is one of them: it forms the ring, leaves it, forms that of the server at PORT, and gets a copy of the
other's state over a socket of loopback. The newcomer of a healed ring could not do less (`floor`).
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TIMEOUT_S = 300
_PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"


@contextmanager
def rendezvous() -> Iterator[int]:
    """The port of a server at which the members of one ring find each other."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Keys", (_Keys,), {"known": {}})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def of_two(module: str, arguments: Sequence[object]) -> list[str]:
    """The last lines that two processes print which run `module` with `arguments`, by rank."""
    with rendezvous() as port:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        processes = [
            subprocess.Popen(command, env=_environment(rank, port), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
            for rank in range(2)
        ]  # fmt: skip
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    return [output.strip().splitlines()[-1] for output in outputs]


def floor(mb: int) -> tuple[float, float]:
    """Seconds of two bare processes to leave a ring and form the next one, and to copy `mb` megabytes to the other."""
    with rendezvous() as port:
        spans = [json.loads(line) for line in of_two("benchmarks.bare_ring", [port, mb])]
    return max(span["ring"] for span in spans), max(span["copy"] for span in spans)


class _Keys(BaseHTTPRequestHandler):
    """The rendezvous server of Gloo's members."""

    known: dict[str, bytes]
    """Of all requests to one server."""

    def do_GET(self) -> None:
        value = self.known.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        self.known[self.path] = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(200, b"")

    def do_DELETE(self) -> None:
        self._answer(200, b"")

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _environment(rank: int, port: int) -> dict[str, str]:
    slot = {
        "RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2, "CROSS_RANK": 0, "CROSS_SIZE": 1,
        "HOSTNAME": socket.gethostname(), "GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "GLOO_RENDEZVOUS_PORT": port,
        "GLOO_IFACE": "lo", "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo",
    }  # fmt: skip
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    return {**os.environ, **threads, **{f"HOROVOD_{name}": str(value) for name, value in slot.items()}}


def _again(port: str) -> float:
    """Seconds to leave the ring and to form the next one; both members start together."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    hvd.allreduce(tf.ones([1]), name="met")
    started = time.perf_counter()
    hvd.shutdown()
    os.environ[_PORT] = port
    hvd.init()
    hvd.allreduce(tf.ones([1]), name="met")
    return time.perf_counter() - started


def _copy(mb: int) -> float:
    """Seconds to send so many megabytes from rank 0 to new memory of rank 1, which has no state before."""
    import horovod.tensorflow as hvd
    import numpy as np

    sends = hvd.rank() == 0
    listener = socket.create_server(("127.0.0.1", 0)) if sends else None
    port = 0 if listener is None else listener.getsockname()[1]
    [port] = hvd.broadcast(np.array([port], "int32"), 0, name="port").numpy().tolist()
    content = np.ones(mb * 2**20, np.uint8) if sends else np.empty(mb * 2**20, np.uint8)
    connection = socket.create_connection(("127.0.0.1", port)) if listener is None else listener.accept()[0]
    hvd.allreduce(np.ones(1, "float32"), name="connected")
    started = time.perf_counter()
    with connection:
        if sends:
            connection.sendall(content.data)
            connection.recv(1)
        else:
            remaining = content.data
            while remaining:
                remaining = remaining[connection.recv_into(remaining) :]
            connection.sendall(b"!")
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps({"ring": _again(sys.argv[1]), "copy": _copy(int(sys.argv[2]))}), flush=True)
