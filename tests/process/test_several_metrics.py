"""A sweep with several metrics and a bound: its result, its files, and what follows from both."""

import json
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain import cli


def measure(x: int) -> dict[str, float]:
    return {"accuracy": x / 10, "latency": float(x * x), "size": float(10 - x)}


def plane(x: float, y: float) -> dict[str, float]:
    return {"accuracy": x, "latency": y}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> st.SweepResult:
    return st.sweep(
        measure, {"x": [1, 2, 3, 4, 5]}, metric="accuracy", other_metrics={"latency": "min"},
        constraints=["latency <= 20", "size < 9"], spark=st.local(slots=1), progress=False,
        dir=str(tmp_path_factory.mktemp("several")), name="several",
    )  # fmt: skip


def test_the_best_and_the_front_are_feasible(swept: st.SweepResult, capfd: pytest.CaptureFixture[str]) -> None:
    assert swept.best.params == {"x": 4}
    assert [trial.params["x"] for trial in swept.pareto_front()] == [4, 3, 2]
    assert [trial.params["x"] for trial in swept.pareto_front(constraints=[])] == [5, 4, 3, 2, 1]
    loaded = st.load(str(swept.directory))
    assert isinstance(loaded, st.SweepResult)
    assert loaded.best.params == {"x": 4}
    assert loaded.other_metrics == (st.Objective("latency", "min"),)
    document = json.loads(Path(str(swept.directory), "results.json").read_text())
    assert (document["pareto_front"], document["infeasible"], document["best"]["id"]) == ([3, 2, 1], [0, 4], 3)
    assert cli.main(["status", str(swept.directory)]) == 0
    assert "Pareto front: trials 3, 2, 1" in capfd.readouterr().out
    assert cli.main(["best", str(swept.directory)]) == 0
    assert "x=4" in capfd.readouterr().out


def test_a_study_of_it_has_both_directions_and_the_bounds(swept: st.SweepResult) -> None:
    study = swept.to_study()
    assert [each.name for each in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert sorted(trial.number for trial in study.best_trials) == [1, 2, 3]
    assert len(swept.to_study(metric="size").directions) == 1


def test_without_a_feasible_trial_the_nearest_is_named(tmp_path: Path) -> None:
    made = st.sweep(
        measure, {"x": [3, 4]}, metric="accuracy", constraints=["latency < 9"], spark=st.local(slots=1),
        progress=False, dir=str(tmp_path), name="none",
    )  # fmt: skip
    with pytest.raises(st.NoBestTrialError, match="trial 0 comes nearest, with latency 9 where latency < 9 is wanted"):
        _ = made.best
    assert made.pareto_front() == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"metric": "accuracy", "other_metrics": {"accuracy": "max"}}, "which is the metric itself"),
        ({"metric": "accuracy", "other_metrics": {}}, "pass a dict of at least one metric"),
        ({"metric": "accuracy", "other_metrics": {"speed": None}}, "pass mode='max'"),
        ({"metric": "accuracy", "constraints": ["latency == 3"]}, "write METRIC <= NUMBER"),
        ({"metric": "accuracy", "constraints": ["latency <= nan"]}, "no finite number"),
        ({"metric": "accuracy", "other_metrics": {"latency": "min"}, "sampler": "cmaes"}, "follows one metric"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    options: dict[str, object], problem: str, tmp_path: Path
) -> None:
    sampled = "sampler" in options
    space = {"x": st.uniform(0, 1), "y": st.uniform(0, 1)} if sampled else {"x": [1]}
    function = plane if sampled else measure
    with pytest.raises(st.SpecError, match=problem):
        st.sweep(function, space, trials=2, spark=st.local(slots=1), dir=str(tmp_path / "runs"), **options)
    assert not (tmp_path / "runs").exists()
