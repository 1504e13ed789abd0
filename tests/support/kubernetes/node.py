"""A node of a cluster: containerd, a kubelet, and the device plug-in of its GPUs."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.daemons import DaemonError
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.image import Image
from tests.support.kubernetes.namespaces import Namespaces, Place
from tests.support.kubernetes.network import cut, write_plugins
from tests.support.kubernetes.programs import programs

GPU = "nvidia.com/gpu"
PAUSE = "localhost/pause:1"
_MAX_SOCKET = 107
"""Characters of a socket's path."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """What a node is started with."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[str] = ()
    """As kubectl writes them: `nvidia.com/gpu=present:NoSchedule`."""
    gpus: int = 0
    """Of the resource `nvidia.com/gpu`: plain files, which a pod that asks for them finds as /dev/nvidia0 and so on."""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a KubeletConfiguration, which go before those of the rig."""


class Node:
    """The daemons of a node, in its own namespaces; what they keep is below the place's folder, logs in `logs`."""

    def __init__(
        self, spec: NodeSpec, place: Place, namespaces: Namespaces, logs: Path, number: int, kubeconfig: Path
    ) -> None:
        self.spec = spec
        self.namespaces = namespaces
        self.address = place.block.node(number)
        self.cgroup = f"{place.name}/{spec.name}"
        """Of its pods, below the top of each hierarchy."""
        self._folder = place.folder / spec.name
        self._place = place
        self._number = number
        self.containerd = self._daemon(
            "containerd", ["containerd", "--config", f"{self._folder}/containerd.toml"], logs
        )
        self.kubelet = self._daemon("kubelet", [f"{programs()}/kubelet", *self._words(kubeconfig)], logs)
        self.device_plugin = self._daemon("device-plugin", self._plugin_words(), logs)

    @property
    def name(self) -> str:
        """As the API server knows it."""
        return self.spec.name

    @property
    def daemons(self) -> list[Daemon]:
        """All, in the order in which they start."""
        return [self.containerd, self.kubelet, *([self.device_plugin] if self.spec.gpus else [])]

    def write(self) -> None:
        """Write what its daemons are configured by. Raises DaemonError where the path of its socket is too long."""
        if len(self._socket) > _MAX_SOCKET:
            raise DaemonError(f"{self._socket} is longer than {_MAX_SOCKET} characters: set TMPDIR to a shorter folder")
        self._folder.mkdir()
        write_plugins(self._folder / "cni", self._place.block, self._number)
        (self._folder / "containerd.toml").write_text(self._containerd())
        (self._folder / "kubelet.json").write_text(json.dumps(self._kubelet() | dict(self.spec.kubelet), indent=2))
        for gpu in range(self.spec.gpus):
            (self._folder / f"nvidia{gpu}").write_text(f"GPU {gpu} of {self.name}\n")

    def serves_containers(self) -> bool:
        """Whether containerd answers."""
        try:
            self.ctr("version", timeout_s=5.0)
        except DaemonError:
            return False
        return True

    def cut_off(self) -> AbstractContextManager[None]:
        """The node and its pods reach nothing, and nothing reaches them, until the block ends."""
        return cut(self._place, self._number)

    def load(self, image: Image) -> None:
        """Have its pods find an image by its name. Raises DaemonError."""
        archive = self._folder / "image.tar"
        image.write(archive)
        self.ctr("images", "import", os.fspath(archive))

    def ctr(self, *words: str, timeout_s: float = 60.0) -> str:
        """Run a command of containerd's client on what Kubernetes has there; its output. Raises DaemonError."""
        return self.namespaces.run(
            "ctr", "--address", self._socket, "--namespace", "k8s.io", *words, timeout_s=timeout_s
        )

    @property
    def _socket(self) -> str:
        return f"{self._folder}/containerd.sock"

    def _daemon(self, name: str, words: Sequence[str], logs: Path) -> Daemon:
        return Daemon(f"{name} of {self.name}", self.namespaces, words, logs / f"{self.name}-{name}.log")

    def _words(self, kubeconfig: Path) -> list[str]:
        labels = ",".join(f"{key}={value}" for key, value in self.spec.labels.items())
        return [
            f"--config={self._folder}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self._folder}/kubelet",
            f"--cert-dir={self._folder}/certificates",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            *([f"--node-labels={labels}"] if labels else []),
        ]

    def _plugin_words(self) -> list[str]:
        devices = [f"{self._folder}/nvidia{gpu}" for gpu in range(self.spec.gpus)]
        # Without its folder on the path, where modules have names of others.
        return [sys.executable, "-P", os.fspath(Path(__file__).with_name("device_plugin.py")), GPU, *devices]

    def _containerd(self) -> str:
        return f"""\
version = 2
root = "{self._folder}/containerd"
state = "{self._folder}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]  # it makes /opt/containerd

[grpc]
address = "{self._socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true  # root may lack CAP_SYS_RESOURCE, which a lower score than one's own needs

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{self._folder}/cni"
"""

    def _kubelet(self) -> dict[str, Any]:
        space = "1%"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},  # only this machine reaches it
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "resolvConf": "",
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": space,
                "imagefs.available": space,
                "nodefs.inodesFree": space,
            },
            "imageGCHighThresholdPercent": 100,  # no registry has the images
            "podLogsDir": f"{self._folder}/pod-logs",
            "registerWithTaints": [_taint(taint) for taint in self.spec.taints],
        }


def _taint(text: str) -> dict[str, str]:
    """A taint as the API has it, from `key=value:effect` or `key:effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
