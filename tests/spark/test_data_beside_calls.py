"""A call with data that Spark writes, beside another call that has the slots."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.driver.slots.slot_holders import HOLDERS
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(240)
SOON_S = 120.0
ROWS = 40


def functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A trial that lasts as long as FOLDER/hold is there, and one that counts its rows; both travel by value."""

    def held(x: int, folder: str) -> dict[str, float]:
        Path(folder, f"entered-{x}").touch()
        while Path(folder, "hold").exists():
            pause(0.02)
        return {"y": float(x)}

    def rows(ctx: Any) -> dict[str, float]:
        return {"rows": float(len(ctx.dataset("train").to_numpy()["id"]))}

    return held, rows


class Call:
    """A call in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._record)
        self._thread.start()

    def _record(self) -> None:
        try:
            self._outcome.append(self._work())
        except BaseException as error:
            self._outcome.append(error)

    @property
    def is_over(self) -> bool:
        return bool(self._outcome)

    def result(self) -> Any:
        self._thread.join(SOON_S)
        [outcome] = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def written(runs: Path) -> list[Path]:
    """What is there of the data of the second call."""
    return list((runs / "second").glob("data/*/manifest.json"))


@pytest.mark.parametrize("agents", [2, 1], ids=["agents on all slots", "a slot that no agent has"])
def test_data_is_written_beside_another_call(spark: SparkSession, runs: Path, tmp_path: Path, agents: int) -> None:
    held, rows = functions()
    (tmp_path / "hold").touch()
    options: dict[str, Any] = {"dir": str(runs), "progress": False, "backend": "none"}
    space = {"x": list(range(agents)), "folder": [str(tmp_path)]}
    frame = spark.range(0, ROWS, 1, 2)
    with st.pool(spark, agents=agents, preload=[]) as pool:
        first = Call(lambda: pool.sweep(held, space, metric="y", mode="max", name="first", **options))
        wait_until((tmp_path / f"entered-{agents - 1}").exists, SOON_S, "the first call trains")
        second = Call(lambda: pool.run(rows, {}, workers=1, data={"train": frame}, name="second", **options))
        if agents == 1:
            wait_until(lambda: written(runs), SOON_S, "the free slot writes the data")
            assert not first.is_over
        else:
            wait_until((runs / "second" / "run.json").exists, SOON_S, "the second call has started")
            assert not written(runs)
        (tmp_path / "hold").unlink()
        assert sorted(trial.metrics["y"] for trial in first.result().trials) == list(range(agents))
        assert second.result().metrics == {"rows": ROWS}
    assert not HOLDERS._held, "no slot is held for data that is written"


def test_a_call_waits_for_slots_to_write_its_data_no_longer_than_start_timeout(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    held, rows = functions()
    (tmp_path / "hold").touch()
    options: dict[str, Any] = {"dir": str(runs), "progress": False, "backend": "none"}
    space = {"x": [0, 1], "folder": [str(tmp_path)]}
    with st.pool(spark, agents=2, preload=[]) as pool:
        first = Call(lambda: pool.sweep(held, space, metric="y", mode="max", name="first", **options))
        wait_until((tmp_path / "entered-1").exists, SOON_S, "the first call trains")
        with pytest.raises(st.PoolError, match=r"run 'second' has waited 1 s for slots.*train on all slots \(first\)"):
            pool.run(
                rows, {}, workers=1, data={"train": spark.range(ROWS)}, name="second", start_timeout="1s", **options
            )
        (tmp_path / "hold").unlink()
        assert [trial.status for trial in first.result().trials] == ["succeeded"] * 2
