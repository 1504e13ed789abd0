"""Objectives of Optuna on the slots of this machine."""

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import sparktrain as st
from sparktrain.errors import FunctionError, SamplerError, SpecError
from tests.support.functions import square
from tests.support.mortal import Mortal


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Pool]:
    """Two warm agents for all tests of the file: no test measures their start."""
    with st.pool(st.local(slots=2), preload=["optuna"]) as pool:
        pool.sweep(square, {"x": [1, 2]}, metric="y", mode="max", dir=str(tmp_path_factory.mktemp("warm")))
        yield pool


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def parabola(trial: optuna.Trial) -> float:
    kind = trial.suggest_categorical("kind", ["plain", "shifted"])
    x = trial.suggest_float("x", -3, 3)
    if kind == "shifted":
        x += trial.suggest_int("shift", 1, 3)
    trial.set_user_attr("process", os.getpid())
    for step in range(4):
        trial.report(x * x / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x * x


def test_an_ordinary_objective_runs_on_executors_and_its_study_opens_meanwhile(pool: st.Pool, tmp_path: Path) -> None:
    study = optuna.create_study(
        storage=sqlite(tmp_path), study_name="s", sampler=optuna.samplers.TPESampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )  # fmt: skip
    finished = list[int]()

    def look(of: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        assert of is study
        opened = optuna.load_study(study_name="s", storage=sqlite(tmp_path))
        finished.append(sum(each.state.is_finished() for each in opened.trials))
        assert opened.trials[trial.number].state is trial.state

    result = st.optuna.optimize(
        study, parabola, 16, callbacks=[look], pool=pool, dir=str(tmp_path), name="run", progress=False
    )
    assert finished == list(range(1, 17))
    assert result.status == "succeeded"
    by_number = {int(each.user_attrs["sparktrain:trial"].rpartition("#")[2]): each for each in study.trials}
    states = {TrialState.COMPLETE: "succeeded", TrialState.PRUNED: "pruned"}
    assert [each.status for each in result.trials] == [states[by_number[each.id].state] for each in result.trials]
    assert [each.params for each in result.trials] == [by_number[each.id].params for each in result.trials]
    assert result.best.metrics == {"value": study.best_value}
    assert len({each.user_attrs["process"] for each in study.trials} | {os.getpid()}) == 17
    pruned = next(each for each in result.trials if each.status == "pruned")
    assert pruned.pruned.endswith("TrialPruned without a message (MedianPruner)")
    assert by_number[pruned.id].value == pruned.metrics["value"]
    assert [each.distributions for each in result.to_study().trials] == [
        by_number[number].distributions for number in range(16)
    ]
    exported = [[each.params, each.value, each.intermediate_values] for each in result.to_study().trials]
    assert exported == [[by_number[n].params, by_number[n].value, by_number[n].intermediate_values] for n in range(16)]


def test_a_grid_ends_when_it_is_done_also_on_several_slots(pool: st.Pool, tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.number == 4:
            trial.study.stop()
        return float(trial.suggest_int("x", 0, 3))

    def run(sampler: optuna.samplers.BaseSampler, name: str) -> list[int]:
        study = optuna.create_study(sampler=sampler)
        result = st.optuna.optimize(study, objective, 9, pool=pool, dir=str(tmp_path), name=name, progress=False)
        assert (result.status, result.reason) == ("succeeded", None)
        return [each.params["x"] for each in study.trials]

    assert sorted(run(optuna.samplers.GridSampler({"x": [0, 1, 2, 3]}), "grid")) == [0, 1, 2, 3]
    assert 5 <= len(run(optuna.samplers.RandomSampler(), "stopped")) < 9


def test_a_trial_that_loses_its_process_gets_the_same_values_again(pool: st.Pool, tmp_path: Path) -> None:
    def objective(trial: optuna.Trial, ctx: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        Path(tmp_path, f"seen-{ctx.trial}-{ctx.generation}").write_text(repr((x, kind, trial.number)))
        if ctx.generation == 1:
            trial.report(x, 0)
            trial.should_prune()
            os.kill(os.getppid(), signal.SIGKILL)  # its zygote: the executor has lost its processes
            signal.pause()
        trial.report(2.0, 0)
        trial.report(3.0, 1)
        return x + trial.suggest_int("more", 1, 9)

    study = optuna.create_study()
    result = st.optuna.optimize(study, objective, 2, pool=pool, dir=str(tmp_path), name="run", progress=False)
    assert [each.generations for each in result.trials] == [2, 2]
    for number in range(2):
        first, second = (Path(tmp_path, f"seen-{number}-{generation}").read_text() for generation in (1, 2))
        assert first == second
    assert [each.state for each in study.trials] == [TrialState.COMPLETE] * 2
    x = {each.params["x"] for each in study.trials}
    assert {each.intermediate_values[0] for each in study.trials} == x
    assert [each.intermediate_values[1] for each in study.trials] == [3.0, 3.0]


def test_a_study_that_fails_ends_the_run_which_the_same_call_resumes(pool: st.Pool, tmp_path: Path) -> None:
    def broken(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        raise OSError("the database is gone")

    place: dict[str, Any] = {"pool": pool, "dir": str(tmp_path), "name": "run", "progress": False}
    with pytest.raises(
        SamplerError, match=r"the callback broken of optuna.optimize\(\) raised OSError .*database is gone"
    ):
        st.optuna.optimize(optuna.create_study(), parabola, 6, callbacks=[broken], **place)
    before = st.load(str(tmp_path / "run"))
    assert isinstance(before, st.SweepResult)
    kept = {each.id: each.params for each in before.trials if each.status == "succeeded"}
    assert kept
    study = optuna.create_study()  # in memory: another one
    result = st.optuna.optimize(study, parabola, 6, **place)
    assert len(result.trials) == 6
    assert {number: result.trials[number].params for number in kept} == kept
    values = sorted(each.metrics["value"] for each in result.trials if each.status == "succeeded")
    assert sorted(each.value for each in study.trials if each.state is TrialState.COMPLETE) == values


def held(trial: optuna.Trial, ctx: Any) -> float:
    x = trial.suggest_float("x", 0, 1)
    folder = Path(os.environ["HELD"])
    Path(folder, f"seen-{ctx.trial}-{ctx.generation}").write_text(repr(x))
    while Path(folder, "hold").exists():
        os.sched_yield()
    return x


def drive(folder: Path) -> Any:
    """A driver for tests to kill."""
    study = optuna.create_study(storage=sqlite(folder), study_name="s", load_if_exists=True)
    result = st.optuna.optimize(
        study, held, 3, spark=st.local(slots=2), dir=str(folder / "runs"), name="run", progress=False,
        env={"HELD": str(folder)}, max_concurrent_trials=2,
    )  # fmt: skip
    return [[each.id, each.status, each.params["x"], each.generations] for each in result.trials]


def test_another_driver_continues_the_same_trials_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    first = Mortal("tests.process.test_optuna:drive", tmp_path, "tests.support.local_driver").start()
    try:
        first.wait(lambda: len(list(tmp_path.glob("seen-*-1"))) == 2, "two trials")
        assert first.process is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    finally:
        first.close()
    (tmp_path / "hold").unlink()
    before = {int(path.name.split("-")[1]): float(path.read_text()) for path in tmp_path.glob("seen-*-1")}
    rows = drive(tmp_path)
    assert {number: x for number, _, x, _ in rows if number in before} == before
    assert [status for _, status, _, _ in rows] == ["succeeded"] * 3
    study = optuna.load_study(study_name="s", storage=sqlite(tmp_path))
    assert [each.state for each in study.trials] == [TrialState.COMPLETE] * 3
    assert sorted(each.params["x"] for each in study.trials) == sorted(x for _, _, x, _ in rows)


def test_several_objectives_and_failed_trials(pool: st.Pool, tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 1)
        if trial.number == 1:
            trial.should_prune()
        return x, 1 - x

    study = optuna.create_study(directions=["minimize", "maximize"])
    result = st.optuna.optimize(study, objective, 4, pool=pool, dir=str(tmp_path), progress=False)
    failed = [each for each in result.trials if each.status == "failed"]
    assert [each.error.summary for each in failed if each.error is not None] == [
        "NotImplementedError: Trial.should_prune is not supported for multi-objective optimization."
    ]
    good = [each for each in result.trials if each.status == "succeeded"]
    assert [each.metrics for each in good] == [
        {"values_0": each.params["x"], "values_1": 1 - each.params["x"]} for each in good
    ]
    assert sorted(each.state.name for each in study.trials) == ["COMPLETE"] * 3 + ["FAIL"]


def test_stop_in_a_callback_ends_a_run_that_has_one_trial_at_a_time(pool: st.Pool, tmp_path: Path) -> None:
    study: Any = optuna.create_study()
    stop = optuna.study.MaxTrialsCallback(3, states=(TrialState.COMPLETE,))
    result = st.optuna.optimize(
        study, lambda trial: trial.suggest_float("x", 0, 1), 50, n_jobs=1, callbacks=[stop], pool=pool,
        dir=str(tmp_path), progress=False,
    )  # fmt: skip
    assert 3 <= len(result.trials) <= 4
    assert all(b.datetime_start >= a.datetime_complete for a, b in itertools.pairwise(study.trials))
    assert {each.status for each in result.trials} == {"succeeded"}
    assert {each.state for each in study.trials} == {TrialState.COMPLETE}


def test_a_wrong_call_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study: Any = optuna.create_study()
    call: Any = st.optuna.optimize
    with pytest.raises(SpecError, match=r"study is .*a study is expected: pass what optuna.create_study"):
        call("s", parabola, 3)
    with pytest.raises(FunctionError, match=r"the objective is .*which cannot be called"):
        call(study, 3, 3)
    with pytest.raises(FunctionError, match=r"the objective uses a study \(study\), which stays in the driver"):
        call(study, lambda trial: study.best_value, 3)
    with pytest.raises(SpecError, match=r"callbacks is .*a list of functions is expected"):
        call(study, parabola, 3, callbacks=parabola)
    with pytest.raises(SpecError, match="has no end"):
        call(study, parabola)
    with pytest.raises(SpecError, match="has no option stopper, because the study has it: pass pruner="):
        call(study, parabola, 3, stopper="asha")
    with pytest.raises(SpecError, match=r"workers_per_trial \(2\) must be 1"):
        call(study, parabola, 3, workers_per_trial=2)
    assert study.trials == []
    monkeypatch.setattr("sparktrain.optuna.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"needs optuna, which is not installed: pip install 'sparktrain\[search\]'"):
        call(study, parabola, 3)


def test_a_renamed_run_and_its_copy_have_each_trial_in_the_study_once(pool: st.Pool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"storage": sqlite(tmp_path), "study_name": "s", "load_if_exists": True}

    def finish(folder: str, name: str, trials: int) -> int:
        study = optuna.create_study(**options)
        directory = str(tmp_path / folder)
        result = st.optuna.optimize(study, parabola, trials, pool=pool, dir=directory, name=name, progress=False)
        assert len(result.trials) == trials
        return len(optuna.load_study(study_name="s", storage=sqlite(tmp_path)).trials)

    assert finish("a", "run", 2) == 2
    shutil.copytree(tmp_path / "a" / "run", tmp_path / "copy" / "run")
    os.rename(tmp_path / "a" / "run", tmp_path / "a" / "other")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert finish("link", "other", 3) == 3
    assert finish("copy", "run", 3) == 4, "the copy has a third trial of its own"
