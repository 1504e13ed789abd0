"""TensorBoard over a run: real servers, over HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.config.store_address import StoreAddress
from sparktrain.rundir.event_files import open_growing
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from sparktrain.views.board.board import Board
from tests.support.boards import SERVES_WITHIN_S, Browser, write_events
from tests.support.processes import Sighted, descendants, wait_until

BY_CTRL_C = pytest.mark.all(case="Ctrl-C ends a driver that serves TensorBoard", covered_by="SIGKILL ends it")

ROOT = Path(__file__).parents[2]
HOME = "run/trials/0000/generation-1/rank-0/files"
DRIVER = """\
import sys
import cloudpickle
import sparktrain as st
import tests
from tests.support.boards import train
cloudpickle.register_pickle_by_value(tests)
if __name__ == "__main__":
    st.sweep(train, {"folder": [sys.argv[1]]}, metric="y", mode="max", spark=st.local(slots=1), name="run",
             dir=sys.argv[1] + "/runs", preload=[], tensorboard=True)
"""
GONE_WITHIN_S = 20.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where boards copy events to."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("TENSORBOARD_PORT", raising=False)
    return folder


def test_only_the_token_opens_a_board_and_closing_it_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    write_events(tmp_path / "store" / HOME / "train", [3.0, 2.0])
    board = Board.start(LocalStore(tmp_path / "store"), "run")
    try:
        left, browser = Sighted([board._process.pid]), Browser(board.url)
        assert (browser.host, browser.status(), browser.status("/data/runs")) == ("localhost", 401, 401)
        assert browser.status("/data/runs?token=wrong") == 403
        assert browser.status("/data/runs", Authorization=f"Bearer {browser.token[:-1]}") == 403
        status, headers, _ = browser.get(f"/?token={browser.token}")
        assert (status, headers["Location"]) == (303, "./")
        cookie = headers["Set-Cookie"].partition(";")[0]
        status, _, page = browser.get("/", Cookie=cookie)
        assert (status, b"<html" in page) == (200, True)
        browser.wait_for("0000/train", [3.0, 2.0])
        assert [each.name() for each in left.alive()] == ["sparktrain-tb"]
        assert not left.processes[0].children(recursive=True)
        listening = {each.laddr.port for each in left.processes[0].net_connections() if each.status == "LISTEN"}
        assert listening == {browser.port}, "nothing listens without the token"
    finally:
        board.close()
    board.close()
    assert left.alive() == []
    assert browser.refuses()
    assert list(temporary.iterdir()) == []


@pytest.mark.all(
    case="events grow in an object store",
    covered_by="events of a run in a directory; `unit/views/board/test_event_mirror`: in an object store",
)
def test_events_that_grow_in_an_object_store_are_shown(temporary: Path, tmp_path: Path) -> None:
    store = open_store(StoreAddress(f"memory://{uuid4().hex}"))
    append = write_events(tmp_path, [3.0])
    file = next(tmp_path.glob("events*"))
    stream = open_growing(store, f"{HOME}/{file.name}", SystemClock())
    with Board.start(store, "run") as board:
        stream.write(sent := file.read_bytes())
        browser = Browser(board.url)
        browser.wait_for("0000", [3.0])
        append(1, 2.0)
        stream.write(file.read_bytes()[len(sent) :])
        stream.close()
        browser.wait_for("0000", [3.0, 2.0])
        assert browser.runs() == ["0000"]


@pytest.fixture
def driver(tmp_path: Path, temporary: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Starts a driver of one trial that serves TensorBoard."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        (tmp_path / "driver.py").write_text(DRIVER)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        line = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path)]
        env = {**os.environ, "PYTHONPATH": path}
        started.append(subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def url_of(driver: "subprocess.Popen[str]") -> str:
    """The URL that a driver shows."""
    assert driver.stderr is not None
    for line in driver.stderr:
        if "TensorBoard: " in line:
            return line.partition("TensorBoard: ")[2].strip()
    raise AssertionError("the driver has ended, and has shown no URL")


def status_of(folder: Path) -> dict[str, object]:
    line = [sys.executable, "-m", "sparktrain", "status", str(folder / "runs" / "run"), "--json"]
    return dict(json.loads(subprocess.run(line, capture_output=True, check=True, cwd=ROOT, timeout=60).stdout))


def test_a_run_shows_its_events_while_they_grow(
    driver: Callable[[], "subprocess.Popen[str]"], tmp_path: Path, temporary: Path
) -> None:
    running = driver()
    url = url_of(running)
    left, browser = Sighted([each.pid for each in descendants(running.pid, "sparktrain.views.board")]), Browser(url)
    browser.wait_for("0000/train", [3.0, 2.0])
    assert status_of(tmp_path)["tensorboard"] == url
    wait_until(
        lambda: browser.scalars("0000/sparktrain", "y") == [0.5], SERVES_WITHIN_S, "the report of trial 0 is shown"
    )
    (tmp_path / "more").touch()
    browser.wait_for("0000/train", [3.0, 2.0, 1.0])
    (tmp_path / "end").touch()
    _, error = running.communicate(timeout=60)
    assert running.returncode == 0, error
    assert "not stored" not in error
    assert left.alive() == []
    assert status_of(tmp_path)["tensorboard"] is None
    assert not list(temporary.glob("sparktrain-board-*"))
    events = tmp_path / "runs" / HOME / "train"
    assert [path.name for path in events.iterdir()] == ["events.out.tfevents.1.host"]
    assert not list((tmp_path / "runs" / "run").glob("**/growing"))


@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=BY_CTRL_C)])
def test_a_board_ends_with_its_driver(
    driver: Callable[[], "subprocess.Popen[str]"], tmp_path: Path, temporary: Path, signum: signal.Signals
) -> None:
    running = driver()
    browser = Browser(url_of(running))
    assert browser.status() == 401
    left = Sighted([each.pid for each in descendants(running.pid, "sparktrain.views.board")])
    assert len(left.alive()) == 1
    running.send_signal(signum)
    left.wait_gone(GONE_WITHIN_S)
    assert browser.refuses()
    wait_until(lambda: not list(temporary.glob("sparktrain-board-*")), GONE_WITHIN_S, "no events are left")


@pytest.mark.all(case="`sparktrain board` in a process", covered_by="`Board` in this one; `unit/cli`")
def test_the_command_serves_a_run_until_ctrl_c(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "runs" / "run").mkdir(parents=True)
    (tmp_path / "runs" / "run" / "run.json").write_text("{}")
    write_events(tmp_path / "runs" / HOME / "train", [3.0, 2.0, 1.0])
    line = [sys.executable, "-m", "sparktrain", "board", str(tmp_path / "runs" / "run"), "--json"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as command:
        assert command.stdout is not None
        browser = Browser(json.loads(command.stdout.readline())["url"])
        browser.wait_for("0000/train", [3.0, 2.0, 1.0])
        left = Sighted([command.pid, *(each.pid for each in descendants(command.pid))])
        command.send_signal(signal.SIGINT)
        _, error = command.communicate(timeout=30)
        assert (command.returncode, error) == (130, "error: interrupted\n")
    left.wait_gone(GONE_WITHIN_S)
    assert not list(temporary.glob("sparktrain-board-*"))
