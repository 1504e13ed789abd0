"""Pages that a test asks without a server."""

import io
import json
from collections.abc import Iterable
from typing import Any

from sparktrain.views.webserve.token_guard import App, TokenGuard

OWNER, READER = "owner-token", "reader-token"


class AskedSite:
    """An application behind its guard."""

    def __init__(self, app: App) -> None:
        self._guard = TokenGuard(app, OWNER, "cookie", READER, "page")

    def ask(self, path: str, query: str = "", method: str = "GET", token: str = OWNER, **headers: str) -> "Answer":
        got: list[Any] = []
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query,
            "HTTP_AUTHORIZATION": f"Bearer {token}", "wsgi.input": io.BytesIO(), **headers,
        }  # fmt: skip
        body = self._guard(environ, lambda status, headers: got.extend([status, dict(headers)]))
        return Answer(got, body)


class Answer:
    def __init__(self, got: list[Any], body: Iterable[bytes]) -> None:
        self.pieces = iter(body)
        self._got = got

    @property
    def code(self) -> int:
        return int(self._got[0].split()[0])

    @property
    def headers(self) -> dict[str, str]:
        return self._got[1]  # type: ignore[no-any-return]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)
