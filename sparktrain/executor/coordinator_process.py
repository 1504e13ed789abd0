"""The coordinator of a run as a process beside an agent; see `sparktrain.driver.clustered`."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from sparktrain.executor.zygote_process import agent_environment
from sparktrain.protocol.coordinator_office import CoordinatorOffice

END_TIMEOUT_S = 60.0
"""How long a coordinator may take to write the result once its agents are dismissed, before it is ended."""


class CoordinatorProcess:
    """One coordinator. All methods belong to the main thread of the agent's process."""

    def __init__(self, scratch: Path) -> None:
        """`scratch` is a folder of the agent, in which the process works."""
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def lives(self) -> bool:
        """It has started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, office: CoordinatorOffice) -> None:
        """Start the process, which ends with this one. Blocks for fork and exec alone; raises OSError.

        Its output goes where that of the agent goes, into the log of the executor.
        """
        self._scratch.mkdir(parents=True, exist_ok=True)
        # No session of its own: the agent takes children in other sessions for orphans of its zygote. And from the
        # main thread: the kernel ends the process when the thread that started it ends.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sparktrain.driver.clustered", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            cwd=self._scratch,
            env=agent_environment(),
        )
        assert self._process.stdin is not None
        # The secrets travel in this pipe alone: they are in no argument, variable or file.
        with self._process.stdin as pipe:
            pipe.write(msgspec.msgpack.encode(office))

    def close(self, patience_s: float = END_TIMEOUT_S) -> None:
        """Let it write the result of the run for `patience_s`, and end it then. Blocks."""
        if self._process is None:
            return
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
