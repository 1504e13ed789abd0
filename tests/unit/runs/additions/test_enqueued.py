"""A trial that a user adds is checked before it is stored, and the driver finds it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparktrain import cli
from sparktrain.config.distribution import uniform
from sparktrain.errors import SpecError
from sparktrain.runs import watcher
from sparktrain.runs.additions.enqueued import STUDY, enqueue, pending
from sparktrain.search.sampled_space import space
from sparktrain.search.space_json import to_document
from tests.unit.driver.stored import ScriptedRun

SAMPLED = {"space": to_document(space({"lr": uniform(0, 1)}), 40), "sampler": "tpe", "trials": 40}


@pytest.fixture(autouse=True)
def _driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda who: True)


def of(tmp_path: Path, **options: Any) -> ScriptedRun:
    return ScriptedRun(tmp_path / "my runs", **{"total": 40, **SAMPLED, **options}).begin()


def test_a_trial_is_stored_for_the_driver(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = of(tmp_path)
    assert cli.main(["enqueue", run.directory, "--param", "lr=1"]) == 0
    assert capfd.readouterr().out == f"added to {run.directory}: lr=1; it starts with the next free slot\n"
    second = enqueue(run.place, {"lr": 0.25})
    found = pending(run.store, run.layout, ())
    assert [each.params for each in found] == [{"lr": 1.0}, {"lr": 0.25}]
    assert pending(run.store, run.layout, {found[0].id}) == [second]


@pytest.mark.parametrize(
    ("options", "params", "words"),
    [
        ({}, {"lr": 2}, "outside of the space: lr = 2 is not in uniform"),
        ({}, {}, "outside of the space: 'lr' is missing"),
        ({}, {"lr": 0.5, "units": 8}, "outside of the space: 'units' is no parameter of this case"),
        ({"space": {"kind": "cases", "values": [{"lr": 0.1}]}, "sampler": msgspec.UNSET}, {"lr": 0.2}, "not among the"),
        ({"sampler": STUDY}, {"lr": 0.5}, r"from a study: call study.enqueue_trial"),
        ({"total": 1, "trials": None}, {"lr": 0.5}, "mnist is a run of one gang, and only a sweep takes more trials"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: dict[str, Any], params: dict[str, Any], words: str) -> None:
    run = of(tmp_path, **options)
    with pytest.raises(SpecError, match=words):
        enqueue(run.place, params)
    assert pending(run.store, run.layout, ()) == []


def test_a_grid_runs_no_case_twice(tmp_path: Path) -> None:
    cases = {"space": {"kind": "cases", "values": [{"lr": 0.1}, {"lr": 0.2}]}, "sampler": msgspec.UNSET, "total": 2}
    run = of(tmp_path, **cases, trials=None)
    run.add({"lr": 0.1})
    with pytest.raises(SpecError, match="trial 0 has these parameters already, and a grid or a list runs each"):
        enqueue(run.place, {"lr": 0.1})
    assert enqueue(run.place, {"lr": 0.2}).params == {"lr": 0.2}


def test_a_run_that_takes_no_more_trials_names_what_gives_it_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = of(tmp_path, total=1 + 1)
    run.add({"lr": 0.1}, {"lr": 0.2})
    extend = f"sparktrain extend '{run.directory}' --trials 1"
    with pytest.raises(
        SpecError, match=rf"all 2 trials .* counts as one of them; once the sweep has ended, .*{extend}"
    ):
        enqueue(run.place, {"lr": 0.5})
    run.end()
    with pytest.raises(SpecError, match=f"mnist has ended, so no trial can be added; to give it more: {extend}"):
        enqueue(run.place, {"lr": 0.5})
    monkeypatch.setattr(watcher, "answers", lambda who: False)
    gone = of(tmp_path, name="gone")
    with pytest.raises(SpecError, match=r"the driver of gone does not answer, .* resume it first: sparktrain resume"):
        enqueue(gone.place, {"lr": 0.5})


def test_other_files_in_the_folder_are_no_requests(tmp_path: Path) -> None:
    run = of(tmp_path)
    run.store.put_if_absent(f"{run.layout.enqueued_folder}/notes.txt", b"mine")
    run.store.put_if_absent(run.layout.enqueued("broken"), b"{")
    run.store.put_if_absent(run.layout.enqueued("other"), b'{"id": "x", "params": {"lr": 0.5}}')
    assert [each.id for each in pending(run.store, run.layout, ())] == ["other"]
