"""A spark-submit that tests start: what its rigs for YARN and Kubernetes share."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sparktrain.base.clock import SystemClock, pause
from tests.support.daemons import DaemonError

_POLL_S = 0.25
_TAIL_CHARACTERS = 4000


class SparkSubmit:
    """One application from its `spark-submit` to its end. Its methods block, and belong to one thread."""

    def __init__(self, folder: Path, command: list[str], tag: str, env: Mapping[str, str], umask: int = -1) -> None:
        self.log = folder / "submissions" / f"{tag}.log"
        """What spark-submit prints."""
        self.tag = tag
        self._command = command
        self._env = env
        self._umask = umask
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start spark-submit; returns at once."""
        self.log.parent.mkdir(exist_ok=True)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env={**own, **self._env},
                start_new_session=True,
                umask=self._umask,
            )

    @property
    def pid(self) -> int:
        """Of spark-submit, which is the driver's JVM in client mode."""
        return self._started().pid

    @property
    def exit_code(self) -> int | None:
        """Of spark-submit; None while it runs."""
        return self._started().poll()

    @property
    def output(self) -> str:
        """What spark-submit has printed until now, on stdout and stderr; in cluster mode, the driver too."""
        return self.log.read_text(errors="replace")

    def look(self) -> None:
        """Called again and again while the application runs."""

    def story(self) -> str:
        """What the cluster reports of the application, for the error of one that does not end."""
        return ""

    def wait(self, timeout_s: float) -> int:
        """Wait for the end, and `look` meanwhile; the exit code. Raises DaemonError after `timeout_s`."""
        clock = SystemClock()
        started_at = clock.now()
        while (code := self.exit_code) is None:
            self.look()
            if clock.now() - started_at > timeout_s:
                tail = self.output[-_TAIL_CHARACTERS:]
                raise DaemonError(
                    f"spark-submit of {self.tag} has not ended after {timeout_s:g} s:\n{tail}\n{self.story()}"
                )
            pause(_POLL_S)
        return code

    def close(self) -> None:
        """End spark-submit, if it has not ended."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._started().wait()

    def _started(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process
