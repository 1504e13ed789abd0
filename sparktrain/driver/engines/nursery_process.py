"""Starts the nursery, the process that forks the agents of a local run. Imports little, because it runs first."""

import atexit
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

END_S = 8.0
"""How long a nursery may take to end: it gives agents 5 s. An import does not listen."""
_ROOT = str(Path(__file__).parents[3])
_TAIL_BYTES = 4096
_CHANGES_IN_TESTS = "PYTEST_CURRENT_TEST"
"""A variable that pytest sets for each test, and that no import reads."""
_OWN = ("Umask", "Uid", "Gid", "Groups", "Cpus_allowed:", "CapEff")
"""The lines of `/proc/self/status` that are inherited."""


class NurseryImports(NamedTuple):
    """What the first batch has a nursery import, and for which number of cores."""

    modules: tuple[str, ...] = ()
    cpus: int = 1


class NurseryProcess:
    """The nursery of one batch after the other; see `sparktrain.executor.nursery`. Any thread may call its methods."""

    def __init__(self, imports: NurseryImports) -> None:
        self.imports = imports
        self._inherited: object = None
        self._has_hung_up = False
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
        self._inherited = _inheritance()
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

    def fits(self, imports: NurseryImports) -> bool:
        """Whether it is as good as one that starts now, for a batch with these imports."""
        runs = self._process is not None and self._process.poll() is None and not self._has_hung_up
        return runs and self.imports == imports and self._inherited == _inheritance()

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
        self._has_hung_up = True
        with suppress(OSError):  # it has ended
            self.control.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the nursery and its agents at once. Blocks for a moment at most."""
        if self._process is not None:
            self._process.kill()

    def wait(self) -> int:
        """Wait for the end of the process; its exit status. After `hang_up`: it is killed when it needs too long."""
        if self._process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_S)
        self.kill()
        return self._process.wait()

    def close(self) -> None:
        """End the nursery and its agents for good. Blocks for some seconds at most."""
        self.hang_up()
        self.wait()
        self.control.close()
        self._child_end.close()
        if self._log is not None:
            self._log.close()


class Nurseries:
    """The nursery that has outlived its batch, for the next one, while this process lives. Any thread may call it."""

    def __init__(self) -> None:
        self._kept: deque[NurseryProcess] = deque()

    def take(self, imports: NurseryImports) -> NurseryProcess:
        """The kept one if it fits a batch with these imports; a new one otherwise. Blocks for a moment at most."""
        with suppress(IndexError):
            kept = self._kept.pop()
            if kept.fits(imports):
                return kept
            kept.close()
        return NurseryProcess(imports)

    def keep(self, nursery: NurseryProcess) -> None:
        """Keep `nursery`, which has no agents, in place of the one from before."""
        self.end()
        self._kept.append(nursery)

    def end(self) -> None:
        """End what is kept."""
        with suppress(IndexError):
            while True:
                self._kept.pop().close()


def _inheritance() -> object:
    """What a process that starts now inherits from this one, and when the packages that it finds have changed."""
    variables = {name: value for name, value in os.environ.items() if name != _CHANGES_IN_TESTS}
    packages = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    changed_at = [(folder, folder.stat().st_mtime_ns) for folder in sorted(packages) if folder.exists()]
    here = os.stat(".")
    files = [Path("/proc/self", name) for name in ("limits", "cgroup", "oom_score_adj")]
    limits = [file.read_text() for file in files if file.exists()]
    status = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_OWN)]
    return variables, changed_at, (here.st_dev, here.st_ino), limits, status


NURSERIES = Nurseries()
"""That of this process."""
atexit.register(NURSERIES.end)
os.register_at_fork(after_in_child=NURSERIES._kept.clear)  # they belong to this process
