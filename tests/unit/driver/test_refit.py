"""What a call of `refit` refuses before anything starts, and what a driver leaves to the next."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.continuation.program import StoredProgram
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import SpecError
from sparktrain.rundir import checkpoints
from sparktrain.rundir.checkpoints import Draft
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.plan import Origin
from sparktrain.search.space import grid, single
from sparktrain.state.records import CheckpointAcknowledged, TrialsAdded
from tests.support.run_stages import named, owned
from tests.unit.scripted import of_a_script


@of_a_script
def train(lr: float, epochs: int = 1) -> float:
    return lr


def options(folder: Path, name: str) -> SweepOptions:
    return SweepOptions(metric="loss", dir=str(folder), name=name, preload=[], backend="none")


def test_a_stored_function_is_checked_by_its_source_and_sent_as_it_is(tmp_path: Path) -> None:
    sweep = compose(train, grid(lr=[1]), options(tmp_path, "sweep")).definition
    program = StoredProgram(sweep.plan, sweep.code)
    made = compose(program, single({"lr": 1, "epochs": 9}), options(tmp_path, "refit")).definition
    assert (made.code, made.plan.parts, made.plan.text) == (sweep.code, sweep.plan.parts, sweep.plan.text)
    with pytest.raises(SpecError, match=r"train has no parameter 'epoch'; did you mean 'epochs'\?"):
        compose(program, single({"lr": 1, "epoch": 9}), options(tmp_path, "refit"))


def test_a_run_starts_from_its_checkpoint_also_when_its_first_driver_died_before_the_copy(tmp_path: Path) -> None:
    made = compose(train, single({"lr": 1}), options(tmp_path, "new"))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "a").write_bytes(b"a")
    member = Member(RunId("old"), TrialId(3), Generation(1), Rank(0))
    old = checkpoints.write(made.definition.store, RunLayout("old"), Draft(member, 12, tmp_path / "snapshot"))
    origin = Origin(directory=str(tmp_path / "old"), trial=3, checkpoint=old)
    first = replace(made, definition=made.definition.with_plan(origin=origin))
    named(first)  # and here its driver dies
    added, acknowledged = owned(compose_again(str(tmp_path / "new"), settled(ResumeKeywords, {}))).contents.records
    assert isinstance(added, TrialsAdded)
    assert isinstance(acknowledged, CheckpointAcknowledged)
    assert (acknowledged.checkpoint.generation, acknowledged.checkpoint.step) == (0, 12)
    made.definition.store.delete_all(made.definition.store.list("old"))
    third = owned(compose_again(str(tmp_path / "new"), settled(ResumeKeywords, {})))
    assert third.contents.records == (added, acknowledged)
