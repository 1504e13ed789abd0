"""Answers only requests that have the token of a board. WSGI (PEP 3333), by the standard library."""

import hmac
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

READER = "sparktrain.reader"
"""The key of a request's environment: whether it has the token of those who may only look."""
_NO_TOKEN = "401 Unauthorized", "open the URL that sparktrain has printed: it has the token of this {subject}\n"
_WRONG_TOKEN = "403 Forbidden", "this is not the token of this {subject}: open the URL that sparktrain has printed\n"


class TokenGuard:
    """A WSGI application before another one. Requests have the token in one of three places.

    In the query (`?token=`): the answer sets a cookie, and leads to the same page without the token. In that cookie. In
    a header `Authorization: Bearer TOKEN`, for programs. Addresses in answers are relative, for a proxy may serve the
    application below a path of its own.
    """

    def __init__(self, app: App, token: str, cookie: str, reader: str = "", subject: str = "TensorBoard") -> None:
        """`cookie` is the name of the cookie: browsers send one to all ports of a host.

        `reader` is a second token: a request with it has `READER` in its environment. `subject` is what is guarded.
        """
        self._app = app
        self._tokens = tuple(filter(None, (token, reader)))
        self._reader = reader
        self._cookie = cookie
        self._subject = subject

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        query = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        query_tokens = [value for name, value in query if name == "token"]
        if query_tokens and self._is_right(query_tokens[-1]):
            clean_query = urlencode([(name, value) for name, value in query if name != "token"])
            return self._signed_in(environ, query_tokens[-1], clean_query, start_response)
        tokens = [*query_tokens, *self._header_tokens(environ)]
        if right := next(filter(self._is_right, tokens), ""):
            environ[READER] = right == self._reader
            return self._app(environ, start_response)
        status, text = _WRONG_TOKEN if tokens else _NO_TOKEN
        text = text.format(subject=self._subject)
        extra = [] if tokens else [("WWW-Authenticate", "Bearer")]
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *extra])
        return [text.encode()]

    def _signed_in(self, environ: Environ, token: str, query: str, start_response: StartResponse) -> Iterable[bytes]:
        """The cookie has no path: a browser takes the folder of the page, whatever a proxy puts before it."""
        path = "./" + quote(environ.get("PATH_INFO", "/").rpartition("/")[2])
        # HttpOnly: no script reads the token. Not Secure: pages are served by HTTP, and on the loopback address by
        # default.
        cookie = f"{self._cookie}={token}; HttpOnly; SameSite=Lax"
        location = f"{path}?{query}" if query else path
        headers = [("Location", location), ("Set-Cookie", cookie), ("Referrer-Policy", "no-referrer")]
        start_response("303 See Other", [*headers, ("Content-Length", "0")])
        return [b""]

    def _header_tokens(self, environ: Environ) -> list[str]:
        """The tokens of the request outside of its query."""
        scheme, _, bearer = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        try:
            cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._cookie)
        except CookieError:
            cookie = None
        tokens = [bearer.strip()] if scheme.lower() == "bearer" else []
        return [*tokens, *([] if cookie is None else [cookie.value])]

    def _is_right(self, token: str) -> bool:
        # In the same time for each wrong token: a shorter one would show how much of it is right.
        return any(hmac.compare_digest(token.encode(), valid_token.encode()) for valid_token in self._tokens)
