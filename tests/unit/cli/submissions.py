"""A spark-submit that is a small program, and a ResourceManager that reports what a test wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ID = "application_1_0001"
SWEEP = ("sweep", "train.py:train", "--grid", "lr=1", "--metric", "accuracy")


class Yarn:
    """A ResourceManager and a NodeManager in one."""

    def __init__(self) -> None:
        self.application: dict[str, Any] = {}
        """Of the application; empty while there is none."""
        self.printed = ""
        """What the driver's container has printed to stdout."""
        self.asked: list[str] = []
        self.address = ""

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        if path.startswith("/ws/v1/cluster/apps?applicationTags=sparktrain-"):
            return json.dumps({"apps": {"app": [self.application]} if self.application else None}).encode()
        if path.startswith("/ws/v1/node/containerlogs/container_1/stdout"):
            begin = "Container: container_1 on h:1\nLogAggregationType: LOCAL\nLogLength:9\nLogContents:\n"
            return f"{begin}{self.printed}\nEnd of LogType:stdout.\n****************\n".encode()
        return None

    def become(self, state: str, final: str = "UNDEFINED", diagnostics: str = "") -> None:
        logs = f"http://{self.address}/node/containerlogs/container_1/ann"
        self.application = {
            "id": ID, "state": state, "finalStatus": final, "diagnostics": diagnostics,
            "amHostHttpAddress": self.address, "amContainerLogs": logs,
        }  # fmt: skip


@contextmanager
def yarn_at(conf: Path) -> Iterator[Yarn]:
    """Answers on a port of this machine; `conf` becomes the folder that names it."""
    yarn = Yarn()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = yarn.answer(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yarn.address = f"127.0.0.1:{server.server_port}"
        name = "yarn.resourcemanager.webapp.address"
        site = f"<configuration><property><name>{name}</name><value>{yarn.address}</value></property></configuration>"
        conf.mkdir()
        (conf / "yarn-site.xml").write_text(site)
        yield yarn
        server.shutdown()
        thread.join()


def behave(spark: Path, does: str) -> None:
    program = spark / "bin" / "spark-submit"
    program.write_text(f'#!/bin/sh\necho "$@" > {spark}/words\n{does}\n')
    program.chmod(0o755)


def in_cluster(tmp_path: Path, *more: str) -> list[str]:
    where = ["--deploy-mode", "cluster", "--pack", "none"]
    return ["submit", *where, *SWEEP, "--dir", str(tmp_path / "runs"), "--name", "mnist", *more]
