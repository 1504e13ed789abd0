"""The example notebooks in a real kernel: interrupted in the middle, restarted in the middle, and on a DataFrame."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.results.sweep_result import SweepResult
from sparktrain.state.trial import TrialStatus
from tests.examples.test_readme import activated
from tests.spark.notebook import Cell, Notebook
from tests.support.processes import Sighted

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
CELL_S = 120.0
GONE_S = 2.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    for name, value in activated().items():
        monkeypatch.setenv(name, value)
    for name in set(os.environ) - set(activated()):
        monkeypatch.delenv(name)
    with Notebook(tmp_path) as started:
        yield started


def code_of(name: str) -> list[str]:
    """The code of the cells."""
    stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in stored if cell["cell_type"] == "code"]


def at(code: list[str], call: str) -> int:
    """The number of the cell with this call."""
    [number] = [number for number, cell in enumerate(code) if call in cell]
    return number


def some_done(least: int, of: int) -> Callable[[Cell], bool]:
    """Whether the display shows that some trials are done, and not all."""

    def seen(cell: Cell) -> bool:
        text = re.sub(r"<[^>]+>", "", cell.displayed[-1]["text/html"]) if cell.displayed else ""
        found = re.search(rf"(\d+) of {of} trials done", text)
        return found is not None and least <= int(found[1]) < of

    return seen


def stored(folder: Path, name: str) -> SweepResult:
    result = st.load(str(folder / "sparktrain-runs" / name))
    assert isinstance(result, SweepResult)
    return result


def kept(result: SweepResult) -> dict[int, tuple[str, float, int]]:
    """What a finished trial keeps."""
    ended = [trial for trial in result.trials if trial.status in (TrialStatus.SUCCEEDED, TrialStatus.PRUNED)]
    return {trial.id: (trial.status.value, trial.seconds, trial.generations) for trial in ended}


@pytest.mark.all(
    case="a notebook with a sweep that is interrupted",
    covered_by="`spark/test_notebook`: a pool in a notebook is interrupted, and the notebook sweeps again",
)
def test_a_sweep_is_interrupted_and_the_same_cell_continues_it(kernel: Notebook, tmp_path: Path) -> None:
    code = code_of("first_sweep")
    sweep = at(code, "st.sweep(")
    for cell in code[:sweep]:
        kernel.run(cell, CELL_S)
    running = kernel.wait(kernel.start(code[sweep]), some_done(1, 6), CELL_S)
    training = Sighted([each.pid for each in kernel.training()])
    assert training.alive()
    kernel.interrupt()
    training.wait_gone(GONE_S)
    kernel.finish(running, CELL_S)
    assert running.error.startswith("KeyboardInterrupt: run first-sweep was interrupted")
    before = kept(stored(tmp_path, "first-sweep"))
    assert 1 <= len(before) < 6

    shown = kernel.run(code[sweep], CELL_S)
    after = stored(tmp_path, "first-sweep")
    assert [trial.status for trial in after.trials] == [TrialStatus.SUCCEEDED] * 6
    assert before.items() <= kept(after).items()
    assert shown.result["text/html"].count("<circle") == 6
    assert "first-sweep: succeeded. 6 trials" in shown.result["text/plain"]
    best, curves, last = [kernel.run(cell, CELL_S) for cell in code[sweep + 1 :]]
    assert str(after.best.params) in best.printed
    assert "val_accuracy" in best.result["text/plain"]
    assert curves.result["text/html"].count("<polyline") == 6
    assert after.best.model_path is not None
    assert after.best.model_path in last.printed


@pytest.mark.all(
    case="a notebook with a search that continues after its kernel has restarted",
    covered_by="`spark/test_notebook`, `process/test_notebook_runs`: sweeps in a kernel, and again; "
    "`process/test_sampled_sweeps`: a search continues from its directory; `faults/test_orphans`: a killed driver",
)
def test_a_search_continues_after_the_kernel_has_restarted(kernel: Notebook, tmp_path: Path) -> None:
    code = code_of("search_early_stopping")
    sweep, resume = at(code, "st.sweep("), at(code, "st.resume(")
    for cell in code[:sweep]:
        kernel.run(cell, CELL_S)
    kernel.wait(kernel.start(code[sweep]), some_done(2, 12), CELL_S)
    training = Sighted([each.pid for each in kernel.training()])
    before = kept(stored(tmp_path, "spirals"))
    assert len(before) >= 2
    kernel.restart()
    training.wait_gone(GONE_S)

    kernel.run(code[0], CELL_S)
    shown = kernel.run(code[resume], CELL_S)
    after = stored(tmp_path, "spirals")
    assert len(after.trials) == len(kept(after)) == 12
    assert before.items() <= kept(after).items()
    assert "spirals: resumes" in shown.displayed[-1]["text/html"]
    history, last = [kernel.run(cell, CELL_S) for cell in code[resume + 1 :]]
    assert history.result["text/html"].count("<circle") == 12
    printed = last.printed
    pruned = [trial for trial in after.trials if trial.status is TrialStatus.PRUNED]
    assert f"{len(pruned)} of 12 trials were stopped: " in printed
    assert str(after.best.params) in printed


@pytest.mark.all(
    case="a notebook with a gang on a DataFrame, and predictions",
    covered_by="`spark/test_data`: a gang on a DataFrame; `spark/test_predict`; `spark/test_notebook`",
)
def test_a_gang_trains_on_a_dataframe_and_scores_the_rest(kernel: Notebook) -> None:
    cells = [kernel.run(cell, CELL_S) for cell in code_of("gang_on_dataframe")]
    run = next(cell for cell in cells if cell.result)
    assert re.search(r"succeeded in .* on 2 members", run.result["text/plain"])
    said = re.search(r"right: ([\d.]+)% of 1200 rows", cells[-1].printed)
    assert said
    assert float(said[1]) > 80  # a constant is right for 62%
