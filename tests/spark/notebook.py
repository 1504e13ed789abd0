"""The kernel of a notebook in its own process, driven as by a notebook server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

from sparktrain.base.clock import SystemClock
from tests.support.processes import Sighted, descendants

START_S = 60.0
STOP_S = 20.0


@dataclass
class Cell:
    """The output of one cell so far."""

    request: str
    result: dict[str, str] = field(default_factory=dict)
    """The value of its last expression, by MIME type."""
    displayed: list[dict[str, str]] = field(default_factory=list)
    """Each state of its displays."""
    newest: dict[str, dict[str, str]] = field(default_factory=dict)
    """The newest state of each of its displays."""
    printed: str = ""
    error: str = ""
    """Name and text of the exception that ended it."""
    over: bool = False


class Notebook:
    """A kernel that `with` starts and stops. Each method blocks up to its timeout."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "kernel.txt"
        self._folder = folder
        self._manager = KernelManager(kernel_name="python3")
        self._client: Any = None  # jupyter_client has few types

    def __enter__(self) -> "Notebook":
        with self.output.open("wb") as output:
            self._manager.start_kernel(cwd=str(self._folder), stdout=output, stderr=output)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=START_S)
        return self

    def __exit__(self, *_: object) -> None:
        left = Sighted([self.pid, *(each.pid for each in descendants(self.pid))] if self._manager.is_alive() else [])
        try:
            self._client.stop_channels()
            self._manager.shutdown_kernel()
            left.wait_gone(STOP_S)
        finally:
            left.kill()
            self._manager.cleanup_resources()

    @property
    def pid(self) -> int:
        """The pid of the kernel."""
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    def training(self) -> list[psutil.Process]:
        """The zygotes and all processes below them."""
        zygotes = descendants(self.pid, "sparktrain.training")
        return [process for zygote in zygotes for process in [zygote, *descendants(zygote.pid)]]

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does."""
        self._manager.interrupt_kernel()

    def start(self, code: str) -> Cell:
        """Start the execution of a cell; return at once."""
        return Cell(self._client.execute(code, store_history=True))

    def run(self, code: str, timeout_s: float) -> Cell:
        """Execute a cell to its end; AssertionError when it raises."""
        cell = self.finish(self.start(code), timeout_s)
        assert not cell.error, cell.error
        return cell

    def restart(self) -> None:
        """Kill the kernel and start another one, as the restart button does; return once that is ready."""
        with self.output.open("ab") as output:
            self._manager.restart_kernel(now=True, stdout=output, stderr=output)
        self._client.wait_for_ready(timeout=START_S)

    def finish(self, cell: Cell, timeout_s: float) -> Cell:
        """Collect the output of the cell up to its end."""
        return self.wait(cell, lambda so_far: so_far.over, timeout_s)

    def wait(self, cell: Cell, seen: Callable[[Cell], bool], timeout_s: float) -> Cell:
        """Collect the output of the cell until it is as wanted; AssertionError when it ends before."""
        deadline = SystemClock().now() + timeout_s
        while not seen(cell):
            assert not cell.over, f"the cell has ended: {cell.error or cell.displayed[-1:]}"
            left = deadline - SystemClock().now()
            assert left > 0, f"the cell has not come so far within {timeout_s:g} s: {self.output.read_text()[-3000:]}"
            try:
                message = self._client.get_iopub_msg(timeout=left)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") == cell.request:
                _take(cell, message["msg_type"], message["content"])
        return cell


def _take(cell: Cell, kind: str, content: dict[str, Any]) -> None:
    match kind:
        case "execute_result":
            cell.result = content["data"]
        case "display_data" | "update_display_data":
            cell.displayed.append(content["data"])
            cell.newest[content["transient"].get("display_id", "")] = content["data"]
        case "stream":
            cell.printed += content["text"]
        case "error":
            cell.error = f"{content['ename']}: {content['evalue']}"
        case "status":
            cell.over = content["execution_state"] == "idle"
