"""Daemons of a cluster: programs in its namespaces."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support import daemons
from tests.support.kubernetes.namespaces import Namespaces
from tests.support.kubernetes.programs import ADMIN_PATH
from tests.support.processes import wait_until

_FORK_TIMEOUT_S = 10.0


class Daemon(daemons.Daemon):
    """One program of Kubernetes. Its signals go to the program, and not to the `nsenter` that has started it."""

    def __init__(self, name: str, namespaces: Namespaces, words: Sequence[str], log: Path) -> None:
        super().__init__(name, log)
        self._namespaces = namespaces
        self._words = words

    @property
    def pid(self) -> int:
        """See base class: on this machine, and not in the namespaces. Raises NoSuchProcess when it has just ended."""
        enter = psutil.Process(self._started().pid)
        wait_until(lambda: enter.children() or not self.is_alive(), _FORK_TIMEOUT_S, f"{self.name} has a process")
        if not (programs := enter.children()):
            raise psutil.NoSuchProcess(enter.pid)
        return programs[0].pid

    def _command(self) -> list[str]:
        """See base class."""
        return [*self._namespaces.enter, *self._words]

    def _environment(self) -> Mapping[str, str]:
        """See base class."""
        return {**os.environ, "PATH": ADMIN_PATH}

    def _signal(self, signum: signal.Signals) -> None:
        """See base class."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
            os.kill(self.pid, signum)
