"""What controls a cluster: etcd, the API server, the controller manager and the scheduler."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubernetes.api import Api
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.namespaces import Place, run
from tests.support.kubernetes.programs import programs

ADMIN = "admin"
_ETCD = "http://127.0.0.1:2379"
_ISSUER = "https://kubernetes.default.svc"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Knobs:
    """What tests of faults set."""

    node_grace_s: float = 40.0
    """A node that is silent for so long is not ready; noticed up to 5 s later."""
    eviction_s: int = 300
    """A pod on a node that is not ready is deleted after this time."""
    kueue: bool = False
    """Whether Kueue starts pods that name a queue; `make kueue` builds it."""


class ControlPlane:
    """The daemons, with their keys and tokens below the place's folder, and their logs in `logs`."""

    def __init__(self, place: Place, logs: Path, knobs: Knobs, users: Mapping[str, str]) -> None:
        """`users` are all who may connect, with the group of each."""
        self.audit_log = logs / "audit.log"
        """A line of JSON for each request that the API server has answered: who, which verb, what."""
        self._folder = place.folder / "control-plane"
        self._block = place.block
        self._knobs = knobs
        self._groups = {ADMIN: "system:masters", **users}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self.etcd, self.api_server, self.controllers, self.scheduler = (
            Daemon(name, place.namespaces, [str(programs() / name), *words], logs / f"{name}.log")
            for name, words in {
                "etcd": self._etcd(),
                "kube-apiserver": self._api_server(),
                "kube-controller-manager": self._controllers(),
                "kube-scheduler": self._scheduler(),
            }.items()
        )

    @property
    def daemons(self) -> list[Daemon]:
        """All, in the order in which they start."""
        return [self.etcd, self.api_server, self.controllers, self.scheduler]

    @property
    def url(self) -> str:
        """Of the API server, from this machine, from nodes and from pods."""
        return f"https://{self._block.api}:443"

    @property
    def certificate(self) -> Path:
        """By which clients know the API server; there once it serves."""
        return self._folder / "certificates" / "apiserver.crt"

    def requests(self, account: str) -> list[dict[str, Any]]:
        """What a service account has asked for, in any namespace: the records of `audit_log`, in their order."""
        records = [json.loads(line) for line in self.audit_log.read_text().splitlines()]
        return [record for record in records if record["user"]["username"].endswith(f":{account}")]

    def api(self) -> Api:
        """The API server, for an administrator."""
        return Api(self.url, self._tokens[ADMIN])

    def write(self) -> None:
        """Write keys, tokens, and what each user connects with."""
        self._folder.mkdir()
        run("openssl", "genrsa", "-out", str(self._folder / "accounts.key"), "2048")
        words = ("-in", str(self._folder / "accounts.key"), "-pubout", "-out", str(self._folder / "accounts.pub"))
        run("openssl", "rsa", *words)
        lines = [f"{self._tokens[user]},{user},{user},{group}\n" for user, group in self._groups.items()]
        (self._folder / "tokens.csv").write_text("".join(lines))
        (self._folder / "audit.json").write_text(json.dumps(_AUDIT))
        for user in self._groups:
            self._write_kubeconfig(user)

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """What a program connects with as a user; there once it is written."""
        return self._folder / f"{user}.kubeconfig"

    def _write_kubeconfig(self, user: str) -> None:
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "current-context": "tests",
        }
        self.kubeconfig(user).write_text(json.dumps(config, indent=2))

    def _etcd(self) -> list[str]:
        return [
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        return [
            f"--etcd-servers={_ETCD}",
            f"--service-cluster-ip-range={self._block.services}",
            f"--advertise-address={self._block.api}",
            "--secure-port=443",  # that of the service, which no kube-proxy translates
            f"--cert-dir={self._folder}/certificates",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={self._folder}/accounts.pub",
            f"--service-account-signing-key-file={self._folder}/accounts.key",
            f"--service-account-issuer={_ISSUER}",
            "--kubelet-preferred-address-types=InternalIP",  # nothing resolves names of nodes
            "--allow-privileged",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={self._folder}/audit.json",
            f"--audit-log-path={self.audit_log}",
            f"--default-not-ready-toleration-seconds={self._knobs.eviction_s}",
            f"--default-unreachable-toleration-seconds={self._knobs.eviction_s}",
        ]

    def _controllers(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig()}",
            f"--service-account-private-key-file={self._folder}/accounts.key",
            f"--root-ca-file={self.certificate}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--node-monitor-grace-period={self._knobs.node_grace_s:g}s",
        ]

    def _scheduler(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig()}", "--leader-elect=false"]
