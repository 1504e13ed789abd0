"""Starts the nursery, the process that forks the agents of a local run. Imports little, because it runs first."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_ROOT = str(Path(__file__).parents[3])
_TAIL_BYTES = 4096


class NurseryProcess:
    """The nursery of one batch; see `sparktrain.executor.nursery`. Any thread may call its methods."""

    def __init__(self) -> None:
        self.control, self._child_end = socket.socketpair()
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, unless it runs. Raises OSError.

        The process has a session of its own: Ctrl-C in a terminal goes to the driver, which then ends its agents.
        """
        if self._process is not None:
            return
        # -P keeps its folder out of sys.path: the user's modules travel with the function, as they do to a cluster.
        command = [sys.executable, "-P", "-m", "sparktrain.executor.nursery", str(os.getpid())]
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            command,
            stdin=self._child_end.fileno(),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        # With a copy of that end here, the nursery's death would not end the socket.
        self._child_end.close()

    def last_line(self) -> str:
        """The last line that agents or the nursery printed, in parentheses, as the end of a message; perhaps empty."""
        if self._log is None:
            return ""
        descriptor = self._log.fileno()
        start = max(0, os.fstat(descriptor).st_size - _TAIL_BYTES)
        printed = os.pread(descriptor, _TAIL_BYTES, start).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(printed) if line.strip()), "")
        return f" ({last})" if last else ""

    def hang_up(self) -> None:
        """Make the nursery end its agents and then itself. Returns at once; a second call does nothing."""
        with suppress(OSError):  # it has ended
            self.control.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Wait for the end of the process; its exit status. Blocks for some seconds after `hang_up`."""
        return self._process.wait() if self._process is not None else 0

    def close(self) -> None:
        """End the nursery and its agents for good. Blocks for some seconds at most."""
        self.hang_up()
        self.wait()
        self.control.close()
        self._child_end.close()
        if self._log is not None:
            self._log.close()
