"""The parts of a prepared run."""

from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.call_option import settled
from sparktrain.config.data_sources import TableSource
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.finish import run_end
from sparktrain.driver.first_lines import opening
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, SlotRequest, compose
from sparktrain.driver.prepare.naming import NamedRun
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import DataError, ResumeError, SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.history import look, this_driver
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.space import grid, single
from sparktrain.state.trial import TrialStatus
from tests.support.run_stages import named, owned
from tests.unit.scripted import of_a_script


@of_a_script
def train(lr: float) -> float:
    return lr


def prepared(folder: Path, **options: object):  # type: ignore[no-untyped-def]
    values = {"workers": 2, "backend": "none", "dir": str(folder), "name": "big", **options}
    return compose(train, single({"lr": 0.1}), RunOptions(**values))  # type: ignore[arg-type]


def table(values: list[int]) -> dict[str, TableSource]:
    return {"train": TableSource(pa.table({"x": values}))}


def ended(status: TrialStatus, generations: int = 2) -> SweepResult:
    trial = TrialResult(id=TrialId(0), params={}, status=status, generations=generations)
    return SweepResult(name="big", status=SweepStatus.SUCCEEDED, trials=(trial,))


def test_a_run_is_a_sweep_of_one_trial(tmp_path: Path) -> None:
    made = prepared(tmp_path, max_retries=5)
    assert made.trials == 1
    assert list(made.definition.space) == [{"lr": 0.1}]
    spec = made.definition.spec
    assert (spec.gang, spec.max_retries) == (GangSpec(workers=2, backend=Backend.NONE), 5)


@pytest.mark.parametrize(("metric", "mode", "line"), [("val_loss", "min", "lower"), ("acc", "max", "higher")])
def test_the_better_end_of_a_metric_is_found_stored_and_told(tmp_path: Path, metric: str, mode: str, line: str) -> None:
    made = prepared(tmp_path, metric=metric)
    assert (made.definition.spec.mode, made.definition.plan.spec["mode"]) == (mode, mode)
    assert list(opening(attach(made))) == [f"big: metric {metric}, {line} is better"]


def test_the_model_of_a_run_is_the_one_that_the_chief_of_its_newest_gang_exported(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    older, newest = (
        made.definition.layout.path + f"/trials/0000/generation-{number}/rank-0/model.keras" for number in (1, 2)
    )
    made.definition.store.put_if_absent(older, b"old")
    assert run_end(made, ended(TrialStatus.SUCCEEDED)).model_path is None
    made.definition.store.put_if_absent(newest, b"model")
    assert run_end(made, ended(TrialStatus.SUCCEEDED)).model_path == str(tmp_path / newest)
    assert run_end(made, ended(TrialStatus.FAILED)).model_path is None


def test_a_limit_of_trials_is_for_a_sweep_and_a_number_of_agents_for_a_run(tmp_path: Path) -> None:
    def resumed(run: NamedRun, **options: int) -> CheckedCall:
        return compose_again(run.definition.where, settled(ResumeKeywords, options))

    one = named(prepared(tmp_path))
    assert resumed(one, agents=3).slots == SlotRequest(agents=3)
    with pytest.raises(
        SpecError, match=r"^max_concurrent_trials \(2\) is for a sweep, and .* holds a run: pass agents$"
    ):
        resumed(one, max_concurrent_trials=2)
    options = SweepOptions(metric="loss", dir=str(tmp_path), backend="none", preload=[], max_concurrent_trials=4)
    call = compose(train, grid(lr=[1]), options)
    assert call.slots.concurrent == 4
    many = named(call)
    assert resumed(many, max_concurrent_trials=2).slots.concurrent == 2
    with pytest.raises(
        SpecError, match=r"^agents \(3\) is for a run, and .* holds a sweep: pass max_concurrent_trials$"
    ):
        resumed(many, agents=3)


def test_data_that_no_trial_has_seen_may_be_corrected(tmp_path: Path) -> None:
    first = owned(prepared(tmp_path, data=table([1, 2])))
    corrected = owned(prepared(tmp_path, data=table([3, 4])))
    data = corrected.write_data(print)
    assert data.sets["train"].path.startswith("big/data/train-")
    assert first.run.stored_run is None
    corrected.journal.append([corrected.run.driver_started])
    attach(prepared(tmp_path, data=table([3, 4])))
    with pytest.raises(ResumeError, match="was started with other data"):
        attach(prepared(tmp_path, data=table([1, 2])))


def test_a_gang_without_a_row_for_each_member_is_refused_before_its_directory_exists(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\['train'\] has 1 row for 2 members, and each needs at least one"):
        prepared(tmp_path, data=table([1]))
    assert not list(tmp_path.iterdir())


def test_another_driver_finds_the_owner_while_data_is_written(tmp_path: Path) -> None:
    made = owned(prepared(tmp_path, data=table([1, 2])), this_driver("host:1", "print")).definition
    found = look(made.store, made.layout)
    assert found is not None
    assert found.driver is not None
    assert found.driver.address == "host:1"
