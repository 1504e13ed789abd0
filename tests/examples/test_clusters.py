"""The examples of TFCluster in both input modes, and of between-graph replication, with small settings."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.examples.test_readme import activated

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def folder_of_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


@pytest.mark.all(
    case="TFCluster that reads its files, as a program", covered_by="`spark/test_tfcluster` has the calls of TFCluster"
)
def test_a_cluster_reads_its_files_and_shows_its_curves(tmp_path: Path) -> None:
    import tfcluster_tensorflow as program

    place = ["--model", str(tmp_path / "model"), "--logs", str(tmp_path / "logs")]
    asked = program.arguments(["--images", "6400", "--epochs", "2", *place])
    cluster = program.start(st.local(slots=2), asked, dir=str(tmp_path / "runs"), progress=False)
    assert str(cluster.tensorboard_url()).startswith("http://localhost:")
    cluster.shutdown()
    assert (tmp_path / "model.keras").is_file()
    assert len(list((tmp_path / "logs" / "train").glob("events.out.tfevents.*"))) == 1


@pytest.mark.all(
    case="TFCluster that Spark feeds, as a program", covered_by="`spark/test_tfcluster` has the calls of TFCluster"
)
def test_an_rdd_feeds_a_cluster_and_another_one_is_answered(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "examples" / "tfcluster_spark.py"), "--images", "6400"]
    place = ["--model", str(tmp_path / "model"), "--logs", str(tmp_path / "logs")]
    done = subprocess.run(
        [*line, *place], env=activated(), cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^TensorBoard: http://\S+/\?token=\S+$", done.stdout, re.MULTILINE), done.stdout
    found = re.search(r"^accuracy: ([\d.]+)$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert float(found[1]) > 0.7


@pytest.mark.all(
    case="between-graph replication with 1, 2 and 3 workers, asynchronous and synchronous",
    covered_by="`examples/test_gangs`: two workers in step",
)
def test_the_table_of_workers_has_both_ways_to_train(tmp_path: Path) -> None:
    import between_graph as program

    options: dict[str, Any] = {"seed": 1, "dir": str(tmp_path), "progress": False}
    with st.pool(st.local(slots=4), preload=["tensorflow"]) as pool:
        head, *lines = program.compare(pool, seconds=3.0, **options)
    assert head.split() == ["workers", "asynchronous", "synchronous"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    for line in lines:
        accuracies = [float(each) for each in re.findall(r"(\d\.\d{3}) \(", line)]
        assert len(accuracies) == 2
        assert min(accuracies) > 0.5, line
