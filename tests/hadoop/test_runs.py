"""Runs with a directory in HDFS: the same as on a laptop, and through outages of the NameNode."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.records import CheckpointAcknowledged, GangFormed
from sparktrain.store.url import open_store
from tests.hadoop.endurance import EVERY, endure, expected
from tests.hadoop.following import wait_running
from tests.hadoop.sessions import BackgroundCall
from tests.support.hadoop import HaHdfs, Hdfs
from tests.support.local_spark import ONE_EXECUTOR, spark_session
from tests.support.processes import wait_until

OTHER_OUTAGES = pytest.mark.all(
    case="a NameNode is away for 3 s and for 60 s, or hangs for 16 s, under a run",
    covered_by="it hangs for 6 s; a run resumes after an outage beyond its deadline",
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Pool]:
    """Two warm agents, in executors of their own, which have no configuration of Hadoop."""
    folder = tmp_path_factory.mktemp("spark")
    with spark_session(ONE_EXECUTOR, folder) as spark, st.pool(spark, agents=2, preload=["numpy"]) as made:
        yield made


def files(directory: str, name: str) -> dict[str, int]:
    """The files of a run, by their names within its directory, with their sizes."""
    store = open_store(directory)
    return {path.removeprefix(f"{name}/"): store.stat(path).size for path in store.list(name)}


def train(x: int, ctx: Any) -> dict[str, float]:
    print(f"x is {x}")
    for step in range(1, 4):
        ctx.report(step, loss=1.0 / step)
    (Path(ctx.log_dir) / "note.txt").write_text("seen\n")
    return {"y": x * x}


def test_a_run_in_hdfs_has_the_files_of_a_run_on_a_laptop(pool: st.Pool, hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    places = [str(tmp_path / "runs"), f"{hdfs_cluster.url}/laptop"]
    results = [
        pool.sweep(train, {"x": [1, 2, 3]}, metric="y", mode="max", dir=place, name="s", seed=1, progress=False)
        for place in places
    ]
    assert [[trial.metrics for trial in result.trials] for result in results] == [
        [{"y": 1.0}, {"y": 4.0}, {"y": 9.0}]
    ] * 2
    grouped = ("journal/batch-", "reports/part-")  # as many as the store's speed makes, and named after their driver
    names = [{name for name in files(place, "s") if not name.startswith(grouped)} for place in places]
    assert names[0] == names[1]
    histories = [result.history()[["trial", "step", "loss"]] for result in results]
    assert histories[0].equals(histories[1])
    assert len(histories[0]) == 9
    log = "trials/0001/generation-1/rank-0/log.txt"
    assert log in names[1]
    assert results[1].trials[1].log == f"{places[1]}/s/{log}"
    assert hdfs_cluster.cli("-cat", f"{places[1]}/s/{log}") == "x is 2\n"


class Endurance(BackgroundCall):
    """A run beside the test, which trains until the test ends it."""

    def __init__(self, pool: st.Pool, folder: Path, directory: str, **options: Any) -> None:
        self._folder = folder
        self._store, self._layout = open_store(directory), RunLayout("e")
        options |= {"workers": 1, "backend": "none", "dir": directory, "name": "e", "progress": False}
        super().__init__(lambda: pool.run(endure, {"folder": str(folder)}, **options))

    def step(self) -> int:
        """Steps so far."""
        path = self._folder / "step"
        return int(path.read_text() or 0) if path.exists() else 0

    def advance(self, steps: int, timeout_s: float) -> None:
        """Wait for so many more steps."""
        until = self.step() + steps
        wait_running(self, lambda: self.step() >= until, timeout_s, f"step {until}")

    def kept(self) -> list[int]:
        """Steps of the checkpoints that were acknowledged."""
        records = read(self._store, self._layout.journal).records
        return [each.checkpoint.step for each in records if isinstance(each, CheckpointAcknowledged)]

    def generations(self) -> int:
        """How often its gang was formed."""
        return sum(isinstance(each, GangFormed) for each in read(self._store, self._layout.journal).records)

    def finish(self, timeout_s: float = 120.0) -> None:
        """It is enough."""
        (self._folder / "enough").touch()
        self.wait(timeout_s)


def went_well(run: Endurance) -> bool:
    """No step is missing, and the gang was formed once."""
    assert run.result is not None, repr(run.error)
    metrics = run.result.metrics
    return metrics["sum"] == expected(int(metrics["steps"])) and run.generations() == 1


def killed(cluster: Hdfs, outage_s: float) -> None:
    cluster.namenode.kill9()
    pause(outage_s)
    cluster.namenode.start()
    cluster.wait_ready()


def hung(cluster: Hdfs, outage_s: float) -> None:
    cluster.namenode.pause()
    pause(outage_s)
    cluster.namenode.wake()


@pytest.mark.parametrize(
    ("outage", "outage_s"),
    [
        (hung, 6.0),
        pytest.param(killed, 3.0, marks=OTHER_OUTAGES),
        pytest.param(killed, 60.0, marks=OTHER_OUTAGES),
        pytest.param(hung, 16.0, marks=OTHER_OUTAGES),  # longer than the lease of an agent
    ],
)
def test_a_run_outlives_an_outage_of_its_store(
    pool: st.Pool, breakable_hdfs: Hdfs, tmp_path: Path, outage: Callable[[Hdfs, float], None], outage_s: float
) -> None:
    run = Endurance(pool, tmp_path, f"{breakable_hdfs.url}/{outage.__name__}-{outage_s:g}")
    wait_until(lambda: run.step() > 2 * EVERY, 60.0, "training has started")
    outage(breakable_hdfs, outage_s)
    missed = run.step()
    run.advance(3 * EVERY, 60.0)
    wait_until(lambda: run.kept()[-1] > missed, 60.0, "a checkpoint after the outage counts")
    run.finish()
    assert went_well(run)


@pytest.mark.all(
    case="a run outlives a fail-over",
    covered_by="`hadoop/test_store_faults`: the other NameNode is promoted; a run outlives a NameNode that hangs",
)
def test_a_run_outlives_a_fail_over(pool: st.Pool, ha_cluster: HaHdfs, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha_cluster.conf))
    run = Endurance(pool, tmp_path, f"{ha_cluster.url}/failover")
    wait_until(lambda: run.step() > 2 * EVERY, 60.0, "training has started")
    active = ha_cluster.namenodes.index(ha_cluster.namenode)
    ha_cluster.namenode.kill9()
    ha_cluster.promote(1 - active)
    missed = run.step()
    run.advance(3 * EVERY, 60.0)
    wait_until(lambda: run.kept()[-1] > missed, 60.0, "a checkpoint after the fail-over counts")
    run.finish()
    assert went_well(run)


@pytest.mark.all(
    case="the deadline of a run in HDFS, and its resume",
    covered_by="`process/test_resumed_calls`: the same in a folder",
)
def test_past_its_deadline_a_run_ends_and_can_be_resumed(pool: st.Pool, breakable_hdfs: Hdfs, tmp_path: Path) -> None:
    directory = f"{breakable_hdfs.url}/deadline"
    run = Endurance(pool, tmp_path, directory, store_timeout="4s")
    wait_until(lambda: run.step() > 2 * EVERY, 60.0, "training has started")
    kept = run.kept()[-1]
    breakable_hdfs.namenode.kill9()
    run.wait(60.0)
    assert isinstance(run.error, st.StoreError), repr(run.error)
    assert "NameNode" in str(run.error) or "refused" in str(run.error)
    breakable_hdfs.namenode.start()
    breakable_hdfs.wait_ready()
    again = Endurance(pool, tmp_path, directory)
    wait_running(again, lambda: (tmp_path / "from-2").exists(), 60.0, "training continues")
    assert int((tmp_path / "from-2").read_text()) >= kept
    again.finish()
    assert again.result is not None, repr(again.error)
    assert again.result.metrics["sum"] == expected(int(again.result.metrics["steps"]))
    assert [restart.cause for restart in again.result.restarts] == ["the driver was lost, or stopped the run"]
