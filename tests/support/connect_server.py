"""A Spark Connect server of this machine in a process of its own, and a tunnel to it that a client loses."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sparktrain.cluster.spark_session import jvm_here
from tests.support.local_spark import spark_home
from tests.support.processes import Sighted, descendants, wait_until

READY_S = 300.0
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path, conf: Mapping[str, str]) -> Iterator[int]:
    """A server with two slots and `conf`; yields its port, and kills it at the end. Blocks while it starts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.driver.extraJavaOptions": jvm_here(),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **conf,
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    program = os.path.join(spark_home(), "bin", "spark-submit")
    env = {**os.environ, "SPARK_HOME": spark_home(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = folder / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--master", "local[2]", "--class", _SERVER, *words],
            env=env, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
    try:
        wait_until(lambda: "Spark Connect server started" in log.read_text(errors="replace"), READY_S, "Connect serves")
        yield port
    finally:
        Sighted([process.pid, *(child.pid for child in descendants(process.pid))]).kill()
        process.wait()


@contextmanager
def tunnel(port: int) -> Iterator[int]:
    """A port for one connection to `port`, as that of a client behind SSH: no other process gets through. It ends with
    the context."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        near = int(listener.getsockname()[1])
        ends: list[socket.socket] = []
        stack.callback(lambda: list(map(_hang_up, ends)))

        def carry() -> None:
            with suppress(OSError):
                client, _ = listener.accept()
                listener.close()
                server = socket.create_connection(("127.0.0.1", port))
                ends.extend((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()

        threading.Thread(target=carry, daemon=True).start()
        yield near


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(2**16):
            sink.sendall(content)
    _hang_up(sink)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
