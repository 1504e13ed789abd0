"""Notes and tags of trials: added at any time, shown everywhere."""

from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import TrialId
from sparktrain.errors import MissingFileError, SpecError
from sparktrain.runs.additions.trial_labels import LabelReader
from sparktrain.runs.trial_result import TrialResult
from sparktrain.runs.watcher import LABELS_S, Observer
from sparktrain.state.trial import TrialStatus
from sparktrain.views.report.reading import read_document
from tests.unit.driver.stored import HandClock, ScriptedRun, typical


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


def test_notes_and_tags_of_the_command_line_are_shown(run: ScriptedRun, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["note", "diverged\nlater"], ["note", "why?"], ["tag", "good"], ["tag", "odd"], ["tag", "good"]):
        assert cli.main([words[0], run.directory, words[1], "--trial", "1"]) == 0
    assert cli.main(["tag", run.directory, "odd", "--trial", "1", "--remove"]) == 0
    assert cli.main(["status", run.directory]) == 0
    assert "trial 1 [good]: diverged" in capfd.readouterr().out

    row = read_document(run.directory, HandClock()).trials[1]
    assert (row.details.notes, row.details.tags) == (("diverged\nlater", "why?"), ("good",))
    run.succeed(2, accuracy=0.95)
    run.form(3)
    run.fail(3)
    run.end()
    result = st.load(run.directory)
    assert isinstance(result, st.SweepResult)
    assert "trial 1 [good]: diverged" in str(result)
    frame = result.to_pandas()
    assert (frame["tags"].tolist(), frame["notes"][1]) == ([[], ["good"], [], []], ["diverged\nlater", "why?"])


def test_a_trial_of_a_result_takes_notes_and_tags(run: ScriptedRun) -> None:
    trial = st.load(run.directory).trials[0]
    trial.note("  the baseline ")
    trial.tag("good")
    trial.tag("good")
    trial.tag("kept")
    trial.untag("good")
    again = st.load(run.directory).trials[0]
    assert (trial.notes, trial.tags) == (again.notes, again.tags) == (("the baseline",), ("kept",))
    with pytest.raises(MissingFileError, match="belongs to no run directory"):
        TrialResult(id=TrialId(0), params={}, status=TrialStatus.SUCCEEDED).note("lost")


def test_the_order_is_that_in_which_users_of_any_clocks_have_acted(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.store.put_if_absent(run.layout.label("1700000000000-01234567"), b"another version has named it by milliseconds")
    for behind_s in (0.0, 7200.0, 3600.0):
        monkeypatch.setattr(SystemClock, "wall", lambda clock, behind_s=behind_s: 1.7e9 - behind_s)
        trial = st.load(run.directory).trials[0]
        trial.untag("good") if behind_s == 7200.0 else trial.tag("good")
        trial.note(f"{behind_s:.0f}")
    labels = LabelReader(run.store, run.layout).read()[0]
    assert (labels.notes, labels.tags) == (("0", "7200", "3600"), ("good",))
    assert all(map(run.layout.owns, run.store.list(run.layout.labels)))


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 101, 3, None])
def test_what_is_no_tag(run: ScriptedRun, text: Any) -> None:
    with pytest.raises(SpecError, match="a tag "):
        st.load(run.directory).trials[0].tag(text)
    assert LabelReader(run.store, run.layout).read() == {}


def test_an_unknown_trial_and_a_foreign_file(run: ScriptedRun, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["note", run.directory, "text", "--trial", "9"]) == 2
    assert "trial 9 is none of run mnist" in capfd.readouterr().err
    assert cli.main(["tag", run.directory, "good"]) == 2
    assert "run mnist has 4 trials: name one with --trial N" in capfd.readouterr().err
    run.store.put_if_absent(f"{run.layout.labels}/mine.txt", b"\xff")
    assert LabelReader(run.store, run.layout).read() == {}


def test_a_watched_run_shows_a_note_within_seconds(run: ScriptedRun) -> None:
    clock = HandClock()
    observer = Observer(run.place, clock)
    first = observer.look()
    st.load(run.directory).trials[0].note("now")
    assert observer.look() is first
    clock.at += LABELS_S
    assert observer.look().results[0].notes == ("now",)
