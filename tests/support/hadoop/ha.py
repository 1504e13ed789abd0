"""HDFS with two NameNodes, one of them active: for tests of what clients do when that changes."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.daemons import DaemonError, wait_until
from tests.support.hadoop import java
from tests.support.hadoop.clusters import READY_TIMEOUT_S, Hdfs
from tests.support.hadoop.conf import Site
from tests.support.hadoop.daemons import Daemon

NAMESERVICE = "sparktrain"


class HaHdfs(Hdfs):
    """Two NameNodes of one nameservice, and DataNodes; `url` names the nameservice, and clients find the active one.

    The NameNodes share their edits in a local folder. None becomes active by itself: `failover` and `promote` do it.
    """

    @property
    def namenode(self) -> Daemon:
        """See base class."""
        active = [each for each in self.namenodes if self._state(each) == "active"]
        if not active:
            raise DaemonError(f"no NameNode of HDFS in {self.folder} is active: call failover() or promote()")
        return active[0]

    @property
    def url(self) -> str:
        """See base class."""
        return f"hdfs://{NAMESERVICE}"

    def failover(self) -> None:
        """Make the other NameNode active, in good order. Blocks for about two seconds. Raises DaemonError when one of
        them does not answer."""
        old = self.namenode
        self._admin("-failover", old.name, self._other(old).name)
        self.wait_ready()

    def promote(self, namenode: int) -> None:
        """Make this NameNode active when the other is dead. Blocks for about two seconds.

        Raises DaemonError while the other lives: if only paused, it would answer as active when it wakes.
        """
        chosen = self.namenodes[namenode]
        if self._other(chosen).is_alive():
            raise DaemonError(f"{self._other(chosen).name} lives: kill it first, or call failover()")
        self._admin("-transitionToActive", "--forceactive", chosen.name, stdin="y\n")
        self.wait_ready()

    def _namenode_names(self) -> list[str]:
        return ["namenode0", "namenode1"]

    def _namenode_key(self, namenode: Daemon) -> str:
        return f".{NAMESERVICE}.{namenode.name}"

    def _extra(self) -> Site:
        return {
            "dfs.nameservices": NAMESERVICE,
            f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(self._namenode_names()),
            f"dfs.client.failover.proxy.provider.{NAMESERVICE}": (
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
            "dfs.namenode.shared.edits.dir": (self.folder / "edits").as_uri(),
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": "1",
            "dfs.ha.log-roll.period": "5",
        }

    def _own(self, daemon: Daemon) -> dict[str, str]:
        # By their addresses, which differ in the port alone, they would not know which of the two they are.
        return {"dfs.ha.namenode.id": daemon.name} if daemon in self.namenodes else super()._own(daemon)

    def _format(self) -> None:
        super()._format()
        first, second = self._namenode_names()
        shutil.copytree(self.folder / first, self.folder / second)

    def _elect(self) -> None:
        def known() -> bool:
            return all(self._state(each) in ("active", "standby") for each in self.namenodes)

        wait_until(self.daemons, known, READY_TIMEOUT_S, f"the NameNodes in {self.folder} are there")
        if not any(self._state(each) == "active" for each in self.namenodes):
            self._admin("-transitionToActive", self.namenodes[0].name)

    def _state(self, namenode: Daemon) -> object:
        return self.jmx(namenode, "NameNodeStatus", "State") if namenode.is_alive() else None

    def _other(self, namenode: Daemon) -> Daemon:
        return self.namenodes[1 - self.namenodes.index(namenode)]

    def _admin(self, *arguments: str, stdin: str = "") -> str:
        return java.run("org.apache.hadoop.hdfs.tools.DFSHAAdmin", self.conf, *arguments, stdin=stdin)


@contextmanager
def ha_hdfs(folder: Path, datanodes: int = 2, settings: Mapping[str, str] | None = None) -> Iterator[HaHdfs]:
    """A cluster that is ready, its first NameNode active; ended in any case, whatever becomes of the block."""
    with HaHdfs(folder, datanodes, settings) as cluster:
        yield cluster
