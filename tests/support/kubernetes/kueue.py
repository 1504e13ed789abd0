"""Kueue in a cluster: it starts pods as its queues have room, and those of a group together."""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import yaml

from tests.support.kubernetes import programs
from tests.support.kubernetes.certificates import self_signed
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.namespaces import Place

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_HOST = "127.0.0.1"
"""Where the API server, which is in the same network, asks its webhooks."""
_PORT = 9443
_HEALTH = 8081
_APIS = frozenset(("", "kueue.x-k8s.io"))
"""Of what its webhooks are asked about here: pods, and its own objects."""
_TIMEOUT_S = 5.0
# It looks for the certificate of its metrics there, and no setting places it elsewhere.
_WITH_CERTIFICATES = """
mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics && ln -s "$0" /etc/kueue/metrics/certs && exec "$@"
"""


class Kueue:
    """Its manager, beside the API server, as an administrator. Raises ProgramsMissingError where it is not built."""

    def __init__(self, place: Place, logs: Path, kubeconfig: Path) -> None:
        self.definitions = programs.kueue() / "crd"
        """What the API server must know before it starts: a folder of files for kubectl."""
        self._folder = place.folder / "kueue"
        self._certificates = self._folder / "certificates"
        self._api = place.block.api
        words = [f"{programs.kueue()}/kueue", f"--config={self._folder}/config.json", f"--kubeconfig={kubeconfig}"]
        alone = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _WITH_CERTIFICATES)
        self.daemon = Daemon("kueue", place.namespaces, [*alone, str(self._certificates), *words], logs / "kueue.log")

    def write(self) -> None:
        """Write its settings and its certificate."""
        self_signed(self._certificates, _HOST)
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"{self._api}:{_HEALTH}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": _HOST, "port": _PORT, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["pod"]},
            "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
        }
        (self._folder / "config.json").write_text(json.dumps(config, indent=2))

    def serves(self) -> bool:
        """Whether it answers the API server."""
        try:
            url = f"http://{self._api}:{_HEALTH}/readyz"
            return bool(build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT_S).status == 200)
        except OSError:
            return False

    def webhooks(self) -> list[dict[str, Any]]:
        """What the API server asks it: two objects for `WEBHOOKS`."""
        documents: list[dict[str, Any]] = list(yaml.safe_load_all((programs.kueue() / "webhooks.yaml").read_text()))
        for document in documents:
            document["webhooks"] = [self._reached(hook) for hook in document["webhooks"] if _is_used(hook)]
        return documents

    def _reached(self, hook: dict[str, Any]) -> dict[str, Any]:
        """A webhook at its address, in place of a service, which needs kube-proxy."""
        path = hook["clientConfig"]["service"]["path"]
        bundle = base64.b64encode((self._certificates / "tls.crt").read_bytes()).decode()
        return hook | {"clientConfig": {"url": f"https://{_HOST}:{_PORT}{path}", "caBundle": bundle}}


def _is_used(hook: dict[str, Any]) -> bool:
    return all(_APIS.issuperset(rule["apiGroups"]) for rule in hook["rules"])
