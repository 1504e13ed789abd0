"""What counts as a notice at a file or a URL; anything else is reported and ignored."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparktrain.executor import notice_probe
from sparktrain.executor.notice_probe import NoticeProbe, UnreadableNoticeError, notice_at
from tests.unit.driver.stored import HandClock

EVENTS = b'{"DocumentIncarnation": 1, "Events": %s}'
ANSWERS = {
    "/absent": (404, "text/plain", b""),
    "/no-content": (204, "text/plain", b""),
    "/empty": (200, "text/plain", b" \n"),
    "/no": (200, "text/plain", b"FALSE"),
    "/no-events": (200, "application/json", EVENTS % b"[]"),
    "/yes": (200, "text/plain", b"TRUE"),
    "/action": (200, "text/plain", b'{"action": "terminate", "time": "2026-01-01T00:00:00Z"}'),
    "/events": (200, "application/json", EVENTS % b'[{"EventType": "Preempt"}]'),
    "/error": (500, "text/plain", b"TRUE"),
    "/secret": (401, "text/plain", b"TRUE"),
    "/partial": (206, "text/plain", b"TRUE"),
    "/page": (200, "text/html; charset=utf-8", b"<html>log in</html>"),
    "/moved": (302, "text/plain", b""),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, content = ANSWERS[self.path]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Location", "/yes")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as answering:
        thread = threading.Thread(target=answering.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{answering.server_port}"
        answering.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["/absent", "/no-content", "/empty", "/no", "/no-events"])
def test_there_is_no_notice_yet(server: str, path: str) -> None:
    assert notice_at(server + path) == ""


@pytest.mark.parametrize("path", ["/yes", "/action", "/events"])
def test_an_answer_with_content_is_a_notice(server: str, path: str) -> None:
    assert notice_at(server + path) == f"{server}{path} announces it"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/error", "answers with status 500"),
        ("/secret", "answers with status 401"),
        ("/partial", "answers with status 206"),
        ("/page", "a page of HTML, which is no notice"),
        ("/moved", "redirects to another address"),
    ],
)
def test_another_answer_cannot_be_read(server: str, path: str, problem: str) -> None:
    with pytest.raises(UnreadableNoticeError, match=problem):
        notice_at(server + path)


def test_an_address_that_does_not_answer_cannot_be_read() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        with pytest.raises(UnreadableNoticeError, match=r"does not answer: .*timed out"):
            notice_at(f"http://127.0.0.1:{silent.server_port}/")
        port = silent.server_port
    with pytest.raises(UnreadableNoticeError, match=r"does not answer: .*refused"):
        notice_at(f"http://127.0.0.1:{port}/")


def test_a_file_that_exists_is_a_notice(tmp_path: Path) -> None:
    path = tmp_path / "leaving"
    assert notice_at(str(path)) == ""
    path.touch()
    assert notice_at(str(path)) == f"{path} exists"
    assert notice_at(f"{path}/below") == ""
    with pytest.raises(UnreadableNoticeError, match="too long"):
        notice_at(str(tmp_path / ("x" * 300)))


def test_instances_of_ec2_get_a_token_first(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str]] = []

    def answer(address: str, headers: dict[str, str], method: str = "GET") -> bytes:
        requests.append((method, address))
        if method == "PUT":
            return b"token\n"
        if headers.get("X-aws-ec2-metadata-token") != "token":
            raise notice_probe.HTTPError(address, 401, "", None, None)  # type: ignore[arg-type]
        raise notice_probe.HTTPError(address, 404, "", None, None)  # type: ignore[arg-type]

    monkeypatch.setattr(notice_probe, "_answer", answer)
    address = "http://169.254.169.254/latest/meta-data/spot/instance-action"
    assert notice_at(address) == ""
    assert requests == [("GET", address), ("PUT", "http://169.254.169.254/latest/api/token"), ("GET", address)]


async def test_failures_are_counted_and_the_notice_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def at(address: str) -> str:
        nonlocal looks
        looks += 1
        if looks <= 120:
            raise UnreadableNoticeError(f"look {looks}")
        return "leaving" if looks > 122 else ""

    monkeypatch.setattr(notice_probe, "notice_at", at)
    notices: list[str] = []
    failures: list[tuple[int, str]] = []
    await NoticeProbe("/x", HandClock(), notices.append, lambda *failure: failures.append(failure)).watch()
    assert notices == ["leaving"]
    assert failures == [(1, "look 1"), (10, "look 10"), (100, "look 100")]
