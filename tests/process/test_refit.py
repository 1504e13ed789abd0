"""The best trial of a sweep in a gang: it starts at the step of the trial's checkpoint, by files of its own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.runs.listing.run_list import read_row
from sparktrain.runs.locate import run_in


def learn(lr: float, epochs: int, ctx: Any) -> dict[str, float]:
    """Adds lr in each epoch, from where a checkpoint ended."""
    import numpy as np

    restored = ctx.checkpoint.restore()
    total, first = (float(restored["total"]), restored.step) if restored is not None else (0.0, 0)
    for epoch in range(first, epochs):
        total += lr
        if ctx.rank == 0:
            ctx.checkpoint.save(epoch + 1, total=np.float64(total))
    return {"score": total, "first": first, "members": ctx.size, "epochs": epochs}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> st.SweepResult:
    """A sweep with checkpoints: trial 1 is the best."""
    return st.sweep(
        learn, {"lr": [1, 3, 2], "epochs": [2]}, metric="score", dir=str(tmp_path_factory.mktemp("sweeps")), name="s",
        preload=["numpy"], spark=st.local(slots=2),
    )  # fmt: skip


def parents(directory: Path | str) -> list[tuple[str, str, int | None]]:
    """The runs that this one continues from, as lists of runs show them."""
    row = read_row(run_in(str(directory)), SystemClock()).row
    return [(parent.link, parent.directory, parent.trial) for parent in row.lineage.parents]


def test_a_gang_trains_the_best_trial_on_from_its_checkpoint(
    sweep: st.SweepResult, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    of_sweep = runs / "s"
    shutil.copytree(str(sweep.directory), of_sweep)
    place: dict[str, Any] = {"backend": "none", "spark": st.local(slots=2)}
    made = st.refit(of_sweep, {"epochs": 5}, workers=2, name="final", **place)
    assert made.metrics == {"score": 15.0, "first": 2.0, "members": 2.0, "epochs": 5.0}
    assert made.directory == str(runs / "final")
    line = f"final: trains trial 1 of {of_sweep} on with epochs=5, from its checkpoint of step 2\n"
    assert line in capfd.readouterr().err
    assert made.trials[0].params == {"lr": 3, "epochs": 5}
    assert parents(runs / "final") == [("refit", str(of_sweep), 1)]
    shutil.rmtree(of_sweep)
    again = st.resume(str(runs / "final"), spark=st.local(slots=2))
    assert again.metrics == made.metrics
    assert cli.main(["fsck", str(runs / "final")]) == 0


def test_a_start_at_step_0_and_another_trial_can_be_asked_for(
    sweep: st.SweepResult, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["refit", str(sweep.directory), "--workers", "1", "--local", "--dir", str(runs), "--json"]
    assert cli.main([*words, "--param", "epochs=3", "--trial", "2", "--from-checkpoint", "none"]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    trial = document["trials"][0]
    assert parents(document["directory"]) == [("refit", str(sweep.directory), 2)]
    assert (trial["params"], trial["metrics"]["first"]) == ({"lr": 2, "epochs": 3}, 0.0)
    assert f"trains trial 2 of {sweep.directory} on with epochs=3, from step 0: as was asked\n" in err
    assert cli.main([*words, "--param", "epoch=3"]) == 2
    assert "learn has no parameter 'epoch'; did you mean 'epochs'?" in capfd.readouterr().err


def count_rows(lr: float, ctx: Any) -> dict[str, float]:
    return {"score": lr, "rows": len(ctx.dataset("train").to_numpy()["x"])}


@pytest.mark.all(
    case="a refit reads a table of its sweep and a file in place; they are replaced, changed or deleted",
    covered_by="`process/test_printed_commands`: a table",
)
def test_a_refit_reads_the_data_of_the_sweep_where_it_is(runs: Path) -> None:
    rows, file = pa.table({"x": [1.0, 2.0, 3.0]}), runs.parent / "in_place.parquet"
    pq.write_table(rows, file)
    place: dict[str, Any] = {"spark": st.local(slots=1), "progress": False}
    for name, data in (("table", rows), ("file", st.data.parquet(str(file)))):
        st.sweep(count_rows, {"lr": [1.0]}, metric="score", data={"train": data}, dir=str(runs), name=name, **place)

    assert st.refit(runs / "table", workers=1, name="again", **place).metrics["rows"] == 3
    assert cli.main(["fsck", str(runs / "again")]) == 0
    other = {"train": pa.table({"x": [1.0]})}
    assert st.refit(runs / "table", workers=1, name="other", data=other, **place).metrics["rows"] == 1
    with pytest.raises(st.DataError, match=r"data\['train'\] has 3 rows for 4 members"):
        st.refit(runs / "table", workers=4, backend="none", name="many", **place)
    pq.write_table(pa.table({"x": [1.0, 2.0]}), file)
    with pytest.raises(st.DataError, match=r"in_place.parquet was replaced after the dataset was planned"):
        st.refit(runs / "file", workers=1, name="changed", **place)
    shutil.rmtree(runs / "table" / "data")
    with pytest.raises(st.DataError, match=r"it was not written, or was deleted: pass it again in data="):
        st.refit(runs / "table", workers=1, name="lost", **place)


def test_a_checkpoint_that_is_corrupt_is_an_error_and_starts_nothing(sweep: st.SweepResult, runs: Path) -> None:
    of_sweep = runs / "s"
    shutil.copytree(str(sweep.directory), of_sweep)
    shards = [path for path in (of_sweep / "trials" / "0001").rglob("data/00000002-*") if path.is_file()]
    assert shards
    for path in shards:
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(st.CheckpointError, match=r"is corrupt: it has SHA-256 .*from_checkpoint='none'"):
        st.refit(of_sweep, workers=1, name="broken", spark=st.local(slots=1))
    assert not [path for path in (runs / "broken").rglob("*") if "generation-1" in str(path)]
