"""Clients of TensorBoard over HTTP, and the event files that they read, without TensorFlow."""

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from sparktrain.base.clock import SystemClock, pause
from tests.support.processes import wait_until

SERVES_WITHIN_S = 60.0


def write_events(folder: Path, values: list[float]) -> Callable[[int, float], None]:
    """Write an event file with values of the scalar `loss`; returns what appends another one."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary import scalar_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    path, clock = folder / "events.out.tfevents.1.host", SystemClock()

    def append_event(**fields: Any) -> None:
        with path.open("ab", buffering=0) as file:
            RecordWriter(file).write(Event(wall_time=clock.wall(), **fields).SerializeToString())

    folder.mkdir(parents=True, exist_ok=True)
    append_event(file_version="brain.Event:2")
    for step, value in enumerate(values):
        append_event(step=step, summary=scalar_pb("loss", value))
    return lambda step, value: append_event(step=step, summary=scalar_pb("loss", value))


def train(folder: str, ctx: Any) -> float:
    """Report once, write two events, and a third one when FOLDER/more exists; end when FOLDER/end does."""
    append = write_events(Path(ctx.log_dir, "train"), [3.0, 2.0])
    ctx.report(step=1, y=0.5)
    while not Path(folder, "more").exists():
        pause(0.05)
    append(2, 1.0)
    while not Path(folder, "end").exists():
        pause(0.05)
    return 1.0


class Browser:
    """Requests to a board, with its token or another one."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.token = parse_qs(parts.query)["token"][0]

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a page."""
        connection = HTTPConnection(self.host, self.port, timeout=SERVES_WITHIN_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def status(self, path: str = "/", **headers: str) -> int:
        """The status of a page."""
        return self.get(path, **headers)[0]

    def scalars(self, run: str, tag: str = "loss") -> list[float]:
        """The values of a scalar; empty while there is none."""
        path = f"/data/plugin/scalars/scalars?run={quote(run, safe='')}&tag={quote(tag, safe='')}"
        status, _, body = self.get(path, Authorization=f"Bearer {self.token}")
        return [value for _, _, value in json.loads(body)] if status == 200 else []

    def runs(self) -> list[str]:
        """The names of all runs that TensorBoard shows."""
        body = self.get("/data/runs", Authorization=f"Bearer {self.token}")[2]
        return list(json.loads(body))

    def wait_for(self, run: str, values: list[float], within_s: float = SERVES_WITHIN_S) -> None:
        """Wait until TensorBoard shows these values."""
        wait_until(lambda: self.scalars(run) == values, within_s, f"TensorBoard shows {values} of {run}")

    def refuses(self) -> bool:
        """Whether nothing listens any more."""
        try:
            self.status()
        except ConnectionError:
            return True
        return False
