"""The page itself is answered while its process still loads; everything else waits for the application."""

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from sparktrain.views.page import page_shell
from sparktrain.views.page.page_shell import PageShell
from sparktrain.views.report.html import asset, served_page

SOON_S = 30.0


def ask(shell: PageShell, path: str, method: str = "GET") -> tuple[str, bytes]:
    """Status and body of an answer."""
    heads: list[str] = []

    def start_response(status: str, headers: Any, *_: Any) -> None:
        heads.append(status)

    body = b"".join(shell({"PATH_INFO": path, "REQUEST_METHOD": method}, start_response))
    return heads[0], body


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answers with the path."""
    start_response("200 OK", [])
    return [environ["PATH_INFO"].encode()]


def test_the_page_and_its_files_wait_for_nothing() -> None:
    shell = PageShell()
    assert ask(shell, "/") == ("200 OK", served_page())
    assert ask(shell, "/static/app.js") == ("200 OK", asset("app.js"))


def test_other_requests_wait_for_the_application() -> None:
    shell = PageShell()
    answers: list[tuple[str, bytes]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(shell, "/state"))),
        threading.Thread(target=lambda: answers.append(ask(shell, "/", "POST"))),
    ]
    for thread in threads:
        thread.start()
    assert not answers
    shell.take(application)
    for thread in threads:
        thread.join(SOON_S)
    assert sorted(answers) == [("200 OK", b"/"), ("200 OK", b"/state")]
    assert ask(shell, "/static/none.js") == ("200 OK", b"/static/none.js")


def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_shell, "LOAD_TIMEOUT_S", 0.01)
    status, body = ask(PageShell(), "/state")
    assert status == "503 Service Unavailable"
    assert b"reload it" in body
