"""Requests without the token of a board get nothing from TensorBoard."""

from collections.abc import Iterable
from typing import Any

import pytest

from sparktrain.views.webserve.token_guard import TokenGuard

TOKEN, COOKIE = "right-token", "sparktrain-board-1"


def answered(**environ: str) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    got: list[Any] = []

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        start("200 OK", [])
        return [b"events of " + environ.get("PATH_INFO", "/").encode()]

    guard = TokenGuard(app, TOKEN, COOKIE)
    body = b"".join(guard(dict(environ), lambda status, headers: got.extend([status, dict(headers)])))
    return got[0], got[1], body


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_AUTHORIZATION": f"Bearer {TOKEN}"},
        {"HTTP_AUTHORIZATION": f"bearer  {TOKEN}"},
        {"HTTP_COOKIE": f"other=1; {COOKIE}={TOKEN}"},
    ],
)
def test_a_request_with_the_token_is_passed_on(environ: dict[str, str]) -> None:
    assert answered(PATH_INFO="/data", **environ) == ("200 OK", {}, b"events of /data")


def test_a_url_with_the_token_becomes_a_cookie() -> None:
    status, headers, body = answered(PATH_INFO="/a b", QUERY_STRING=f"x=1&token={TOKEN}&y=%26")
    assert (status, headers["Location"], body) == ("303 See Other", "./a%20b?x=1&y=%26", b"")
    assert headers["Set-Cookie"] == f"{COOKIE}={TOKEN}; HttpOnly; SameSite=Lax"


def test_a_url_leads_to_no_other_host() -> None:
    assert answered(PATH_INFO="//elsewhere", QUERY_STRING=f"token={TOKEN}")[1]["Location"] == "./elsewhere"


@pytest.mark.parametrize(
    "environ", [{}, {"QUERY_STRING": "run=token"}, {"HTTP_COOKIE": "sparktrain-board-2=right-token"}]
)
def test_a_request_without_a_token_is_unauthorized(environ: dict[str, str]) -> None:
    status, headers, body = answered(**environ)
    assert (status, headers["WWW-Authenticate"]) == ("401 Unauthorized", "Bearer")
    assert b"open the URL that sparktrain has printed" in body


@pytest.mark.parametrize(
    "environ",
    [
        {"QUERY_STRING": "token=wrong"},
        {"QUERY_STRING": "token="},
        {"QUERY_STRING": "token=r%C3%A9"},
        {"HTTP_AUTHORIZATION": "Bearer wrong"},
        {"HTTP_COOKIE": f"{COOKIE}=wrong"},
    ],
)
def test_a_wrong_token_is_forbidden(environ: dict[str, str]) -> None:
    status, _, body = answered(**environ)
    assert status == "403 Forbidden"
    assert b"events of" not in body
