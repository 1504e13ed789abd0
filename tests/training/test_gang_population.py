"""Population based training of rings: every member continues from the weights of the donor, with its parameters."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st

STEPS, EVERY = 9, 3


def climb(rate: float, folder: str, ctx: Any) -> dict[str, float]:
    """Add `rate`, averaged over the ring, to a number that checkpoints hold. The slower ring stays a step behind."""
    restored = ctx.checkpoint.restore()
    step, total = (0, 0.0) if restored is None else (restored.step, float(restored["total"]))
    Path(folder, f"from-{ctx.generation}-{ctx.trial}-{ctx.rank}").write_text(f"{step} {total} {rate}")
    mine = Path(folder, "pace", repr(rate))
    if ctx.rank == 0:
        mine.write_text(str(step))
        while restored is None and len(list(mine.parent.iterdir())) < 2:
            time.sleep(0.01)
    while step < STEPS:
        if ctx.rank == 0 and restored is None:
            _wait_behind(mine, step)
        total, step = total + float(ctx.allreduce(np.array(rate))), step + 1
        if ctx.rank == 0:
            ctx.checkpoint.save(step, total=np.array(total), wait=True)
            ctx.report(step - 1, total=total)
            mine.write_text(str(step))
        if ctx.broadcast(np.array(ctx.should_stop())):
            break
    return {"total": total, "size": ctx.size}


def _wait_behind(mine: Path, step: int) -> None:
    faster = max(mine.parent.iterdir(), key=lambda each: float(each.name))
    while mine != faster and int(faster.read_text() or 0) < min(step + 2, STEPS):
        time.sleep(0.01)


@pytest.mark.all(
    case="population based training of two rings",
    covered_by="`process/test_population`: of two processes; `unit/state/test_exploits`: gangs, in the state machine",
)
def test_each_member_of_a_ring_takes_over_the_donor(tmp_path: Path) -> None:
    (tmp_path / "pace").mkdir()
    rule = st.PBT(every=EVERY, quantile=0.5, resample=0.0, factors=(0.5,), most=STEPS)
    with st.pool(st.local(slots=4), preload=["numpy", "tensorflow", "horovod.tensorflow"]) as pool:
        made = pool.sweep(
            climb, {"rate": st.uniform(1.0, 100.0), "folder": str(tmp_path)}, trials=2, metric="total", mode="max",
            sampler="random", stopper=rule, seed=5, workers_per_trial=2, backend="horovod",
            dir=str(tmp_path / "runs"), name="rings", progress=False,
        )  # fmt: skip
    assert made.status == "succeeded"
    assert [trial.metrics["size"] for trial in made.trials] == [2, 2]
    [taken] = [trial for trial in made.trials if trial.exploits]
    exploit = taken.exploits[0]
    donor = made.trials[exploit.donor]
    for rank in range(2):
        step, total, rate = map(float, (tmp_path / f"from-2-{taken.id}-{rank}").read_text().split())
        assert (step, rate) == (exploit.donor_step, exploit.params["rate"])
        assert rate == pytest.approx(donor.params["rate"] / 2), "explored: half of the donor's"
        assert total == pytest.approx(donor.params["rate"] * step), "the donor's number at that step"
    assert taken.metrics["total"] == pytest.approx(total + rate * (STEPS - step)), "and it continued from there"
