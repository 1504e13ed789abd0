"""Several runs in one notebook kernel, without Spark: at once, one after the other, and once more."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.notebook import Cell, Notebook

CELL_S = 90.0

DEFINE = """
import threading
import sparktrain as st

machine = st.local(slots=2)
results = {}

def train(x, ctx):
    for step in range(3):
        ctx.report(step, accuracy=x * step)
    return {"accuracy": x}

def sweep(name, factor):
    space = {"x": [factor, 2 * factor]}
    results[name] = st.sweep(
        train, space, metric="accuracy", name=name, max_concurrent_trials=1, spark=machine, preload=[]
    )
"""
AT_ONCE = """
threads = [threading.Thread(target=sweep, args=each) for each in (("left", 1), ("right", 10))]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(results["left"].best.metrics, results["right"].best.metrics)
"""
SAMPLE = """
st.sweep(
    train, {"x": st.uniform(1, 2)}, metric="accuracy", name="sampled", trials=1, sampler="tpe", spark=machine,
    preload=[], progress=False,
).best
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with Notebook(tmp_path) as started:
        yield started


def pictures(cell: Cell) -> list[str]:
    """The text of the last state of each display."""
    return [re.sub(r"<[^>]+>", "", data["text/html"]) for data in cell.newest.values()]


@pytest.mark.timeout(300)
def test_runs_at_once_have_a_display_each_and_a_cell_may_be_executed_again(notebook: Notebook) -> None:
    notebook.run(DEFINE, CELL_S)
    both = notebook.run(AT_ONCE, CELL_S)
    assert both.printed.splitlines() == ["{'accuracy': 2.0} {'accuracy': 20.0}"]
    left, right = sorted(pictures(both))
    assert re.search(r"^left  2 of 2 trials done .*^best  accuracy 2\.0000 ", left, re.DOTALL | re.MULTILINE)
    assert re.search(r"^right  2 of 2 trials done .*^best  accuracy 20\.00 ", right, re.DOTALL | re.MULTILINE)
    assert "right" not in left
    assert "left" not in right

    again = notebook.run('sweep("left", 1)\nresults["left"]', CELL_S)
    [picture] = pictures(again)
    assert "left: complete: nothing was run; 2 trials keep their results" in picture
    assert again.newest.keys().isdisjoint(both.newest)
    assert "left: succeeded. 2 trials" in again.result["text/plain"]
    assert "<svg" in again.result["text/html"]

    plot = notebook.run('results["right"].plot.history()', CELL_S)
    assert "accuracy of 2 trials, best 20.00" in plot.result["text/plain"]
    assert plot.result["text/html"].count("<circle") == 2
    assert notebook.run("print(len(results))", CELL_S).printed == "2\n"

    sampled = notebook.run(SAMPLE, CELL_S)  # Optuna imports tqdm, which would show a red box without ipywidgets
    assert sampled.printed == ""
    assert "IProgress" not in notebook.output.read_text()
    assert "<b>Trial 0: succeeded</b>" in sampled.result["text/html"]
