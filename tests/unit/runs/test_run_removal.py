"""A run is deleted as a whole, and a removal that was interrupted anywhere can be repeated."""

from contextlib import suppress
from pathlib import Path

import pytest

from sparktrain.clock import SystemClock
from sparktrain.errors import DeposedError, RunDirectoryError
from sparktrain.runs.locate import RunLocation, run_in
from sparktrain.runs.run_removal import Remover
from sparktrain.runs.watcher import this_process
from tests.unit.driver.stored import HandClock, ScriptedRun, typical
from tests.unit.store.gated import GatedStore

HOUR_S = 3600.0


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    made = typical(tmp_path / "runs")
    made.end("stopped")
    return made


def remover(place: RunLocation) -> Remover:
    return Remover(place, HOUR_S, HandClock(SystemClock().wall() + 2 * HOUR_S))


class StoreGoneError(OSError):
    pass


class FailsAt:
    """A gate that fails once, at its n-th deletion."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, name: str, work: object) -> object:
        assert callable(work)
        if name == "delete":
            self.left -= 1
            if self.left == 0:
                raise StoreGoneError
        return work()


def test_an_interrupted_removal_is_repeated(run: ScriptedRun) -> None:
    whole, number = False, 0
    while not whole:
        number += 1
        gate = FailsAt(number)
        place = RunLocation(GatedStore(run.store, gate), run.layout)  # type: ignore[arg-type]
        with suppress(StoreGoneError):
            remover(place).remove(this_process(HandClock(), "rm"))
            whole = True
        assert whole or run_in(run.directory).has_run, "the directory is still that of a run"
    assert number > 3
    assert list(run.store.entries()) == []


def test_a_driver_that_starts_meanwhile_ends_the_removal(run: ScriptedRun) -> None:
    started: list[ScriptedRun] = []

    def start(name: str, work: object) -> object:
        assert callable(work)
        result = work()
        if name == "delete" and not started:
            started.append(run.begin("host-9"))
        return result

    place = RunLocation(GatedStore(run.store, start), run.layout)  # type: ignore[arg-type]
    with pytest.raises(DeposedError):
        remover(place).remove(this_process(HandClock(), "rm"))
    assert run.place.has_run


def test_a_run_that_is_about_to_start_may_be_in_use(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs")
    with pytest.raises(RunDirectoryError, match="may be in use"):
        Remover(run.place, HOUR_S, SystemClock()).find()
    assert remover(run.place).find().described == "a sweep of 0 trials, its driver is gone"
