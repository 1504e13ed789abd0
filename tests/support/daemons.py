"""Daemons of clusters: processes that run until they are ended."""

import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from sparktrain.base.clock import SystemClock, pause
from sparktrain.errors import InfraError
from sparktrain.executor.log_tail import tail_lines

STOP_TIMEOUT_S = 10.0
"""From SIGTERM until SIGKILL."""
_POLL_S = 0.1
_TAIL_LINES = 15


class DaemonError(InfraError, RuntimeError):
    """A daemon or a command of a cluster failed; the message has the last lines that it printed."""


class Daemon:
    """One process, in a session of its own. It ends when the process that started it ends, in whatever way that does.

    Its output is appended to `log`. It can restart after its end. Not for several threads at once.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    @property
    def pid(self) -> int:
        """Its process. Raises DaemonError while it is not started."""
        return self._started().pid

    @property
    def age_s(self) -> float:
        """Since it was last started."""
        return SystemClock().now() - self._started_s

    def start(self) -> None:
        """Start the process; returns before it serves. Raises DaemonError when it runs already."""
        if self.is_alive():
            raise DaemonError(f"{self.name} (pid {self.pid}) runs already: stop it first")
        self._forget()
        self._started_s = SystemClock().now()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )
        # When this process dies, the guard reads the end of its pipe.
        self._guard = subprocess.Popen(
            ["sh", "-c", "read -r word || kill -9 $0", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def is_alive(self) -> bool:
        """Whether its process exists; it may be paused, or not serve yet."""
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End it by SIGTERM, or by SIGKILL after `timeout_s`. Blocks. Does nothing when it is not started."""
        if self.is_alive():
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused process would not hear of it
            with suppress(subprocess.TimeoutExpired):
                self._started().wait(timeout_s)
        self.kill9()

    def kill9(self) -> None:
        """End it by SIGKILL, at once. Does nothing when it is not started."""
        if self._process is not None:
            if self.is_alive():
                self._signal(signal.SIGKILL)
            self._process.wait()
        self._forget()

    def pause(self) -> None:
        """Stop it by SIGSTOP: it keeps its ports, and does not answer until `wake`."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it continue after `pause`; does nothing to a daemon that is not paused."""
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise DaemonError, with the end of the log, if the daemon was started and has ended by itself."""
        if self._process is not None and not self.is_alive():
            raise DaemonError(self.story(f"ended with status {self._process.returncode}"))

    def story(self, how: str) -> str:
        """For an error's message: the daemon, `how` it is, and the end of its log."""
        return story(f"{self.name} {how}", tail_lines(self.log))

    def _command(self) -> list[str]:
        """How the process is started."""
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        """All its variables."""
        raise NotImplementedError

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise DaemonError(f"{self.name} is not started: call start() first")
        return self._process

    def _signal(self, signum: signal.Signals) -> None:
        self._started().send_signal(signum)

    def _forget(self) -> None:
        if self._guard is not None:
            self._guard.communicate(b"done\n")
        self._process = self._guard = None


class Cluster:
    """Daemons that start and end together: `with` starts them, and leaves none of them. Its methods block."""

    def start(self) -> None:
        """Start all daemons, and return when they serve. Raises DaemonError, and leaves none then."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all daemons, in any state, and give their ports back."""
        raise NotImplementedError

    def _start(self) -> None:
        """Start all daemons, and return when they serve."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(daemons: Sequence[Daemon], condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Poll `condition` until it holds; returns how many seconds that took. `what` names the condition.

    Raises DaemonError, with the ends of the logs, when it does not hold in time, or as soon as a daemon has ended by
    itself.
    """
    clock = SystemClock()
    started_at = clock.now()
    while not condition():
        for each in daemons:
            each.check()
        if clock.now() - started_at > timeout_s:
            logs = "\n".join(each.story("runs" if each.is_alive() else "is down") for each in daemons)
            raise DaemonError(f"{what}: not within {timeout_s:g} s\n{logs}")
        pause(_POLL_S)
    return clock.now() - started_at


def story(what: str, lines: Iterable[str]) -> str:
    """`what`, and below it the last of the lines."""
    return "\n  ".join((f"{what}; its last lines:", *list(lines)[-_TAIL_LINES:]))
