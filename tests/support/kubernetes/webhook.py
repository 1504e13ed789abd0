"""An admission webhook: a server on this machine that denies pods of a namespace, as policies of a cluster do."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from uuid import uuid4

from tests.support.kubernetes.certificates import self_signed
from tests.support.kubernetes.cluster import Kubernetes

NAME = "pods.policies.example.com"
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class _Denies(BaseHTTPRequestHandler):
    """The answer to the API server that asks whether it may create a pod."""

    message: ClassVar[str]

    def do_POST(self) -> None:
        """It may not."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"message": self.message, "code": 403}
        answer = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *parts: object) -> None:
        """See base class: without the lines on stderr."""


@contextmanager
def webhook(cluster: Kubernetes, namespace: str, message: str) -> Iterator[None]:
    """A webhook that denies each new pod in a namespace with `message`, as long as the block lasts; without `message`
    one that does not answer."""
    key, certificate = self_signed(cluster.folder / f"webhook-{uuid4().hex[:8]}", cluster.host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with HTTPServer((cluster.host, 0), type("Denies", (_Denies,), {"message": message})) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://{cluster.host}:{server.server_port}/"
        client = {"url": url, "caBundle": base64.b64encode(certificate.read_bytes()).decode()}
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        if message:
            serving.start()
        else:
            server.socket.close()
        cluster.api.post(_PATH, _configuration(namespace, client))
        try:
            yield
        finally:
            cluster.api.delete(f"{_PATH}/{NAME}")
            if message:
                server.shutdown()


def _configuration(namespace: str, client: dict[str, str]) -> dict[str, object]:
    pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = {
        "name": NAME,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [pods],
    }
    return {"metadata": {"name": NAME}, "webhooks": [hook]}
