"""Sweeps with repeats and folds on this machine, and by the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.config.sweep_spec import trial_seed
from sparktrain.ops.simulation.curves import from_run


def noted(x: float, folder: str, ctx: Any) -> dict[str, float]:
    """The last of three sets of parameters is hopeless."""
    seen = {"x": x, "repeat": ctx.repeat, "fold": ctx.fold, "folds": ctx.folds, "seed": ctx.seed}
    Path(folder, f"trial-{ctx.trial}").write_text(json.dumps(seen))
    return {"y": x + ctx.fold / 100 + ctx.repeat / 1000}


AGENTS = (1,)
"""One warm agent: trials come one after the other."""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {
        "metric": "y", "mode": "min", "dir": str(tmp_path / "runs"), "name": "s", "seed": 3, "preload": [],
        "progress": False, "backend": "none",
    }  # fmt: skip


def sweep(pool: st.Pool, tmp_path: Path, **options: Any) -> st.SweepResult:
    folder = tmp_path / "seen"
    folder.mkdir(exist_ok=True)
    space = st.grid(x=[0.5, 0.25, 9.0], folder=[str(folder)])
    return pool.sweep(noted, space, **options)


def test_folds_share_a_seed_and_a_hopeless_case_is_not_finished(
    pool: st.Pool, options: dict[str, Any], tmp_path: Path
) -> None:
    result = sweep(pool, tmp_path, repeats=2, folds=2, **options)
    seen = [json.loads((tmp_path / "seen" / f"trial-{number}").read_text()) for number in range(10)]
    seeds = [trial_seed(3, 0), trial_seed(3, 1)]
    expected = [
        {"x": x, "repeat": repeat, "fold": fold, "folds": 2, "seed": seeds[repeat]}
        for x in (0.5, 0.25, 9.0)
        for repeat in range(2)
        for fold in range(2)
    ]
    assert seen == expected[:10]
    assert len(list((tmp_path / "seen").iterdir())) == 10, "the last two trials never start"
    assert [trial.status.value for trial in result.trials] == ["succeeded"] * 10 + ["pruned"] * 2
    assert [trial.generations for trial in result.trials[10:]] == [0, 0]
    assert "racing" in result.trials[11].pruned
    assert [case.status.value for case in result.cases] == ["succeeded", "succeeded", "pruned"]
    assert result.best_case.id == 1
    assert result.best_case.metrics["y"] == pytest.approx(0.2555)
    assert result.best.id == 4
    loaded = st.load(str(tmp_path / "runs" / "s"))
    assert isinstance(loaded, st.SweepResult)
    assert loaded.cases == result.cases
    with pytest.raises(st.SpecError, match="pass a run without repeats and folds"):
        from_run(str(tmp_path / "runs" / "s"))
    again = st.resume(str(tmp_path / "runs" / "s"), spark=st.local(slots=1), progress=False)
    assert isinstance(again, st.SweepResult)
    assert again.trials == result.trials


def test_other_numbers_are_no_resume_and_more_cases_are(pool: st.Pool, options: dict[str, Any], tmp_path: Path) -> None:
    made = sweep(pool, tmp_path, folds=2, trials=1, **options)
    assert len(made.trials) == 2
    with pytest.raises(st.ResumeError, match="repeats=1 and folds=2, and this call has repeats=2 and folds=1"):
        sweep(pool, tmp_path, repeats=2, trials=1, allow_changed=["space"], **options)
    more = st.extend(made, trials=2, spark=st.local(slots=2), progress=False)
    assert [case.n for case in more.cases] == [2, 2, 1 if more.cases[2].status == "pruned" else 2]
    assert more.trials[:2] == made.trials
    assert more.best_case.params["x"] == 0.25
    warm = pool.sweep(
        noted,
        {"x": st.uniform(0, 10), "folder": str(tmp_path / "seen")},
        trials=1,
        warm_start=more,
        sampler="tpe",
        **(options | {"name": "warm"}),
    )
    assert warm.trials[0].case is None


def test_calls_that_cannot_be_repeated(pool: st.Pool, options: dict[str, Any], tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    with pytest.raises(st.SpecError, match=r"repeats \(2\) and folds \(1\) must be 1 with a study"):
        st.optuna.optimize(optuna.create_study(), lambda trial: 1.0, n_trials=1, repeats=2, spark=st.local(slots=1))
    with pytest.raises(st.SpecError, match="repeats"):
        sweep(pool, tmp_path, repeats=0, **options)


def test_the_command_line_and_a_local_context(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "train.py"
    target.write_text("def train(x, ctx):\n    assert ctx.folds == 3\n    return {'y': x + ctx.fold + ctx.repeat}\n")
    words = [
        "sweep", f"{target}:train", "--grid", "x=1,2", "--repeats", "2", "--folds", "3", "--racing", "off",
        "--metric", "y", "--mode", "min", "--local", "--slots", "1", "--dir", str(tmp_path / "runs"), "--name", "cv",
    ]  # fmt: skip
    assert cli.main([*words, "--dry-run"]) == 0
    counted = "2 sets of parameters x 2 repeats x 3 folds = 12 trials"
    assert f"cv: {counted}\n" in "".join(capfd.readouterr())
    assert cli.main(words) == 0
    out, err = capfd.readouterr()
    assert counted in err
    assert "Best y 2.5000 ± 0.4282 (n=6): case 0." in out + err
    assert cli.main(["export", str(tmp_path / "runs" / "cv"), "--csv"]) == 0
    assert capfd.readouterr().out.startswith("id,case,repeat,fold,params.x,metrics.y")
    assert cli.main(["status", str(tmp_path / "runs" / "cv")]) == 0
    assert "(n=6): case 0." in capfd.readouterr().out
    assert cli.main(["best", str(tmp_path / "runs" / "cv")]) == 0
    assert "  case        0: y 2.5000 ± 0.4282 (n=6)\n" in capfd.readouterr().out
    assert cli.main(["check", f"{target}:train", "--param", "x=1", "--folds", "3"]) == 0
    with st.testing.local_context({"x": 1}, fold=2, folds=5) as ctx:
        assert (ctx.fold, ctx.folds, ctx.repeat) == (2, 5, 0)
    with st.testing.local_context({"x": 1}) as ctx:
        assert (ctx.fold, ctx.folds, ctx.repeat) == (0, 1, 0)
    with (
        pytest.raises(st.SpecError, match=r"fold \(5\) must be below folds \(5\)"),
        st.testing.local_context(fold=5, folds=5),
    ):
        pass
