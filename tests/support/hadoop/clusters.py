"""HDFS on this machine: NameNodes and DataNodes that hold a few files for a few minutes."""

import getpass
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from tests.support.daemons import Cluster, wait_until
from tests.support.hadoop import java
from tests.support.hadoop.conf import Site, write_conf
from tests.support.hadoop.daemons import Daemon
from tests.support.hadoop.ports import HOST, Ports

READY_TIMEOUT_S = 60.0
"""For daemons that have been started, on a busy machine; an idle one needs a tenth of it."""

_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_HTTP_TIMEOUT_S = 2.0
_SETTINGS = {
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.heartbeat.recheck-interval": "5000",  # with 1 s above: a DataNode counts as dead after 20 s
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.file.close.num-committed-allowed": "1",
    "dfs.namenode.edits.noeditlogchannelflush": "true",  # what a killed process has written is not lost
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",  # there is none to replace it with
    "ipc.client.connect.retry.interval": "200",  # of a DataNode that waits for its NameNode
    "ipc.client.connect.max.retries": "50",
}


class Hdfs(Cluster):
    """A NameNode and `datanodes` DataNodes, with all that they keep below `folder`.

    `settings` go before those that make faults fast, such as a heartbeat in each second. The daemons listen on `host`,
    an address of this machine, and clients find them there. Ports stay the same when a daemon restarts. All methods
    block; none is for several threads at once.
    """

    def __init__(
        self, folder: Path, datanodes: int = 2, settings: Mapping[str, str] | None = None, host: str = HOST
    ) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        """What `HADOOP_CONF_DIR` names for clients."""
        self.namenodes = [self._daemon(name, _NAMENODE) for name in self._namenode_names()]
        self.datanodes = [self._daemon(f"datanode{number}", _DATANODE) for number in range(datanodes)]
        defaults = {"dfs.replication": str(datanodes), "dfs.datanode.hostname": host, **_SETTINGS}
        self._settings = {**defaults, **(settings or {})}
        self._host = host
        self._reserved = Ports(host)
        self._ports: dict[str, int] = {}

    @property
    def namenode(self) -> Daemon:
        """The NameNode; of several the one that is active. Raises DaemonError when none is."""
        return self.namenodes[0]

    @property
    def daemons(self) -> list[Daemon]:
        """All, NameNodes first."""
        return [*self.namenodes, *self.datanodes]

    @property
    def url(self) -> str:
        """Of the file system's root, without a slash at the end: `hdfs://127.0.0.1:10123`. Once it is started."""
        return f"hdfs://{self._at(self.namenodes[0], 'rpc')}"

    @property
    def webhdfs_url(self) -> str:
        """Where WebHDFS answers, `http://127.0.0.1:10124`; of several NameNodes all, with semicolons between."""
        return ";".join(f"http://{self._at(each, 'http')}" for each in self.namenodes)

    @property
    def env(self) -> dict[str, str]:
        """For the environment of a client's process."""
        return {"HADOOP_CONF_DIR": os.fspath(self.conf)}

    def _start(self) -> None:
        """See base class. With an empty file system; within 20 s on an idle machine."""
        self._write_conf()
        for each in self.datanodes:
            each.start()  # they need no longer than the NameNode and its empty file system
        self._format()
        for each in self.namenodes:
            each.start()
        self._elect()
        self.wait_ready()

    def close(self) -> None:
        """See base class. What they kept stays in the folder."""
        for each in self.daemons:
            each.kill9()
        self._reserved.close()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait until clients can read and write: a NameNode is active, all are out of safe mode, and they know all
        DataNodes that run, no others, and their blocks. How many seconds that took.

        A DataNode that was killed counts for 20 s more. Raises DaemonError: when it is not so in time, as it never is
        while a daemon is paused, and at once for a daemon that has ended by itself.
        """
        return wait_until(self.daemons, self._is_ready, timeout_s, f"HDFS in {self.folder} is ready")

    def repair(self) -> None:
        """Undo what a test did to the daemons: wake and start them, leave safe mode. Files and quotas stay."""
        for each in self.daemons:
            each.wake() if each.is_alive() else each.start()
        self._elect()
        wait_until(self.daemons, self._is_served, READY_TIMEOUT_S, f"the daemons of HDFS in {self.folder} are there")
        if "manually" in (self.jmx(self.namenode, "NameNodeInfo", "Safemode") or ""):
            self.admin("-safemode", "leave")
        self.wait_ready()

    def jmx(self, daemon: Daemon, bean: str, attribute: str) -> Any:
        """An attribute of a daemon, such as `NumLiveDataNodes` in `FSNamesystemState` of a NameNode; None when it does
        not answer, or does not know it yet."""
        service = "NameNode" if daemon in self.namenodes else "DataNode"
        url = f"http://{self._at(daemon, 'http')}/jmx?qry=Hadoop:service={service},name={bean}"
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=_HTTP_TIMEOUT_S) as answer:
                beans = json.load(answer)["beans"]
        except (OSError, HTTPException):
            return None
        return beans[0].get(attribute) if beans else None

    def cli(self, *arguments: str, stdin: str = "") -> str:
        """`hdfs dfs` with these arguments, in a JVM of its own; what it printed. Raises DaemonError."""
        return java.run("org.apache.hadoop.fs.FsShell", self.conf, *arguments, stdin=stdin)

    def admin(self, *arguments: str) -> str:
        """`hdfs dfsadmin` with these arguments, in a JVM of its own; what it printed. Raises DaemonError."""
        return java.run("org.apache.hadoop.hdfs.tools.DFSAdmin", self.conf, *arguments)

    def block_files(self, datanode: int) -> list[Path]:
        """The blocks that this DataNode keeps, whole or being written, without their checksums; oldest first."""
        found = (self.folder / f"datanode{datanode}").glob("current/BP-*/current/*/**/blk_*")
        return sorted((path for path in found if path.suffix != ".meta"), key=lambda path: path.stat().st_mtime_ns)

    def _daemon(self, name: str, main: str) -> Daemon:
        return Daemon(name, main, self.folder / f"conf-{name}", self.folder / "logs" / f"{name}.log")

    def _at(self, daemon: Daemon, service: str) -> str:
        return f"{self._host}:{self._ports[f'{daemon.name}.{service}']}"

    def _namenode_names(self) -> list[str]:
        return ["namenode"]

    def _namenode_key(self, _namenode: Daemon) -> str:
        """What stands behind the names of the NameNode's settings."""
        return ""

    def _format(self) -> None:
        """Make an empty file system."""
        java.run(_NAMENODE, self.namenodes[0].conf, "-format", "-nonInteractive")

    def _elect(self) -> None:
        """See to it that a NameNode is active."""

    def _extra(self) -> Site:
        """More settings for all."""
        return {}

    def _write_conf(self) -> None:
        services = {_NAMENODE: ("rpc", "http"), _DATANODE: ("rpc", "http", "ipc")}
        names = [f"{each.name}.{service}" for each in self.daemons for service in services[each.main]]
        self._ports = {name: self._reserved.take() for name in names}
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": os.fspath(self.folder / "tmp")}
        core["hadoop.http.staticuser.user"] = getpass.getuser()  # of WebHDFS, for those who name none
        site = dict(self._extra())
        for each in self.namenodes:
            key = self._namenode_key(each)
            site[f"dfs.namenode.rpc-address{key}"] = self._at(each, "rpc")
            site[f"dfs.namenode.http-address{key}"] = self._at(each, "http")
            site[f"dfs.namenode.name.dir{key}"] = (self.folder / each.name).as_uri()
        for name, value in self._settings.items():
            (site if name.startswith("dfs.") else core)[name] = value
        write_conf(self.conf, {"core-site": core, "hdfs-site": site})
        for each in self.daemons:
            write_conf(each.conf, {"core-site": core, "hdfs-site": site | self._own(each)}, level="INFO")

    def _own(self, daemon: Daemon) -> dict[str, str]:
        """Settings of one daemon alone."""
        if daemon in self.namenodes:
            return {}
        return {
            "dfs.datanode.data.dir": (self.folder / daemon.name).as_uri(),
            "dfs.datanode.address": self._at(daemon, "rpc"),
            "dfs.datanode.http.address": self._at(daemon, "http"),
            "dfs.datanode.ipc.address": self._at(daemon, "ipc"),
        }

    def _is_served(self) -> bool:
        """Whether all daemons that run answer, and the DataNodes among them have met the NameNodes among them."""
        namenodes = [each for each in self.namenodes if each.is_alive()]
        datanodes = [each for each in self.datanodes if each.is_alive()]
        ports = {self._at(each, "rpc").rpartition(":")[2] for each in namenodes}
        return all(self._knows(each, len(datanodes)) for each in namenodes) and all(
            ports <= self._met_by(each) for each in datanodes
        )

    def _knows(self, namenode: Daemon, datanodes: int) -> bool:
        """Whether this many DataNodes have registered there, and each has reported its space and its blocks. Until
        then, files that it keeps could be neither read nor written, in safe mode or not."""
        live = json.loads(self.jmx(namenode, "NameNodeInfo", "LiveNodes") or "null")
        return (
            live is not None
            and [
                # In minutes; for a DataNode that has not reported, since the machine started.
                each["capacity"] > 0 and each["lastBlockReport"] * 60 <= namenode.age_s
                for each in live.values()
            ]
            == [True] * datanodes
        )

    def _met_by(self, datanode: Daemon) -> set[str]:
        """The ports of the NameNodes that have answered this DataNode since it was started."""
        return {
            each["NamenodeAddress"].rpartition(":")[2]
            for each in json.loads(self.jmx(datanode, "DataNodeInfo", "BPServiceActorInfo") or "[]")
            if each["ActorState"] == "RUNNING" and each["NamenodeHaState"] != "Unknown"
        }

    def _is_ready(self) -> bool:
        alive = [each for each in self.namenodes if each.is_alive()]
        return (
            self._is_served()
            and any(self.jmx(each, "NameNodeStatus", "State") == "active" for each in alive)
            and all(self.jmx(each, "FSNamesystemState", "FSState") == "Operational" for each in alive)
        )


@contextmanager
def hdfs(
    folder: Path, datanodes: int = 2, settings: Mapping[str, str] | None = None, host: str = HOST
) -> Iterator[Hdfs]:
    """A cluster that is ready; ended in any case, whatever becomes of the block."""
    with Hdfs(folder, datanodes, settings, host) as cluster:
        yield cluster
