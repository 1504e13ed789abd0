"""A notebook on Spark Connect that is closed in the middle of a run on HDFS, and opened again on the next day."""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from sparktrain.base.clock import SystemClock, pause
from tests.process.test_notebook_page import CHROMIUM
from tests.spark.notebook import Cell, Notebook
from tests.support.connect_server import connect_server
from tests.support.hadoop import Hdfs
from tests.support.processes import Sighted, wait_until

CELL_S = 240.0
SESSION_S = 20.0
"""After so long the server has neither the session nor an operation of a client that is gone."""
LIMITS = {
    "spark.connect.execute.manager.detachedTimeout": "10s",
    "spark.connect.execute.manager.maintenanceInterval": "2s",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "5s",
    "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_S:.0f}s",
    "spark.connect.session.manager.maintenanceInterval": "2s",
}
SESSION = """
from pyspark.sql import SparkSession
import sparktrain as st

spark = SparkSession.builder.remote("sc://127.0.0.1:{port}").getOrCreate()
"""
SUBMIT = """
def train(lr, folder, ctx):
    import os, time
    from pathlib import Path

    Path(folder, f"start-{{lr}}-{{os.getpid()}}").touch()
    epoch = 0
    while Path(folder, "hold").exists():
        epoch += 1
        ctx.report(epoch, accuracy=1 - lr / epoch)
        time.sleep(0.2)
    return {{"accuracy": 1 - lr}}

handle = st.submit(train, {{"lr": [0.1, 0.2], "folder": [{folder!r}]}}, metric="accuracy", mode="max", backend="none",
                   preload=[], dir="hdfs:///exp", name="big", spark=spark)
handle
"""
LATER = """
import sparktrain as st

st.attach("hdfs:///exp/big").result()
"""

pytestmark = [
    pytest.mark.all(
        case="a notebook on Connect is closed in the middle of a run on HDFS, and another one attaches on the next day",
        covered_by="`spark/test_left_connect`: a client that is killed; `process/test_notebook_runs`: kernels",
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture
def port(hdfs_cluster: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server with executors that, as the kernels, find HDFS by their environment."""
    for name, value in hdfs_cluster.env.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "server"
    folder.mkdir()
    with connect_server(folder, LIMITS) as started:
        yield started


def test_a_closed_notebook_is_opened_on_the_next_day(port: int, tmp_path: Path) -> None:
    clock = SystemClock()
    (tmp_path / "hold").touch()
    with Notebook(tmp_path) as first:
        first.run(SESSION.format(port=port), CELL_S)
        submitted = first.run(SUBMIT.format(folder=str(tmp_path)), CELL_S)
        wait_until(lambda: len(list(tmp_path.glob("start-*"))) == 2, CELL_S, "both trials train")
        kernel = Sighted([first.pid])
        kernel.kill()
        left_at = clock.now()
    # The next day: nothing of the first session is left at the server but what the coordinator keeps.
    while clock.now() < left_at + 2 * SESSION_S:
        pause(1.0)
    with Notebook(tmp_path) as second:
        cell = second.start(LATER)
        second.wait(cell, lambda so_far: "2 running" in words_of(so_far) or so_far.over, CELL_S)
        assert not cell.over, "the run continues, and the cell shows it"
        running = words_of(cell)
        (tmp_path / "hold").unlink()
        second.finish(cell, CELL_S)
    assert len(list(tmp_path.glob("start-*"))) == 2, "no trial starts twice"
    assert "on any day" in submitted.result["text/html"]
    assert "the run continues without this process: its coordinator stays attached" in words_of(submitted)
    assert "big" in running
    assert "2 of 2 trials" in words_of(cell)
    assert re.search(r"0\.9000?\b", cell.result["text/html"]), cell.result["text/html"]
    if picture := os.environ.get("SPARKTRAIN_PICTURE"):
        draw([(SUBMIT.format(folder="/mnt/exp"), submitted), (LATER, cell)], Path(picture))


def words_of(cell: Cell) -> str:
    """What the displays of a cell show now, as text."""
    shown = "\n".join(state.get("text/html") or state.get("text/plain", "") for state in cell.newest.values())
    return html.unescape(re.sub(r"<[^>]+>", "", shown)) + cell.printed


def draw(cells: list[tuple[str, Cell]], picture: Path) -> None:
    """A picture of the cells with their outputs, as a notebook shows them."""
    parts = []
    for code, cell in cells:
        shown = "".join(f"<div>{state.get('text/html', '')}</div>" for state in cell.newest.values())
        printed = f"<pre>{html.escape(cell.printed)}</pre>" if cell.printed else ""
        parts.append(
            f"<pre class=code>{html.escape(code.strip())}</pre>{printed}{shown}{cell.result.get('text/html', '')}"
        )
    style = "body{font:14px sans-serif;margin:20px}.code{background:#f5f5f5;padding:8px;font-size:12px}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=120_000
        )
        page = browser.new_page(viewport={"width": 1000, "height": 1100})
        page.set_content(f"<!doctype html><style>{style}</style>{'<hr>'.join(parts)}")
        page.screenshot(path=str(picture))
        browser.close()
