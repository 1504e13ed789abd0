"""The API server, asked as JSON over HTTPS."""

import json
import ssl
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tests.support.daemons import DaemonError

TIMEOUT_S = 10.0


class ApiError(DaemonError):
    """The API server has refused a request; `status` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """One user of an API server. Its methods block, and any thread may call them."""

    def __init__(self, url: str, token: str, certificate: Path | None = None) -> None:
        """For the holder of `token`, at `url`: `https://198.18.0.1`. Without `certificate`, any server is believed."""
        self.url = url
        self.token = token
        context = ssl.create_default_context(cafile=certificate)
        if certificate is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def get(self, path: str) -> dict[str, Any]:
        """What is at `path`, such as `/api/v1/nodes`. Raises ApiError; DaemonError where no server answers."""
        return dict(json.loads(self.request("GET", path)))

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of the list at `path`. Raises as `get` does."""
        return list(self.get(path)["items"])

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object in the list at `path`; returns it as the server has it. Raises as `get` does."""
        return dict(json.loads(self.request("POST", path, body)))

    def delete(self, path: str, grace_s: int | None = None) -> None:
        """Delete the object at `path`: a pod ends `grace_s` seconds later at the latest. Raises as `get` does."""
        body = None if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.request("DELETE", path, body)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """Any request; returns the text of the answer. Raises as `get` does."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            reason = error.read().decode(errors="replace")
            raise ApiError(f"{method} {path}: {error.code} {reason}", error.code) from None
        except (OSError, HTTPException) as error:
            raise DaemonError(f"{method} {path}: the API server at {self.url} does not answer: {error}") from None
