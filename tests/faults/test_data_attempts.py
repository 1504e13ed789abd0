"""Spark runs a second attempt of a task that writes data while the first one still lives: rows count once."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext

from sparktrain.base.clock import pause
from sparktrain.cluster.dataframes import frame_writer
from sparktrain.driver.data import data_writing
from tests.faults.standalone import standalone
from tests.support.local_spark import spark_session
from tests.support.written_data import column, data_files, origins, written

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.executor.cores": "1",
}
ROWS, SLOW = 40_000, 2
_WHOLE = frame_writer.WriteTask.__call__


def _stands_still(partition: int) -> bool:
    """Whether this is the first attempt of the partition that is slow: it never ends by itself."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber() == 0 and context.partitionId() == partition


class SlowInTheMiddle(frame_writer.WriteTask):
    """Its first attempt has read some rows, and has published nothing."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def some() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                while _stands_still(SLOW):
                    pause(0.1)

        return _WHOLE(self, some())


class SlowAtTheEnd(frame_writer.WriteTask):
    """Its first attempt has published its file, and does not return."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entries = list(_WHOLE(self, batches))
        while _stands_still(SLOW):
            pause(0.1)
        yield from entries


@pytest.mark.all(
    case="Spark's speculation of a task that writes data, which is slow in the middle, or at its end",
    covered_by="`spark/test_data`: Spark's own retry of a task that dies in the middle, or at its end",
)
@pytest.mark.timeout(180)
def test_speculative_attempts_write_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with (
        standalone(folder, ["127.0.0.1", "127.0.0.2"]) as cluster,
        spark_session(cluster.url, tmp_path, SPECULATION) as spark,
    ):
        spark.range(0, 2, 1, 2).count()
        for kind, published in ((SlowInTheMiddle, 4), (SlowAtTheEnd, 5)):
            runs = tmp_path / kind.__name__
            monkeypatch.setattr(data_writing, "WriteTask", kind)
            manifest = written(spark.range(0, ROWS, 1, 4), runs)
            named = {each.path for each in manifest.files}

            assert origins(manifest) == [0, 1, 2, 3]
            assert column(manifest, runs).tolist() == list(range(ROWS))
            assert [Path(each.path).name.split("-")[1] for each in manifest.files] == ["0", "0", "1", "0"]
            assert named < data_files(runs) if published > len(named) else named == data_files(runs)
            assert len(data_files(runs)) == published
