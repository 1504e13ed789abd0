"""A run that cannot start, on a pool that stays open: others may have it at once."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from sparktrain.display.progress import NullDisplay
from sparktrain.driver.agent_sources import PoolAgents
from sparktrain.driver.data import data_writing
from sparktrain.driver.launch import launch
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import DataError, PoolError, RunDirectoryError, StoreError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs import history
from sparktrain.runs.history import look, this_driver
from sparktrain.search.space import grid
from sparktrain.state.ending import Ending
from tests.unit.scripted import of_a_script

POOL, OTHER = this_driver("host:1", "of the pool"), this_driver("other:2", "of another process")


@of_a_script
def train(x: int) -> float:
    raise NotImplementedError


class Pool:
    """An open pool, as far as a run needs it before it starts."""

    engine = SimpleNamespace(
        notes=(),
        runs_jobs=False,
        inherits=False,
        gpu_mib=0,
        notice=None,
        check_run=str,
        check_data=str,
        tokens=lambda address: None,
    )
    agents = 2
    preload = ()

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def check_name(self, name: str) -> None:
        pass

    def entered(self, name: str) -> nullcontext[None]:
        return nullcontext()

    def driver_identity(self) -> DriverIdentity:
        return POOL


@pytest.fixture(autouse=True)
def pool_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "answers", lambda driver: driver.address == POOL.address)


def prepared(folder: Path, values: list[int]) -> CheckedCall:
    data = {"train": pa.table({"x": values})}
    options = SweepOptions(metric="loss", dir=str(folder), name="big", backend="none", preload=[], seed=1, data=data)
    return compose(train, grid(x=[1]), options)


def performed(one: CheckedCall, run: Callable[..., Any]) -> None:
    launch(one, PoolAgents(cast(AgentPool, Pool(run))), NullDisplay())


def never(work: Any) -> Any:
    raise AssertionError("the pool runs it")


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [DataError("column 'x' has 1 null\nfill it"), StoreError("no NameNode answers"), KeyboardInterrupt()]
)
def test_a_write_that_fails_in_a_pool_leaves_the_run_to_any_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(data_writing, "written_manifest", failing(error))
    with pytest.raises(type(error)):
        performed(prepared(tmp_path, [1, 2]), never)
    one = prepared(tmp_path, [3, 4])  # corrected: no trial has seen the rows that failed
    found = attach(one, driver=OTHER).stored_run
    assert found is not None
    assert found.end is not None
    assert (found.end.ending, found.end.reason) == (
        Ending.UNPREPARED,
        str(error).partition("\n")[0] or type(error).__name__,
    )

    monkeypatch.undo()
    monkeypatch.setattr(history, "answers", lambda driver: True)
    works: list[Any] = []
    with pytest.raises(PoolError, match="enough"):
        performed(one, lambda work: (works.append(work), failing(PoolError("seen enough"))()))
    assert [each.data.sets["train"].path.startswith("big/data/train-") for each in works] == [True]


def test_slots_that_were_taken_while_data_was_written_leave_the_run_to_any_driver(tmp_path: Path) -> None:
    with pytest.raises(PoolError):
        performed(prepared(tmp_path, [1, 2]), failing(PoolError("others hold the slots")))
    attach(prepared(tmp_path, [1, 2]), driver=OTHER)


def test_a_run_that_the_pool_has_started_stays_with_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        performed(prepared(tmp_path, [1, 2]), failing(StoreError("the store is away")))
    with pytest.raises(RunDirectoryError, match="in use: process"):
        attach(prepared(tmp_path, [1, 2]), driver=OTHER)


def test_the_error_of_the_write_is_raised_where_its_end_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_writing, "written_manifest", failing(DataError("column 'x' has 1 null")))
    monkeypatch.setattr(Journal, "append", failing(StoreError("the store is away")))
    with pytest.raises(DataError):
        performed(prepared(tmp_path, [1, 2]), never)
    one = prepared(tmp_path, [1, 2])
    assert look(one.definition.store, one.definition.layout) is not None
