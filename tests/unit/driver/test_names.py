"""Calls without a name, at the same moment: each gets a run of its own."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.naming import NamedRun, take_name
from sparktrain.errors import RunDirectoryError
from sparktrain.runs.history import read_overview
from sparktrain.search.space import grid
from tests.support.run_stages import in_store, named
from tests.unit.scripted import of_a_script
from tests.unit.store.gated import MemoryStore

CALLS = 4
SECOND = "20261122-120000"


@of_a_script
def train(x: int) -> float:
    return x


def call(folder: Path, x: int = 1) -> NamedRun:
    """What a call without a name does before its agents start."""
    options = SweepOptions(metric="y", mode="max", backend="none", preload=[], dir=str(folder))
    return named(compose(train, grid(x=[x]), options))


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "stamp", lambda self: SECOND)


@pytest.mark.usefixtures("one_second")
def test_calls_of_threads_within_a_second_get_runs_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(CALLS) as threads:
        made = list(threads.map(lambda x: call(tmp_path, x), range(CALLS)))
    assert len({each.definition.spec.name for each in made}) == CALLS
    for each in made:
        overview = read_overview(each.definition.store, each.definition.layout)
        assert (overview["name"], overview["plan"]) == (each.definition.spec.name, each.definition.plan.digest)
        assert each.definition.plan.spec["name"] == each.definition.spec.name


@pytest.mark.usefixtures("one_second")
def test_a_call_without_a_name_never_goes_on_with_the_run_that_had_its_name(tmp_path: Path) -> None:
    first, again = call(tmp_path), call(tmp_path)
    assert first.definition.spec.name == f"train-{SECOND}"
    assert again.definition.spec.name.startswith(f"train-{SECOND}-")
    assert again.stored_run is None


def test_names_are_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = call(tmp_path)
    monkeypatch.setattr(MemoryStore, "exists", lambda self, path: True)
    with pytest.raises(RunDirectoryError, match="pass a name"):
        take_name(replace(made, call=in_store(made.call, MemoryStore())))
