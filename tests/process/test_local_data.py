"""`data=` in the process of a test, and in a check: files and tables, without Spark."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktrain.config.data_sources import sources_of
from sparktrain.driver.data.run_data import plan_data
from sparktrain.errors import DataError, SpecError
from sparktrain.testing import local_context
from sparktrain.testing.check_process import checked
from sparktrain.testing.function_check import CheckRequest

ROWS = 1000


def table() -> pa.Table:
    ids = np.arange(ROWS)
    return pa.table({"id": ids, "x": ids * 0.5, "label": (ids % 2).astype("int32")})


def ids_in(ctx: Any, name: str = "train") -> list[int]:
    return [int(each) for batch in ctx.dataset(name).iter_batches(batch_size=64) for each in batch["id"]]


@pytest.mark.parametrize("kind", ["parquet", "arrow table", "pandas"])
def test_a_function_reads_its_data(kind: str, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "part.parquet", row_group_size=300)
    given = {"parquet": tmp_path / "part.parquet", "arrow table": table(), "pandas": table().to_pandas()}[kind]
    with local_context(directory=tmp_path / "run", data={"train": given}) as ctx:
        assert ids_in(ctx) == list(range(ROWS))
        assert ctx.dataset("train").num_rows == ROWS
        assert [each.name for each in ctx.dataset("train").schema] == ["id", "x", "label"]


def test_a_gang_of_four_has_its_first_share(tmp_path: Path) -> None:
    with local_context(size=4, backend="none", data={"train": table()}) as ctx:
        assert len(ctx.dataset("train").to_numpy()["id"]) == ROWS // 4
        assert ids_in(ctx)[:65] == [*range(64), 256]


def test_an_unknown_dataset_is_named_with_the_known_ones() -> None:
    with local_context(data={"train": table()}) as ctx, pytest.raises(SpecError, match="did you mean 'train'"):
        ctx.dataset("tran")
    with local_context() as ctx, pytest.raises(SpecError, match="this run was given no data="):
        ctx.dataset("train")


def test_wrong_data_is_refused_before_the_function_is_called() -> None:
    with pytest.raises(DataError, match="has no rows"):
        local_context(data={"train": table().slice(0, 0)})
    with pytest.raises(DataError, match="'when' is a timestamp"):
        local_context(data={"train": pd.DataFrame({"when": pd.to_datetime(["2026-01-01"])})})
    with pytest.raises(SpecError, match="a Spark DataFrame, a pandas or Arrow table, a path"):
        local_context(data={"train": 7})


def test_a_check_gives_files_to_the_function(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "part.parquet")
    module = tmp_path / "reads.py"
    module.write_text(
        "def train(ctx):\n"
        "    rows = ctx.dataset('train').to_numpy()\n"
        "    return {'rows': len(rows['id']), 'sum': float(rows['x'].sum())}\n"
    )
    report = checked(CheckRequest(f"{module}:train", {}, data={"train": [str(tmp_path / "*.parquet")]}))
    assert report.end.problem == ""
    assert report.answer.result == {"rows": ROWS, "sum": sum(range(ROWS)) * 0.5}


def test_a_member_of_a_gang_may_read_all_rows() -> None:
    with local_context(size=4, backend="none", data={"test": table()}) as ctx:
        whole = ctx.dataset("test", whole=True)
        assert len(whole.to_numpy()["id"]) == ROWS
        assert sum(len(batch["id"]) for batch in whole.iter_batches(batch_size=64, uneven="repeat")) == ROWS


def test_another_version_of_the_data_is_another_dataset() -> None:
    plans = [plan_data(sources_of({"train": table()}), 1.0, 1, version) for version in (None, "a", "b")]
    assert len({repr(plan.documents) for plan in plans}) == 3


@pytest.mark.parametrize("name", ["x.csv", "x.json.gz", "x.orc"])
def test_a_file_of_another_format_is_refused_with_the_way(name: str) -> None:
    with pytest.raises(SpecError, match="read it with Spark or pandas, and pass the DataFrame"):
        local_context(data={"train": name})
