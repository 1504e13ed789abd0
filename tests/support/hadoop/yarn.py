"""YARN on this machine: a ResourceManager, and two NodeManagers, one of them with the label `gpu`."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from sparktrain.cluster.spark_session import jvm_here
from tests.support.daemons import Cluster, DaemonError, wait_until
from tests.support.hadoop import java
from tests.support.hadoop.clusters import READY_TIMEOUT_S, Hdfs
from tests.support.hadoop.conf import write_conf
from tests.support.hadoop.containers import ContainerGuard
from tests.support.hadoop.daemons import Daemon
from tests.support.hadoop.ports import HOST, Ports
from tests.support.hadoop.yarn_conf import LABEL, Knobs, resource_types, scheduler_site, site
from tests.support.local_spark import spark_home

_SERVER = "org.apache.hadoop.yarn.server"
_RESOURCEMANAGER = f"{_SERVER}.resourcemanager.ResourceManager"
_NODEMANAGER = f"{_SERVER}.nodemanager.NodeManager"
_ADMIN = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
_SERVICES = {
    _RESOURCEMANAGER: ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address"),
    _NODEMANAGER: ("address", "localizer.address", "webapp.address"),
}
_HTTP_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 30.0
_OVER = ("FINISHED", "FAILED", "KILLED")
_LOCAL_FS = Path(__file__).with_name("PlainLocalFs.java")
_LABELLED_HOST = "127.0.0.2"
"""This machine too, by another name: nodes are taken out of service by that of their host."""


class Yarn(Cluster):
    """A ResourceManager, and two NodeManagers that run containers as this process' user; with all that they keep below
    `folder`. Their file system is `hdfs`, which must be ready.

    `nodemanagers[1]` has the label `gpu`, exclusively; queues are those of `yarn_conf.QUEUES`, or what `queues` has for
    `capacity-scheduler.xml`. `settings` go before all others. Ports stay the same when a daemon restarts. All
    methods block; none is for several threads at once, except for those that ask the ResourceManager.
    """

    def __init__(
        self,
        folder: Path,
        hdfs: Hdfs,
        knobs: Knobs | None = None,
        settings: Mapping[str, str] | None = None,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.hdfs = hdfs
        self.knobs = knobs or Knobs()
        self.conf = folder / "conf"
        """What `HADOOP_CONF_DIR` names for clients."""
        self.pack: str | None = None
        """The URL of the archive that applications of tests run from; None for this process' own Python."""
        self.resourcemanager = self._daemon("resourcemanager", _RESOURCEMANAGER)
        self.nodemanagers = [self._daemon(f"nodemanager{number}", _NODEMANAGER) for number in range(2)]
        self._settings = dict(settings or {})
        self._queues = dict(queues or scheduler_site())
        self._reserved = Ports()
        self._ports: dict[str, int] = {}
        self._guard = ContainerGuard(folder / "local")
        self._excluded = folder / "excluded"

    @property
    def daemons(self) -> list[Daemon]:
        """All, the ResourceManager first; those of HDFS are not among them."""
        return [self.resourcemanager, *self.nodemanagers]

    @property
    def url(self) -> str:
        """Of the ResourceManager's REST API: `http://127.0.0.1:10123/ws/v1/cluster`. Once it is started."""
        return f"http://{self._at(self.resourcemanager, 'webapp.address')}/ws/v1/cluster"

    @property
    def env(self) -> dict[str, str]:
        """For the environment of `spark-submit`, or of a driver."""
        return {
            "HADOOP_CONF_DIR": os.fspath(self.conf),
            "YARN_CONF_DIR": os.fspath(self.conf),
            "SPARK_HOME": spark_home(),
            "JAVA_HOME": java.java_home(),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": jvm_here(),
        }

    # ---- life

    def _start(self) -> None:
        """See base class. Within 10 s on an idle machine."""
        self._write_conf()
        self._guard.start()
        for each in self.daemons:
            each.start()
        self._label()
        self.wait_ready()

    def close(self) -> None:
        """See base class. Ends all containers too; what they kept stays in the folder."""
        for each in self.daemons:
            each.kill9()  # a NodeManager that is asked to end waits for applications that have ended
        self._guard.close()
        self._reserved.close()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait until applications can be submitted: the ResourceManager answers, knows as running those NodeManagers
        that run, and no others, and the second by its label. How many seconds that took.

        A NodeManager that was killed counts until `Knobs.expiry_s` is over. Raises DaemonError as of `Hdfs.wait_ready`.
        """
        return wait_until(self.daemons, self._is_ready, timeout_s, f"YARN in {self.folder} is ready")

    def repair(self) -> None:
        """Undo what a test did: wake and start daemons, take nodes into service, kill applications, end what their
        containers left."""
        for each in self.daemons:
            each.wake() if each.is_alive() else each.start()
            if each is self.resourcemanager and self._excluded.read_text():
                self._exclude("")  # before a NodeManager starts, which would end again
        self.wait_ready()
        for application in self.applications():
            if application["state"] not in _OVER:
                self.kill_application(application["id"])
        over = f"the applications of YARN in {self.folder} are over"
        wait_until(self.daemons, lambda: not self._unfinished(), _KILL_TIMEOUT_S, over)
        self._guard.end_containers()

    # ---- asking the ResourceManager

    def rest(self, path: str) -> Any:
        """The ResourceManager's answer at `path` of its REST API, such as `apps/application_1_0001`. Raises
        DaemonError when it refuses, or does not answer."""
        return self._ask("GET", path)

    def applications(self) -> list[dict[str, Any]]:
        """All that the ResourceManager remembers, in no order."""
        return list((self.rest("apps")["apps"] or {}).get("app", ()))

    def application(self, id: str) -> dict[str, Any]:
        """One application: `state`, `finalStatus`, `diagnostics` and more."""
        return dict(self.rest(f"apps/{id}")["app"])

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that the ResourceManager knows, lost ones too: `id`, `state`, `nodeLabels` and more."""
        return list((self.rest("nodes")["nodes"] or {}).get("node", ()))

    def containers_of(self, application: str) -> dict[str, str]:
        """The containers that an application has now, the application master's too: the node of each, by its id."""
        attempts = self.rest(f"apps/{application}/appattempts")["appAttempts"] or {}
        found: dict[str, str] = {}
        for attempt in attempts.get("appAttempt", ()):
            held = self.rest(f"apps/{application}/appattempts/{attempt['appAttemptId']}/containers") or {}
            containers = held.get("container") or (held.get("containers") or {}).get("container", ())
            found |= {each["containerId"]: _node_of(each) for each in containers}
        return found

    def node_of(self, nodemanager: Daemon) -> str:
        """The name by which the ResourceManager knows a NodeManager, `localhost:10124`. Raises DaemonError when it does
        not know it."""
        port = self._ports[f"{nodemanager.name}.address"]
        found = [str(each["id"]) for each in self.nodes() if each["id"].endswith(f":{port}")]
        if not found:
            raise DaemonError(f"the ResourceManager does not know {nodemanager.name}: call wait_ready()")
        return found[0]

    @property
    def labelled_node(self) -> str:
        """Of the NodeManager with the label."""
        return self.node_of(self.nodemanagers[1])

    def logs(self, application: str) -> str:
        """What the containers of an application have printed until now."""
        found = sorted((self.folder / "container-logs").glob(f"*/{application}/*/std*"))
        return "\n".join(f"==== {path.parent.name} {path.name}\n{path.read_text(errors='replace')}" for path in found)

    # ---- commands to it

    def kill_container(self, id: str) -> None:
        """Have its NodeManager end a container by SIGKILL; returns before that is done."""
        self._ask("POST", f"containers/{id}/signal/FORCEFUL_SHUTDOWN")

    def kill_application(self, id: str) -> None:
        """End an application; returns before that is done."""
        self._ask("PUT", f"apps/{id}/state", {"state": "KILLED"})

    def decommission(self, nodemanager: Daemon) -> None:
        """Take a node out of service, and its containers: its NodeManager ends by itself soon. Returns when the
        ResourceManager knows. Raises DaemonError."""
        self._exclude(self._host(nodemanager))

    def decommission_gracefully(self, nodemanager: Daemon, timeout_s: int) -> None:
        """As `decommission`, but the node is in state DECOMMISSIONING until its containers have ended, or the time is
        over."""
        self._exclude(self._host(nodemanager), "-g", str(timeout_s), "-server")

    def cancel_decommission(self) -> None:
        """Keep nodes in service that are in state DECOMMISSIONING."""
        self._exclude("")

    def recommission(self, nodemanager: Daemon) -> None:
        """Take the node into service again, and start its NodeManager, which must have ended. Returns when applications
        can be submitted. Raises DaemonError."""
        self._exclude("")
        nodemanager.start()
        self.wait_ready()

    # ---- inside

    def _exclude(self, host: str, *words: str) -> None:
        """Have the ResourceManager do without the nodes of one host, and with all others."""
        self._excluded.write_text(host)
        java.run(_ADMIN, self.conf, "-refreshNodes", *words)

    def _daemon(self, name: str, main: str) -> Daemon:
        return Daemon(name, main, self.folder / f"conf-{name}", self.folder / "logs" / f"{name}.log")

    def _at(self, daemon: Daemon, service: str) -> str:
        return f"{self._host(daemon)}:{self._ports[f'{daemon.name}.{service}']}"

    def _host(self, daemon: Daemon) -> str:
        return _LABELLED_HOST if daemon is self.nodemanagers[1] else HOST

    def _write_conf(self) -> None:
        names = [f"{each.name}.{service}" for each in self.daemons for service in _SERVICES[each.main]]
        self._ports = {name: self._reserved.take() for name in names}
        yarn = site(self.knobs, (self.folder / "state").as_uri())
        self._excluded.parent.mkdir(parents=True, exist_ok=True)
        self._excluded.touch()
        yarn |= {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.bind-host": HOST,
            "yarn.resourcemanager.nodes.exclude-path": os.fspath(self._excluded),
        }
        yarn |= {
            f"yarn.resourcemanager.{service}": self._at(self.resourcemanager, service)
            for service in _SERVICES[_RESOURCEMANAGER]
        }
        for conf, own in [(self.conf, {}), *((each.conf, self._own(each)) for each in self.daemons)]:
            shutil.copytree(self.hdfs.conf, conf)
            sites = {"yarn-site": {**yarn, **own, **self._settings}, "capacity-scheduler": self._queues}
            write_conf(conf, sites | resource_types(self.knobs), level="WARN" if conf == self.conf else "INFO")
        classes = java.compiled(_LOCAL_FS)
        for each in self.nodemanagers:
            shutil.copytree(classes, each.conf, dirs_exist_ok=True)

    def _own(self, daemon: Daemon) -> dict[str, str]:
        """Settings of one daemon alone."""
        if daemon is self.resourcemanager:
            return {}
        own = {f"yarn.nodemanager.{service}": self._at(daemon, service) for service in _SERVICES[_NODEMANAGER]}
        own |= {
            "yarn.nodemanager.hostname": self._host(daemon),
            "yarn.nodemanager.local-dirs": os.fspath(self.folder / "local" / daemon.name),
            "yarn.nodemanager.log-dirs": os.fspath(self.folder / "container-logs" / daemon.name),
            "fs.AbstractFileSystem.file.impl": _LOCAL_FS.stem,
            "yarn.nodemanager.recovery.dir": os.fspath(self.folder / "recovery" / daemon.name),
        }
        if self.knobs.gpus and daemon is self.nodemanagers[1]:
            own["yarn.nodemanager.resource-type.yarn.io/gpu"] = str(self.knobs.gpus)
        return own

    def _label(self) -> None:
        """The ResourceManager keeps it for later starts."""
        wait_until(self.daemons, self._is_served, READY_TIMEOUT_S, f"the daemons of YARN in {self.folder} are there")
        self._ask("POST", "add-node-labels", {"nodeLabelInfo": [{"name": LABEL, "exclusivity": True}]})
        self._ask("POST", f"nodes/{self.labelled_node}/replace-labels?labels={LABEL}", {})

    def _is_served(self) -> bool:
        """Whether the ResourceManager answers, and has met those NodeManagers that run."""
        try:
            if self.rest("info")["clusterInfo"]["state"] != "STARTED":
                return False
            running = {each["id"].rpartition(":")[2] for each in self.nodes() if each["state"] == "RUNNING"}
        except DaemonError:
            return False
        there = [each for each in self.nodemanagers if each.is_alive()]
        return running == {str(self._ports[f"{each.name}.address"]) for each in there}

    def _is_ready(self) -> bool:
        if not self._is_served():
            return False
        labels = {each["id"]: each.get("nodeLabels") for each in self.nodes()}
        return not self.nodemanagers[1].is_alive() or labels[self.labelled_node] == [LABEL]

    def _unfinished(self) -> list[str]:
        return [each["id"] for each in self.applications() if each["state"] not in _OVER]

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        request = Request(f"{self.url}/{path}", data, headers, method=method)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=_HTTP_TIMEOUT_S) as answer:
                body = answer.read()
        except HTTPError as error:
            raise DaemonError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
        except (OSError, HTTPException) as error:
            raise DaemonError(f"{method} {path}: the ResourceManager does not answer: {error}") from None
        return json.loads(body) if body.startswith((b"{", b"[")) else None


def _node_of(container: Mapping[str, Any]) -> str:
    return str(container.get("nodeId") or container["assignedNodeId"])


@contextmanager
def yarn(
    folder: Path,
    hdfs: Hdfs,
    knobs: Knobs | None = None,
    settings: Mapping[str, str] | None = None,
    queues: Mapping[str, str] | None = None,
) -> Iterator[Yarn]:
    """A cluster that is ready; ended in any case, whatever becomes of the block."""
    with Yarn(folder, hdfs, knobs, settings, queues) as cluster:
        yield cluster
