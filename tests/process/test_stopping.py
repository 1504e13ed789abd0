"""Rules stop trials of a real sweep: what the user gets, and what it costs to look nowhere."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli

EPOCHS = 9


def learn(x: float, ctx: Any) -> dict[str, float]:
    """Reports x in each of nine epochs, unless it should stop."""
    for epoch in range(EPOCHS):
        ctx.report(epoch, y=x)
        for _ in range(500):  # an epoch lasts until a rule stops it, or half a second
            if ctx.should_stop():
                return {"y": x, "epochs": epoch + 1}
            if x >= 5:
                break
            time.sleep(0.001)
    return {"y": x, "epochs": EPOCHS}


def deaf(x: float, ctx: Any) -> dict[str, float]:
    """Reports once, and looks nowhere."""
    ctx.report(0, y=x)
    if x < 0:
        time.sleep(600)
    return {"y": x}


def patient(x: float, ctx: Any) -> dict[str, float]:
    """Reports x, and looks once, with any time to wait for the rules of the run."""
    from sparktrain.training import judgement

    judgement.LEAST_S, judgement.SHARE, judgement.MOST_S = 0.0, 1e9, 60.0
    while ctx._wire.judged(-1, 1.0) is None:
        time.sleep(0.001)
    ctx.report(0, y=x)
    return {"y": x, "stops": int(ctx.should_stop())}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Pool]:
    """One warm agent: trials come one after the other, so that their order is known."""
    with st.pool(st.local(slots=1), preload=["numpy"]) as pool:
        pool.sweep(learn, {"x": [9]}, metric="y", mode="max", dir=str(tmp_path_factory.mktemp("warm")))
        yield pool


def test_the_first_look_after_a_report_knows_what_the_rules_made_of_it(pool: st.Pool, runs: Path) -> None:
    made = pool.sweep(
        patient, {"x": [1, 3, 2]}, metric="y", mode="max", stopper=st.Threshold(lower=1.5), dir=str(runs), name="look"
    )
    assert [trial.status for trial in made.trials] == ["pruned", "succeeded", "succeeded"]
    assert [trial.metrics["stops"] for trial in made.trials] == [1, 0, 0]


def test_hopeless_trials_stop_at_their_rung_and_the_best_one_is_whole(
    pool: st.Pool, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = [7, 8, 1, 9, 2, 6]
    made = pool.sweep(
        learn, {"x": values}, metric="y", mode="max", stopper=st.ASHA(most=EPOCHS), dir=str(runs), name="asha"
    )
    assert made.status == "succeeded"
    assert [trial.status for trial in made.trials] == [
        "succeeded",
        "succeeded",
        "pruned",
        "succeeded",
        "pruned",
        "pruned",
    ]
    assert made.best.params == {"x": 9}
    stopped = made.trials[2]
    assert stopped.pruned == "stopped at step 0: y 1 is below the best third of 3 (asha(most=9))"
    assert stopped.metrics == {"y": 1.0, "epochs": 1.0}
    assert stopped.error is None
    assert list(stopped.history["step"]) == [0]
    assert json.loads((runs / "asha" / "results.json").read_text())["trials"][2]["pruned"] == stopped.pruned
    err = capfd.readouterr().err
    assert "asha: stopper asha(most=9): compares trials after 1 and 3 of 9 steps" in err
    assert "trial 2 pruned in" in err
    assert stopped.pruned in err
    assert cli.main(["status", str(runs / "asha")]) == 0
    assert "3 pruned" in capfd.readouterr().out
    assert cli.main(["simulate", str(runs / "asha"), "--slots", "1", "--stopper", "asha:most=9", "--json"]) == 0
    replayed = json.loads(capfd.readouterr().out)["runs"]
    assert [(each["pruned"], each["best"]) for each in replayed] == [(0, 3), (3, 3)]
    search = ["--slots", "1", "--sampler", "tpe", "--seeds", "2", "--trials", "4", "--json"]
    assert cli.main(["simulate", str(runs / "asha"), *search]) == 0
    replayed = json.loads(capfd.readouterr().out)["runs"]
    assert [(each["sampler"], each["seed"]) for each in replayed] == [(None, None), ("tpe", 0), ("tpe", 1)]
    assert replayed[0]["best"] == 3
    again = pool.sweep(
        learn, {"x": values}, metric="y", mode="max", stopper=st.ASHA(most=EPOCHS), dir=str(runs), name="asha"
    )
    assert [trial.generations for trial in again.trials] == [1] * 6  # no trial was retried


def test_a_function_that_looks_nowhere_is_ended_and_keeps_its_last_report(pool: st.Pool, runs: Path) -> None:
    made = pool.sweep(
        deaf, {"x": [3, -1, 4]}, metric="y", mode="max", stopper="threshold:lower=0", dir=str(runs), name="deaf"
    )
    assert [(trial.status, trial.metrics) for trial in made.trials] == [
        ("succeeded", {"y": 3.0}), ("pruned", {"y": -1.0}), ("succeeded", {"y": 4.0}),
    ]  # fmt: skip
    assert made.trials[1].seconds < 60


def test_a_rule_without_a_metric_is_refused_before_anything_starts(pool: st.Pool, runs: Path) -> None:
    with pytest.raises(st.SpecError, match=r"stopper asha compares trials by a metric.*pass metric="):
        pool.launch(learn, {"x": [1]}, stopper="asha", dir=str(runs))
    assert not runs.exists()


def resumable(x: float, ctx: Any) -> dict[str, float]:
    """Checkpoints its steps, and prints each one that it trains."""
    restored = ctx.checkpoint.restore()
    for step in range(0 if restored is None else restored.step, EPOCHS):
        print(f"step {step} of {x}")
        ctx.checkpoint.save(step + 1)
        ctx.report(step, y=x)
        for _ in range(25):  # an epoch, in which the rule decides
            if ctx.should_stop():
                return {"y": x}
            time.sleep(0.01)
    return {"y": x}


def test_paused_trials_continue_where_they_were_and_train_no_step_twice(pool: st.Pool, runs: Path) -> None:
    rule = st.ASHA(most=EPOCHS, first=1, eta=2, promote=True)
    made = pool.sweep(
        resumable, {"x": [3, 9, 1, 8, 2, 4]}, metric="y", mode="max", stopper=rule, dir=str(runs), name="paused"
    )
    assert made.best.params == {"x": 9}
    assert made.best.generations > 1
    assert {trial.status for trial in made.trials} <= {"succeeded", "pruned"}
    for trial in made.trials:
        steps = [
            int(line.split()[1])
            for generation in range(1, trial.generations + 1)
            for line in trial.read_log(generation=generation).splitlines()
        ]
        assert steps == list(range(len(steps))), trial
    assert all(restart.paused for trial in made.trials for restart in trial.restarts)
