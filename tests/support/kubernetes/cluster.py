"""Kubernetes on this machine: nodes in network namespaces, with containers that run this Python."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.daemons import Cluster, DaemonError, wait_until
from tests.support.kubernetes import pod_image
from tests.support.kubernetes.api import Api, ApiError
from tests.support.kubernetes.control_plane import ControlPlane, Knobs
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.kueue import WEBHOOKS, Kueue
from tests.support.kubernetes.namespaces import COMMAND_TIMEOUT_S, Place, make_cgroups, place, run
from tests.support.kubernetes.network import connect_host, connect_node
from tests.support.kubernetes.node import GPU, Node, NodeSpec
from tests.support.kubernetes.pod_image import pause_image
from tests.support.kubernetes.programs import programs

READY_TIMEOUT_S = 90.0
"""For daemons that have been started, on a busy machine; an idle one needs a tenth of it."""
POD_TIMEOUT_S = 60.0
NAMESPACE = "training"
ACCOUNT = "spark"
SUBMITTER = "spark-submit"
"""The service accounts of conf/kubernetes/role.yaml: of drivers, and of who submits them in cluster mode."""
QUOTA = {"pods": "20", f"requests.{GPU}": "8"}
NODES = (
    NodeSpec(name="node-a", labels={"accelerator": "gpu"}, gpus=2),
    NodeSpec(name="node-b", labels={"accelerator": "gpu"}, gpus=2),
)
ROLE = Path(__file__).parents[3] / "conf" / "kubernetes" / "role.yaml"
_OVER = ("Succeeded", "Failed")

T = TypeVar("T")


class Kubernetes(Cluster):
    """A control plane and some nodes, each with its own network, containers and kubelet; logs are in `folder`.

    There are a namespace `training` with a quota, and in it the accounts of conf/kubernetes/role.yaml.
    Pods reach this machine at `host`, and this machine reaches them. Needs root. All methods block; none is for several
    threads at once, except for `api`.
    """

    def __init__(self, folder: Path, nodes: Sequence[NodeSpec] = NODES, knobs: Knobs | None = None) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        """A folder that pods see under the same path, and may write to."""
        self.nodes: list[Node] = []
        self._specs = nodes
        self._knobs = knobs or Knobs()
        self._stack = ExitStack()
        self._daemons: list[Daemon] = []
        self._place: Place | None = None
        self._plane: ControlPlane | None = None
        self._api: Api | None = None

    # ---- life

    def _start(self) -> None:
        """See base class. Within 15 s on an idle machine."""
        programs()
        self.shared.mkdir(parents=True)
        self.shared.chmod(0o1777)
        self._place = self._stack.enter_context(place())
        connect_host(self._place)
        users = {_user(spec): "system:nodes" for spec in self._specs}
        self._plane = plane = ControlPlane(self._place, self.folder, self._knobs, users)
        plane.write()
        self._launch(plane.etcd, plane.api_server)
        for spec in self._specs:
            self._add(spec)
        self._api = plane.api()
        self._wait(self._answers, "the API server answers")
        self._launch(
            plane.controllers, plane.scheduler, *(daemon for node in self.nodes for daemon in node.daemons[1:])
        )
        self.wait_ready()
        self.add_namespace(NAMESPACE, QUOTA)
        self.kubectl("apply", f"--namespace={NAMESPACE}", f"--filename={ROLE}")
        if self._knobs.kueue:
            self._add_kueue()

    def close(self) -> None:
        """See base class. Ends all pods too; what they wrote to `shared` stays, and so do the logs."""
        self._stack.close()
        for daemon in self._daemons:
            daemon.kill9()
        self._daemons.clear()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait until pods can run on all nodes, with their GPUs. How many seconds that took. Raises DaemonError."""
        return self._wait(self._is_ready, "all nodes are ready", timeout_s)

    # ---- what clients use

    @property
    def place(self) -> Place:
        """Its namespaces, addresses and folder. Raises DaemonError before it is started."""
        return _there(self._place)

    @property
    def api(self) -> Api:
        """The API server, for an administrator. Raises DaemonError before it is started."""
        return _there(self._api)

    @property
    def plane(self) -> ControlPlane:
        """Its control plane. Raises DaemonError before it is started."""
        return _there(self._plane)

    @property
    def host(self) -> str:
        """The address of this machine for pods."""
        return str(self.place.block.host)

    @property
    def master(self) -> str:
        """For `spark-submit --master`."""
        return f"k8s://{self.plane.url}"

    def node(self, name: str) -> Node:
        """A node by its name."""
        [node] = [node for node in self.nodes if node.name == name]
        return node

    def kubectl(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run kubectl as an administrator; its output. Raises DaemonError."""
        kubectl = (f"{programs()}/kubectl", f"--kubeconfig={self.plane.kubeconfig()}")
        return run(*kubectl, *words, timeout_s=timeout_s)

    def token(self, account: str = ACCOUNT, namespace: str = NAMESPACE) -> str:
        """A token of a service account, for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.api.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"])

    def add_namespace(self, name: str, quota: Mapping[str, str]) -> None:
        """Add a namespace with a quota, and wait until pods can be created in it."""
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        self.api.post(
            f"/api/v1/namespaces/{name}/resourcequotas", {"metadata": {"name": "quota"}, "spec": {"hard": dict(quota)}}
        )
        self._wait(lambda: self._is_usable(name), f"namespace {name} has its account and its quota")

    # ---- pods

    def pods(self, selector: str = "", namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """The pods with some labels, such as `spark-role=executor`, in the order of their names."""
        found = self.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector.replace('=', '%3D')}")
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def run_pod(
        self,
        name: str,
        *words: str,
        namespace: str = NAMESPACE,
        container: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a pod that runs a command in the image of executors, as the API server has it then.

        `container` is more of its container, such as `resources`, and `spec` of its specification, such as `nodeName`.
        """
        body = pod_image.pod(self.shared, name, words, container or {}, **spec)
        return self.api.post(f"/api/v1/namespaces/{namespace}/pods", body)

    def pod(self, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """One pod. Raises ApiError when it is not there."""
        return self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def delete_pod(self, name: str, grace_s: int | None = None, namespace: str = NAMESPACE) -> None:
        """Ask for the end of a pod; it ends within its grace period, or `grace_s`."""
        self.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", grace_s)

    def wait_pod(self, name: str, *phases: str, namespace: str = NAMESPACE, timeout_s: float = POD_TIMEOUT_S) -> str:
        """Wait until a pod is in one of the phases, by default over; returns its phase. Raises DaemonError, with its
        conditions and events."""
        wanted = phases or _OVER
        self._wait_pod(name, namespace, lambda pod: _phase(pod) in wanted, " or ".join(wanted), timeout_s)
        return _phase(self.pod(name, namespace))

    def wait_started(self, name: str, namespace: str = NAMESPACE, timeout_s: float = POD_TIMEOUT_S) -> None:
        """Wait until a pod runs, and the probes of its container succeed. Raises as `wait_pod` does."""
        self.wait_condition(name, "Ready", "True", namespace, timeout_s)

    def wait_condition(
        self, name: str, kind: str, status: str, namespace: str = NAMESPACE, timeout_s: float = POD_TIMEOUT_S
    ) -> dict[str, Any]:
        """Wait until a condition of a pod, such as `PodScheduled`, has a status, such as `False`; returns it. Raises as
        `wait_pod` does."""

        def conditions(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
            there = pod["status"].get("conditions", ())
            return [condition for condition in there if (condition["type"], condition["status"]) == (kind, status)]

        self._wait_pod(name, namespace, conditions, f"{kind}: {status}", timeout_s)
        return conditions(self.pod(name, namespace))[0]

    def logs(self, name: str, namespace: str = NAMESPACE) -> str:
        """What the container of a pod has printed."""
        return self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log")

    # ---- how it starts

    def _add(self, spec: NodeSpec) -> None:
        number = len(self.nodes)
        namespaces = self._stack.enter_context(self.place.namespaces.node(spec.name))
        connect_node(self.place, [*(node.namespaces for node in self.nodes), namespaces])
        kubeconfig = self.plane.kubeconfig(_user(spec))
        node = Node(spec, self.place, namespaces, self.folder, number, kubeconfig)
        node.write()
        make_cgroups(node.cgroup)
        self.nodes.append(node)
        self._launch(node.containerd)
        self._wait(node.serves_containers, f"containerd of {node.name} answers")
        for image in (pause_image(), pod_image.pod_image()):
            node.load(image)

    def _add_kueue(self) -> None:
        kueue = Kueue(self.place, self.folder, self.plane.kubeconfig())
        kueue.write()
        self.kubectl("create", f"--filename={kueue.definitions}")  # `apply` would write all of it into annotations
        self.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all")
        self._launch(kueue.daemon)
        self._wait(kueue.serves, "Kueue answers")
        for document in kueue.webhooks():
            self.api.post(f"{WEBHOOKS}/{document['kind'].lower()}s", document)

    def _launch(self, *daemons: Daemon) -> None:
        for daemon in daemons:
            self._daemons.append(daemon)
            daemon.start()

    def _wait(self, condition: Callable[[], object], what: str, timeout_s: float = READY_TIMEOUT_S) -> float:
        return wait_until(self._daemons, condition, timeout_s, what)

    def _wait_pod(
        self, name: str, namespace: str, condition: Callable[[dict[str, Any]], object], what: str, timeout_s: float
    ) -> None:
        try:
            self._wait(lambda: condition(self.pod(name, namespace)), f"pod {name} is {what}", timeout_s)
        except ApiError:
            raise
        except DaemonError as error:
            raise DaemonError(f"{error}\n{self.kubectl('describe', 'pod', name, f'--namespace={namespace}')}") from None

    def _answers(self) -> bool:
        try:
            return self.api.request("GET", "/readyz") == "ok"
        except DaemonError:
            return False

    def _is_ready(self) -> bool:
        nodes = {str(node["metadata"]["name"]): node["status"] for node in self.api.items("/api/v1/nodes")}
        return all(node.name in nodes and _is_ready(nodes[node.name], node.spec.gpus) for node in self.nodes)

    def _is_usable(self, namespace: str) -> bool:
        accounts = self.api.items(f"/api/v1/namespaces/{namespace}/serviceaccounts")
        quotas = self.api.items(f"/api/v1/namespaces/{namespace}/resourcequotas")
        return bool(accounts) and all("hard" in quota.get("status", ()) for quota in quotas)


@contextmanager
def kubernetes(folder: Path, nodes: Sequence[NodeSpec] = NODES, knobs: Knobs | None = None) -> Iterator[Kubernetes]:
    """A cluster that ends with the block, and all that runs in it. Raises DaemonError, ProgramsMissingError."""
    with Kubernetes(folder, nodes, knobs) as cluster:
        yield cluster


def _is_ready(status: Mapping[str, Any], gpus: int) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    return ready and int(status["allocatable"].get(GPU, 0)) == gpus


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod["status"].get("phase"))


def _user(spec: NodeSpec) -> str:
    """By which the API server knows the kubelet of a node."""
    return f"system:node:{spec.name}"


def _there(value: T | None) -> T:
    if value is None:
        raise DaemonError("the cluster is not started: call start() first")
    return value
