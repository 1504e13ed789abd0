"""Datasets of `data=` for tests: numbers as rows, in small groups of a Parquet file, as members open them."""

import atexit
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparktrain.config.data_sources import FileSource, Source
from sparktrain.datasets.manifest import DataRef, MemberData
from sparktrain.driver.data.run_data import plan_data, write_data
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore
from sparktrain.training.data.open_data import open_reader
from sparktrain.training.data.position import Position
from sparktrain.training.data.training_data import TrainingData

SEED = 8
GROUP = 10
"""Rows of a group."""


def written(folder: Path, source: Source) -> DataRef:
    """The dataset of a source, in a run directory of `folder`."""
    plan = plan_data({"train": source}, 60.0)
    return write_data(plan, plan.documents, LocalStore(folder), RunLayout("run"), lambda _: None)["train"]


def parquet(folder: Path, table: pa.Table) -> DataRef:
    """The dataset of a table in a Parquet file, with groups of 10 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "rows.parquet", row_group_size=GROUP)
    return written(folder, FileSource(format="parquet", paths=(str(folder / "rows.parquet"),)))


def opened(
    ref: DataRef, rank: int = 0, size: int = 1, position: Position | None = None, cache: Path | None = None
) -> TrainingData:
    """The dataset as a member sees it, with the host's cache in `cache`."""
    manifest, reader = open_reader(ref, MemberData({"train": ref}, None if cache is None else str(cache)))
    return TrainingData(manifest, reader, rank, size, SEED, position)


@cache
def numbers(rows: int) -> tuple[DataRef, Path]:
    """A dataset with the numbers below `rows` as columns id and x, of shape (1,), and a folder for its cache."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    ids = np.arange(rows, dtype=np.float32)
    table = pa.table({"id": ids, "x": pa.FixedSizeListArray.from_arrays(pa.array(ids), 1)})
    return parquet(Path(folder.name), table), Path(folder.name)
