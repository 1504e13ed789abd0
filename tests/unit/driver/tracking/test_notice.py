"""Notices: what is sent, how, and what happens when it is not taken."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.tracking import notice
from sparktrain.driver.tracking.callback import TrackedEnd, TrackedResult, TrackedRun
from sparktrain.driver.tracking.notice import Notice, NoticeSender, post, run_command

LIMIT_S = 20.0
RUN = TrackedRun(
    id="r-1", name="r", directory="/runs/r", kind="sweep", function="f", metric="y", mode="max", started=1.0,
    resumed=False,
)  # fmt: skip
MADE = Notice(event="ended", run="r", directory="/runs/r", text="r: over", status="succeeded", trial=2)


class NoPause:
    """A clock with pauses that take no time."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        self.at += seconds


def end(number: int, status: str, error: str = "") -> TrackedEnd:
    return TrackedEnd(
        id=f"r-1-{number}", number=number, params={}, generation=1, status=status, metrics={}, seconds=1.0, error=error
    )


class Hook:
    """A server that answers with the statuses that it is given."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.got: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0])
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/T0/secret?token=word"


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_the_first_failure_and_the_end_are_sent_to_a_function() -> None:
    got: list[Notice] = []
    sender = NoticeSender(got.append, 600.0)
    sender.run_started(RUN)
    for ended in (end(0, "succeeded"), end(1, "failed", "ValueError: x"), end(2, "lost")):
        sender.trial_ended(ended)
    sender.run_ended(TrackedResult(run=RUN, status="succeeded", reason="", seconds=1.0, best=0, trials=(end(0, "x"),)))
    assert [(each.event, each.trial, each.status) for each in got] == [
        ("first_failure", 1, "failed"), ("ended", 0, "succeeded"),
    ]  # fmt: skip
    assert got[0].text == "r: trial 1 is the first that failed: ValueError: x"
    assert got[1].text == "r: the run has ended as succeeded (1 trial, trial 0 is the best)"


def test_a_standstill_is_sent_once_until_something_happens() -> None:
    got: list[str] = []
    come = threading.Semaphore(0)

    def take(made: Notice) -> None:
        got.append(made.event)
        come.release()

    sender = NoticeSender(take, 0.02)
    sender.run_started(RUN)
    assert come.acquire(timeout=LIMIT_S)
    sender.trial_ended(end(0, "succeeded"))
    assert come.acquire(timeout=LIMIT_S)
    sender.run_ended(TrackedResult(run=RUN, status="succeeded", reason="", seconds=1.0, best=None))
    assert got == ["no_progress", "no_progress", "ended"]


def test_a_function_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(made: Notice) -> None:
        raise ValueError("no phone")

    sender = NoticeSender(wrong, 600.0)
    sender.run_started(RUN)
    sender.run_ended(TrackedResult(run=RUN, status="failed", reason="", seconds=1.0, best=None))
    assert "was not delivered: ValueError: no phone" in caplog.text
    assert "def wrong" not in caplog.text
    assert "raise ValueError" in caplog.text


def test_a_command_gets_the_notice_as_variables_and_as_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_command(f'cat > {out}; echo " $SPARKTRAIN_EVENT $SPARKTRAIN_RUN $SPARKTRAIN_TEXT" >> {out}', MADE)
    found, _, rest = out.read_text().partition("} ")
    assert json.loads(found + "}") == {
        "event": "ended", "run": "r", "directory": "/runs/r", "text": "r: over", "status": "succeeded", "trial": 2
    }  # fmt: skip
    assert rest == "ended r r: over\n"


def test_a_command_that_fails_is_quoted_and_one_that_hangs_is_killed_with_its_children() -> None:
    with pytest.raises(OSError, match=r"status 3: no mail$"):
        run_command("echo no mail >&2; exit 3", MADE)
    with pytest.raises(OSError, match=r"not ended within 0.2 s, and was killed"):
        run_command("sleep 600 & sleep 600", MADE, 0.2)


def test_an_address_gets_json_and_a_busy_one_is_tried_again(hook: Hook) -> None:
    hook.statuses = [503, 503, 200]
    post(hook.url, MADE, NoPause())
    assert [each["text"] for each in hook.got] == ["r: over"] * 3
    assert hook.got[0]["content"] == "r: over"
    assert hook.got[0]["event"] == "ended"


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (404, 1)])
def test_an_address_that_refuses_is_named_without_its_secrets(hook: Hook, status: int, tries: int) -> None:
    hook.statuses = [status]
    with pytest.raises(OSError, match=rf"^http://127.0.0.1:\d+/... has not taken it: status {status}$"):
        post(hook.url, MADE, NoPause())
    assert len(hook.got) == tries


def test_an_address_without_a_server_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notice, "REQUEST_S", 1.0)
    sender = NoticeSender("http://user:word@127.0.0.1:9/hook", 600.0, NoPause())
    sender.run_started(RUN)
    sender.run_ended(TrackedResult(run=RUN, status="failed", reason="", seconds=1.0, best=None))
    assert "http://127.0.0.1:9/... has not taken it" in caplog.text
    assert "word" not in caplog.text
