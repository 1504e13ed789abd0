"""A run that was started on one engine and is resumed on the other: agents on this machine, and those of Spark."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

import sparktrain as st

FROM_SPARK = pytest.mark.all(
    case="a run that started on Spark is resumed on this machine", covered_by="the other way round"
)


def fussy(x: int, folder: str, ctx: Any) -> float:
    """Fails for 1, as long as FOLDER/wrong is there; notes each of its calls."""
    with Path(folder, "calls").open("a") as file:
        file.write(f"{x}.{ctx.generation} ")
    if x == 1 and Path(folder, "wrong").exists():
        raise ValueError("x is 1")
    return float(x)


@pytest.mark.parametrize("first", ["local", pytest.param("spark", marks=FROM_SPARK)])
def test_a_run_resumes_on_the_other_engine(
    spark: SparkSession, runs: Path, tmp_path: Path, first: Literal["local", "spark"]
) -> None:
    engines: list[Any] = [st.local(slots=2), spark]
    if first == "spark":
        engines.reverse()
    (tmp_path / "wrong").touch()
    space = {"x": [0, 1], "folder": [str(tmp_path)]}
    options: dict[str, Any] = {"metric": "result", "mode": "max", "dir": str(runs), "name": "moved", "preload": []}
    started = st.sweep(fussy, space, spark=engines[0], **options)
    assert [trial.status for trial in started.trials] == ["succeeded", "failed"]
    (tmp_path / "wrong").unlink()

    resumed = st.resume(str(runs / "moved"), spark=engines[1], retry_failed=True)

    assert isinstance(resumed, st.SweepResult)
    assert [trial.status for trial in resumed.trials] == ["succeeded"] * 2
    assert resumed.trials[0] == started.trials[0]
    assert resumed.best.params["x"] == 1
    assert sorted((tmp_path / "calls").read_text().split()) == ["0.1", "1.1", "1.2"]
