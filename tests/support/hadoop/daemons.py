"""Daemons of Hadoop: JVMs."""

from collections.abc import Mapping
from pathlib import Path

from tests.support import daemons
from tests.support.hadoop.java import command, environment


class Daemon(daemons.Daemon):
    """One JVM. `main` is a class of Hadoop's, `conf` the daemon's own folder of configuration."""

    def __init__(self, name: str, main: str, conf: Path, log: Path, heap_mib: int = 256) -> None:
        super().__init__(name, log)
        self.main = main
        self.conf = conf
        self._heap_mib = heap_mib

    def _command(self) -> list[str]:
        """See base class. Raises JarsMissingError."""
        return command(self.main, self.conf, heap_mib=self._heap_mib)

    def _environment(self) -> Mapping[str, str]:
        """See base class. Raises DaemonError where there is no Java."""
        return environment(self.conf)
