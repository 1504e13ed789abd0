"""Population based training with real processes: what a trial that takes over another one starts from."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli

STEPS = 9
RULE = st.PBT(every=3, quantile=0.5, resample=0.0, factors=(0.5,), most=STEPS)


def climb(rate: float, folder: str, ctx: Any) -> dict[str, float]:
    """Adds `rate` in each step to a number that its checkpoints hold. The slower of two stays a step behind."""
    import numpy as np

    restored = ctx.checkpoint.restore()
    step, total = (0, 0.0) if restored is None else (restored.step, float(restored["total"]))
    if restored is not None:
        print(f"from {step} with {total} at rate {rate}")
    mine = Path(folder, repr(rate))
    mine.write_text(str(step))
    while restored is None and len(list(Path(folder).iterdir())) < 2:
        time.sleep(0.01)
    faster = max(Path(folder).iterdir(), key=lambda each: float(each.name))
    while step < STEPS:
        while restored is None and mine != faster and int(faster.read_text() or 0) < min(step + 2, STEPS):
            time.sleep(0.01)
        total, step = total + rate, step + 1
        ctx.checkpoint.save(step, total=np.array(total), wait=True)
        ctx.report(step - 1, total=total)
        mine.write_text(str(step))
        if ctx.should_stop():
            break
    return {"total": total}


def test_the_worst_continues_from_the_weights_of_the_best(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After 3 steps, and once more after 6 unless the best is over by then."""
    (tmp_path / "met").mkdir()
    with st.pool(st.local(slots=2), preload=["numpy"]) as pool:
        made = pool.sweep(
            climb, {"rate": st.uniform(1.0, 100.0), "folder": str(tmp_path / "met")}, trials=2, metric="total",
            mode="max", sampler="random", stopper=RULE, seed=5, dir=str(runs), name="population",
        )  # fmt: skip
    assert made.status == "succeeded"
    [taken] = [trial for trial in made.trials if trial.exploits]
    exploit = taken.exploits[-1]
    donor = made.trials[exploit.donor]
    log = taken.read_log(generation=1 + len(taken.exploits))
    line = next(line for line in log.splitlines() if line.startswith("from "))
    step, total, rate = map(float, re.findall(r"[\d.]+", line))
    assert (step, rate) == (exploit.donor_step, exploit.params["rate"])
    assert rate == pytest.approx(donor.params["rate"] / 2), "explored: half of the donor's"
    assert total == pytest.approx(donor.params["rate"] * step), "the donor's number at that step"
    assert taken.metrics["total"] == pytest.approx(total + rate * (STEPS - step)), "and it continued from there"
    assert len(taken.restarts) == len(taken.exploits)
    assert all(each.paused for each in taken.restarts), "they count against no limit"
    document = json.loads((runs / "population" / "results.json").read_text())
    assert document["trials"][taken.id]["exploits"][0]["donor"] == donor.id
    assert "stopper pbt(" in capfd.readouterr().err
    for words in (["fsck"], ["gc", "--older-than", "1s"], ["fsck"]):
        assert cli.main([words[0], str(runs / "population"), *words[1:]]) == 0
    assert cli.main(["simulate", str(runs / "population"), "--slots", "1", "--stopper", "pbt"]) == 2
    assert "a simulation knows the curves of the run alone" in capfd.readouterr().err


def test_what_cannot_be_explored_is_refused_before_anything_starts(runs: Path) -> None:
    with pytest.raises(st.SpecError, match="a space with conditions"):
        st.sweep(
            climb, st.space(rate=st.uniform(0, 1), folder="x", where=lambda p: True), trials=2, metric="total",
            mode="max", stopper="pbt", spark=st.local(slots=1), dir=str(runs),
        )  # fmt: skip
    with pytest.raises(st.SpecError, match="pass neither repeats nor folds"):
        st.sweep(
            climb, {"rate": st.uniform(0, 1), "folder": "x"}, trials=2, repeats=2, metric="total", mode="max",
            stopper="pbt", spark=st.local(slots=1), dir=str(runs),
        )  # fmt: skip
    assert not runs.exists()
