"""What people see of ten thousand trials, and what a driver restores: small, and in little time."""

import math
import time
from pathlib import Path

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import loguniform, uniform
from sparktrain.display.top_screen import TopKey, TopScreen
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.report_parts import step_row
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion
from sparktrain.store.localfs import LocalStore
from tests.unit.display.test_top_screen import NOW, drawn, ids, many, pressed
from tests.unit.driver.stored import BEGUN, ScriptedRun
from tests.unit.rundir.journal.journals import FOLDER, LAYOUT, claim, facts
from tests.unit.runs.test_run_files import opened
from tests.unit.search.test_samplers import chosen
from tests.unit.views.notebook import test_cards as cards
from tests.unit.views.notebook import test_result_plots as result_plots
from tests.unit.views.notebook.pages import checked


def test_plots_stay_small(tmp_path: Path) -> None:
    for plot in result_plots.all_of(result_plots.plots_of(result_plots.swept(tmp_path, 10_000, steps=3))).values():
        checked(plot._repr_html_(), result_plots.MOST)
        assert plot.svg


def test_the_card_of_a_result_has_the_best_of_them() -> None:
    params = {f"parameter_{'x' * 180}_{number}": "y" * 200 for number in range(8)}
    trials = [cards.trial(number, 1 + math.sin(number), lr=number / 7, **params) for number in range(10_000)]
    result = cards.sweep(*trials)
    page = checked(result._repr_html_(), cards.MOST)
    assert "the best 20 of 10000 trials" in page.html
    assert "<svg" in page.html
    assert "<table" in page.html


def test_the_screen_of_a_run_scrolls(tmp_path: Path) -> None:
    shown = TopScreen(many(tmp_path, 10_000), NOW)
    drawn(shown)
    pressed(shown, TopKey.END)
    assert ids(drawn(shown)) == [str(number) for number in range(9993, 10_000)]
    pressed(shown, TopKey.PAGE_UP)
    assert "9993/10000" in drawn(shown, 60)[3]
    pressed(shown, TopKey.HOME)
    assert ids(drawn(shown)) == ["0", "1", "2", "3", "4", "5", "6"]


def test_their_history_is_read_in_five_seconds(tmp_path: Path) -> None:
    run, trials, reports = ScriptedRun(tmp_path / "runs", total=None).begin(), 10_000, 10
    for first in range(0, trials, 50):
        rows = [
            step_row(trial, 1, 0, step, BEGUN + step, {"loss": 1 / (step + trial + 1), "accuracy": trial / trials})
            for trial in range(first, first + 50)
            for step in range(reports)
        ]
        run.record(rows)
    result = opened(run)
    started = time.process_time()
    frame = result.history()
    took = time.process_time() - started
    assert len(result.reports()) == 2 * trials * reports
    assert frame.shape == (trials * reports, 7)
    assert frame.loc[frame["step"] == 9, "loss"].iloc[-1] == 1 / (9 + trials)
    assert took < 5.0


def test_a_sampler_restores_them_in_ten_seconds() -> None:
    over = space({f"x{number}": uniform(0, 1) for number in range(8)} | {"lr": loguniform(1e-5, 1)})
    history: list[PastSuggestion | Observation] = []
    for number in range(10_000):
        case = {f"x{each}": (number * (each + 1) % 997) / 997 for each in range(8)} | {"lr": 1 / (number + 2)}
        history.append(PastSuggestion(TrialId(number), (case,), False))
        history.append(Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, {"y": number % 89 / 89}))
    sampler, begun = chosen("tpe", over, trials=10_004), time.process_time()
    sampler.restore(history)
    assert len(sampler.suggest(4).cases) == 4
    assert time.process_time() - begun < 10.0


def test_their_journal_is_read_at_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    journal = claim(store)
    batches = [facts(*range(first, first + 400)) for first in range(0, 40_000, 400)]  # each trial has four records
    for each in batches:
        journal.append(each)
    everything = tuple(record for each in batches for record in each)
    began = time.process_time()
    assert read(store, LAYOUT).records == everything
    journal.compact(everything)
    for path in tmp_path.glob(f"{FOLDER}/batch-*"):
        path.unlink()
    assert read(store, LAYOUT).records == everything
    assert time.process_time() - began < 5
