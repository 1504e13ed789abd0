"""`result.plot`: the views of a run directory as drawings."""

import math
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.ids import Generation, TrialId
from sparktrain.errors import MissingFileError, SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.report_parts import step_row
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.state.records import GangFormed, TrialConcluded
from sparktrain.state.trial import TrialStatus
from sparktrain.views.notebook import plot_data
from sparktrain.views.notebook.result_plots import Plot, ResultPlots
from sparktrain.views.report.reading import read_document
from tests.unit.driver.stored import BEGUN, ScriptedRun
from tests.unit.views.notebook.pages import checked, drawings

KINDS = ("history", "parallel", "curves", "timeline", "importance")
HOSTILE = '<script>alert("1")</script>'
MOST = 400_000


def swept(folder: Path, trials: int, steps: int = 5, name: str = "lr", params: dict[str, Any] | None = None) -> str:
    """The directory of a sweep in which each trial has reported and succeeded, in two slots."""
    run = ScriptedRun(folder, total=trials).begin()
    chance = random.Random(1)
    cases = [{name: 10 ** chance.uniform(-4, -1), "units": 2 ** (each % 4), **(params or {})} for each in range(trials)]
    run.add(*cases)
    records: list[Any] = []
    rows = []
    for trial in range(trials):
        at, value = BEGUN + trial / 2, 1 - abs(math.log10(cases[trial][name]) + 2) / 4
        hosts = (f"host-{trial % 2}",)
        records.append(GangFormed(trial=TrialId(trial), generation=Generation(1), hosts=hosts, at=at))
        succeeded = TrialStatus.SUCCEEDED
        metrics = {"accuracy": value}
        records.append(
            TrialConcluded(trial=TrialId(trial), status=succeeded, metrics=metrics, seconds=1.0, at=at + 0.9)
        )
        rows += [step_row(trial, 1, 0, step, at, {"accuracy": value * step / steps}) for step in range(1, steps + 1)]
    run.write(*records)
    run.record(rows)
    run.at += trials / 2 + 1
    run.end()
    return run.directory


def plots_of(directory: str) -> ResultPlots:
    return st.load(directory).plot


def all_of(plots: ResultPlots) -> dict[str, Plot]:
    return {kind: getattr(plots, kind)() for kind in KINDS}


def test_each_view_has_a_drawing_and_a_text(tmp_path: Path) -> None:
    result = st.load(swept(tmp_path, 24))
    made = all_of(result.plot)
    for plot in made.values():
        page = checked(plot._repr_html_(), 60_000)
        assert drawings(page.html) == [plot.svg]
    values = [trial.metrics["accuracy"] for trial in result.trials]
    texts = {kind: repr(plot).splitlines() for kind, plot in made.items()}
    assert texts["history"] == ["mnist: history", f"accuracy of 24 trials, best {max(values):.4f}"]
    assert texts["parallel"][1].startswith("24 trials by ")
    assert texts["parallel"][1].endswith(", accuracy")
    assert texts["curves"][1] == "accuracy of 24 trials by step"
    assert texts["timeline"][1] == "24 generations of trials on 2 slots"
    share = r"(lr|units) \d+% \(\d+% to \d+%\)"
    assert re.match(f"{share}, {share}", texts["importance"][1])

    assert made["history"].svg.count("<circle") == 24
    assert made["history"].svg.count("<polyline") == 1, "the best so far"
    assert made["curves"].svg.count("<polyline") == made["parallel"].svg.count("<polyline") == 24
    assert made["timeline"].svg.count("generation 1: succeeded") == 24
    shares = plot_data.importance_data(read_document(str(tmp_path / "mnist")))
    assert sum(share.share for share in shares) == pytest.approx(1.0, abs=0.01)


def test_the_best_line_and_the_dots_are_those_of_the_trials(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, total=3, metric="loss", mode="min").begin()
    run.add({"lr": 1}, {"lr": 2}, {"lr": 3})
    for trial, loss in ((1, 0.5), (0, 0.7), (2, 0.2)):
        run.form(trial)
        run.at += 10
        run.succeed(trial, loss=loss)
    run.end()
    data = plot_data.history_data(read_document(run.directory))
    assert data is not None
    assert [dot.value for dot in data.values] == [0.5, 0.7, 0.2]
    assert [dot.note.split(":")[0] for dot in data.values] == ["trial 1", "trial 0", "trial 2"]
    assert data.best == [(1, 0.5), (3, 0.2)]


def test_what_users_named_is_text(tmp_path: Path) -> None:
    directory = swept(tmp_path, 21, name=HOSTILE, params={"x" * 200: "🙂" * 100, "kind": HOSTILE})
    for plot in all_of(plots_of(directory)).values():
        page = checked(plot._repr_html_(), 60_000)
        assert "script" not in page.tags


def test_curves_of_another_metric(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path).begin()
    run.add({"lr": 1})
    run.form(0)
    run.note(0, 1, 2, 3, loss=0.5, accuracy=0.1)
    plots = plots_of(run.directory)
    assert plots.curves().text == "accuracy of 1 trial by step"
    assert plots.curves("loss").text == "loss of 1 trial by step"
    with pytest.raises(
        SpecError, match=r"no curves of metric 'f1' are in the views of run mnist; there are: accuracy, loss"
    ):
        plots.curves("f1")


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, total=4).begin()
    run.add(*({"lr": value} for value in (1e300, 1e-300, -1e300, 5e-324)))
    for trial, value in enumerate((math.nan, math.inf, 1e300, -1e300)):
        run.form(trial)
        run.note(trial, 1, 2, accuracy=value)
        run.succeed(trial, accuracy=value)
    run.end()
    for plot in all_of(plots_of(run.directory)).values():
        checked(plot._repr_html_(), 60_000)


@pytest.mark.parametrize("started", [False, True])
def test_a_run_without_anything_to_draw_explains_why(tmp_path: Path, started: bool) -> None:
    run = ScriptedRun(tmp_path).begin()
    if started:
        run.add({"lr": 1})
    for kind, plot in all_of(plots_of(run.directory)).items():
        page = checked(plot._repr_html_(), 2000)
        assert plot.svg == ""
        assert plot.text in page.texts
        assert plot.title == f"mnist: {kind}"


def test_a_run_that_continues_is_read_again_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, total=2).begin()
    run.add({"lr": 1}, {"lr": 2})
    plots = plots_of(run.directory)
    for trial in range(2):
        run.form(trial)
        run.at += 5
        run.succeed(trial, accuracy=0.5)
        assert plots.history().text.startswith(f"accuracy of {trial + 1} trial")
    run.end()
    assert plots.history().text.startswith("accuracy of 2 trials")
    (tmp_path / "mnist" / "run.json").unlink()
    assert plots.timeline().svg


def test_a_result_without_a_directory_has_no_plots() -> None:
    result = SweepResult(name="mnist", status=SweepStatus.SUCCEEDED)
    assert repr(result.plot) == "plots of mnist: history(), parallel(), curves(), timeline(), importance()"
    with pytest.raises(MissingFileError, match=r"has no directory.* sparktrain\.load"):
        result.plot.history()


def test_a_result_with_plots_can_be_pickled_and_compared(tmp_path: Path) -> None:
    directory = swept(tmp_path, 3)
    result = st.load(directory)
    result.plot.history()
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result
    assert copy.plot.history().svg == result.plot.history().svg
