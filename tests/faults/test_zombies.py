"""An agent that was stopped, replaced, and set going again can commit, delete and report nothing."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support import drill
from tests.support.drill import Strike
from tests.support.local_spark import spark_session
from tests.support.processes import wait_until


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Three executors with one slot each."""
    with spark_session("local-cluster[3,1,1024]", tmp_path_factory.mktemp("spark")) as session:
        session.range(0, 3, 1, 3).count()
        yield session


def test_a_replaced_chief_that_wakes_up_changes_nothing(spark: SparkSession, runs: Path) -> None:
    folder = runs / "notes"
    folder.mkdir(parents=True)
    strike = Strike(1, 25, 0, "agent", signal.SIGSTOP)
    woken = threading.Thread(target=wake_when_replaced, args=(folder,))
    woken.start()
    params = {"folder": str(folder), "strikes": [msgspec.to_builtins(strike)]}
    result = st.run(
        drill.train, params, workers=2, agents=3, backend="none", dir=str(runs), name="zombie", preload=["numpy"],
        progress=False,
    )  # fmt: skip
    woken.join(30)
    assert result.metrics == {"value": drill.expected()}
    [restart] = result.restarts
    assert restart.kind == "lost"
    assert drill.notes(folder, "from")[2, 0] == [restart.resumed_from_step or 0]
    written = re.findall(r"gen-(\d+)/manifest-(\d+)", " ".join(map(str, runs.rglob("manifest-*"))))
    newest = [(int(generation), int(step)) for generation, step in written]
    assert (2, drill.STEPS) in newest
    assert all("generation-2" in member.log for member in result.members)


def wake_when_replaced(folder: Path) -> None:
    """Once the second generation trains, set the stopped agent going again."""
    wait_until(lambda: list(folder.glob("2.0.step-*")), 90.0, "the gang is formed again")
    [noted] = folder.glob("1.0.victim-*")
    os.kill(int(noted.name.rpartition("-")[2]), signal.SIGCONT)
