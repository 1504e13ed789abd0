"""A pool in a real notebook kernel: display, result, and the stop button, after which the notebook works again."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.notebook import Notebook
from tests.support.processes import Sighted, wait_until, written_pids

GONE_S = 5.0
CELL_S = 90.0

OPEN = """
import sparktrain as st
from pathlib import Path
from tests.support.functions import breed
from tests.support.local_spark import ONE_EXECUTOR, spark_session

folder = Path({folder!r})
options = {{"metric": "accuracy", "dir": str(folder / "runs")}}
session = spark_session(ONE_EXECUTOR, folder)
spark = session.__enter__()
pool = st.pool(spark, agents=2, preload=[])
"""
LONG = 'pool.sweep(breed, {{"x": [0, 1], "pids": [str(folder / "{name}")]}}, name="{name}", **options)'
DEFINE = """
WEIGHT = 2

def train(x, ctx):
    ctx.report(0, accuracy=0.0)
    return {"accuracy": x / WEIGHT, "rank": ctx.rank}

try:
    pool.sweep(train, {"x": [1]}, name="closed", **options)
except st.PoolError as error:
    print(error)
print(spark.range(0, 10, 1, 2).count())
"""
SWEEP = """
pool = st.pool(spark, agents=2, preload=[])
pool.sweep(train, {{"x": [1, 3, 2]}}, name="{name}", **options)
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with Notebook(tmp_path) as started:
        yield started


@pytest.mark.timeout(300)
def test_a_pool_in_a_notebook_is_interrupted_and_the_notebook_sweeps_again(notebook: Notebook, tmp_path: Path) -> None:
    # In the cell that makes the session, SIGINT is handled by PySpark; in every other, by the kernel.
    interrupt(notebook, tmp_path, "first", OPEN.format(folder=str(tmp_path)) + LONG.format(name="first"))
    after = notebook.run(DEFINE, CELL_S)
    assert after.printed.splitlines() == ["the pool is closed: open a new one with sparktrain.pool()", "10"]

    swept = notebook.run(SWEEP.format(name="swept"), CELL_S)
    assert best_row(swept.result["text/html"])[:3] == ["1", "3", "1.5000"]
    shown = [re.sub(r"<[^>]+>", "", each["text/html"]) for each in swept.displayed]
    assert re.search(r"swept +3 of 3 trials done .*best +accuracy 1\.5000 +trial 1", shown[-1], re.DOTALL), shown[-1]
    assert swept.printed == ""

    interrupt(notebook, tmp_path, "second", LONG.format(name="second"))
    again = notebook.run(SWEEP.format(name="again"), CELL_S)
    assert best_row(again.result["text/html"])[:3] == ["1", "3", "1.5000"]
    notebook.run("pool.close(); session.__exit__(None, None, None)", CELL_S)


def interrupt(notebook: Notebook, folder: Path, name: str, code: str) -> None:
    """Run a cell until both of its trials train, then interrupt it."""
    pids = folder / name
    pids.mkdir()
    cell = notebook.start(code)
    wait_until(lambda: len(list(pids.glob("ready-*"))) == 2, CELL_S, "both trials train")
    training = Sighted([*written_pids(pids), *(each.pid for each in notebook.training())])
    assert len(training.alive()) >= 6
    notebook.interrupt()
    training.wait_gone(GONE_S)
    notebook.finish(cell, CELL_S)
    assert re.match(rf"KeyboardInterrupt: run {name} was interrupted; .*/{name} has its results so far", cell.error)
    assert '"status": "stopped"' in (folder / "runs" / name / "results.json").read_text()


def best_row(html: str) -> list[str]:
    """The cells of the row that is marked as the best, in bold and by text."""
    [row] = [row for row in re.findall(r"<tr[^>]*>.*?</tr>", html, re.DOTALL) if ">best</td>" in row]
    assert 'style="font-weight: bold"' in row
    return re.findall(r"<td[^>]*>(.*?)</td>", row)
