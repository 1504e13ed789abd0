"""Sweeps that start with what former runs have found: what the sampler knows, and what a resumed driver still does."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli

SPACE = {"x": st.uniform(-10, 10), "units": st.choice([1, 2]), "epochs": 3}


def learn(x: float, units: int, epochs: int) -> dict[str, float]:
    """Is best at x = 3; fails far away from it."""
    if x > 9:
        raise ValueError("diverged")
    return {"loss": (x - 3) ** 2 + units}


AGENTS = 1, "numpy"
"""One warm agent: trials come one after the other, so that a sweep is reproducible."""


def cases(result: st.SweepResult) -> list[dict[str, Any]]:
    return [dict(trial.params) for trial in result.trials]


def test_results_of_a_former_run_are_known_and_the_first_trials_are_the_points(
    pool: st.Pool, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    common: dict[str, Any] = {"metric": "loss", "dir": str(runs), "seed": 3}
    tried = st.cases([{"x": x, "units": 1, "epochs": 3} for x in (1, 2.5, 5, -15, 9.5)])
    former = pool.sweep(learn, tried, name="former", **common)
    points = [{"x": 3.0, "units": 1}, {"x": -4, "units": 2}]
    made = pool.sweep(learn, SPACE, name="warm", trials=4, warm_start=[former, *points], **common)
    assert cases(made)[:2] == [{"x": 3.0, "units": 1, "epochs": 3}, {"x": -4, "units": 2, "epochs": 3}]
    assert (len(made.trials), made.best.id) == (4, 0)
    err = capfd.readouterr().err
    where = runs / "former"
    line = "known to the sampler; 1 outside of the space; 1 without loss"
    assert f"warm: 3 of 5 trials of {where} are in the space, and {line}\n" in err
    assert "warm: 2 points of warm_start are tried first\n" in err
    assert len(json.loads((runs / "warm" / "results.json").read_text())["trials"]) == 4

    cold = pool.sweep(learn, SPACE, name="cold", trials=3, warm_start=points, **common)
    assert cases(cold)[:2] == cases(made)[:2]
    assert cases(cold)[2] != cases(made)[2]  # what is known decides on what follows

    os.rename(where, moved := runs / "moved")
    assert cases(pool.sweep(learn, SPACE, name="warm", trials=4, warm_start=[moved, *points], **common)) == cases(made)
    shutil.rmtree(moved)
    more = pool.sweep(learn, SPACE, name="warm", trials=5, warm_start=[where, *points], **common)
    assert cases(more)[:4] == cases(made)
    assert len(more.trials) == 5
    with pytest.raises(st.ResumeError, match=r"started with .*former, 2 points .* and now warm_start is 1 points"):
        pool.sweep(learn, SPACE, name="warm", trials=9, warm_start=points[:1], **common)
    assert cases(st.resume(str(runs / "warm"), spark=st.local(slots=1))) == cases(more)


def test_the_table_of_a_result_teaches_as_the_result_does(pool: st.Pool, runs: Path) -> None:
    common: dict[str, Any] = {"metric": "loss", "dir": str(runs), "seed": 5, "trials": 1}
    tried = [{"x": x, "units": 1 + x % 2, "epochs": 3} for x in range(-5, 6)]
    former = pool.sweep(learn, tried, metric="loss", dir=str(runs), name="former")
    of_run = pool.sweep(learn, SPACE, name="of-run", warm_start=runs / "former", **common)
    of_table = pool.sweep(learn, SPACE, name="of-table", warm_start=former.to_pandas(), **common)
    bare = former.to_pandas().rename(columns=lambda name: name.removeprefix("params.").removeprefix("metrics."))
    of_bare = pool.sweep(learn, SPACE, name="of-bare", warm_start=bare, **common)
    assert cases(of_run) == cases(of_table) == cases(of_bare)


def test_points_of_a_grid_come_first_and_run_once(pool: st.Pool, runs: Path) -> None:
    grid = {"x": [1, 2], "units": [1, 2], "epochs": [3]}
    point = {"x": 2, "units": 1, "epochs": 3}
    made = pool.sweep(learn, grid, metric="loss", dir=str(runs), name="grid", warm_start=point)
    assert [(case["x"], case["units"]) for case in cases(made)] == [(2, 1), (1, 1), (1, 2), (2, 2)]


def test_a_finished_sweep_is_extended_by_trials_and_by_a_wider_space(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place: dict[str, Any] = {"spark": st.local(slots=2)}
    first = st.sweep(learn, SPACE, metric="loss", dir=str(runs), name="sampled", trials=3, seed=1, **place)
    capfd.readouterr()
    wider = {"x": st.uniform(-20, 10), "units": st.choice([1, 2, 3])}
    made = st.extend(first, wider, trials=3, **place)
    assert [made.trials[n].params for n in range(3)] == [trial.params for trial in first.trials]
    assert [trial.generations for trial in made.trials] == [1] * 6
    err = capfd.readouterr().err
    assert "sampled: resumes; 3 trials keep their results; 3 to run in all\n" in err
    assert "sampled: is extended from 3 to 6 trials\nsampled: x ~ uniform(-20, 10), was uniform(-10, 10)\n" in err
    assert len(st.resume(str(runs / "sampled"), **place).trials) == 6  # a resumed one is the extended one

    st.sweep(learn, {"x": [1], "units": [1, 2], "epochs": [3]}, metric="loss", dir=str(runs), name="grid", **place)
    assert cli.main(["extend", str(runs / "grid"), "--grid", "x=1,2", "--local", "--json"]) == 0
    tried = [(each["params"]["x"], each["params"]["units"]) for each in json.loads(capfd.readouterr().out)["trials"]]
    assert tried == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for name, total in (("sampled", 6), ("grid", 4)):
        assert cli.main(["status", str(runs / name), "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["total"] == total
