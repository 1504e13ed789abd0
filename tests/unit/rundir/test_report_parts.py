"""The files of reports: any changed byte is found, and other programs read them."""

import gzip
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import FAN_IN, MetricLog, read_table
from sparktrain.rundir.report_parts import (
    COLUMNS,
    CorruptPartError,
    joined_tables,
    lines_of,
    part_of,
    step_row,
    table_of_block,
    table_of_lines,
    table_of_part,
)
from sparktrain.store.localfs import LocalStore

ROWS = [
    step_row(7, 2, 1, 2**40, 1_700_000_000.123456, {"loss": 1e300, "🎉": math.nan}),
    step_row(7, 2, 1, 2**40 + 1, 1_700_000_001.0, {"loss": -math.inf}),
    step_row(8, 1, 0, 1, 0.0, {}),
]


def table() -> pa.Table:
    return table_of_lines(lines_of(ROWS))


def test_a_row_for_each_metric() -> None:
    rows = table_of_part(part_of(table())).to_pandas()
    assert list(rows.columns) == list(COLUMNS)
    assert rows["trial"].tolist() == [7, 7, 7, 8]
    assert rows["step"].tolist() == [2**40, 2**40, 2**40 + 1, 1]
    assert rows["name"].tolist() == ["loss", "🎉", "loss", np.nan]
    assert rows["value"].tolist()[::2] == [1e300, -math.inf]
    assert rows["time"].iloc[0] == pd.Timestamp("2023-11-14T22:13:20.123456Z")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"none of a part" * 9, part_of(table())[:-9]])
def test_what_is_no_part(content: bytes) -> None:
    with pytest.raises(CorruptPartError, match=r"^[^\n]+$"):
        table_of_part(content)
    with pytest.raises(CorruptPartError, match=r"^[^\n]+$"):
        table_of_block(content or b"{}")


def test_a_parquet_file_of_another_program_is_no_part() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink)
    with pytest.raises(CorruptPartError, match="checksum"):
        table_of_part(sink.getvalue().to_pybytes())
    sink = pa.BufferOutputStream()
    pq.write_table(table().drop_columns(["rank"]), sink)
    with pytest.raises(CorruptPartError, match="other columns than trial, generation, rank"):
        table_of_part(sink.getvalue().to_pybytes())


def test_a_block_of_an_older_version_has_the_same_rows() -> None:
    assert part_of(table_of_block(gzip.compress(lines_of(ROWS)))) == part_of(table())


def test_parts_with_different_names_are_joined() -> None:
    parts = [table(), table_of_lines(lines_of([step_row(1, 1, 0, 1, 1.0, {"other": 0.5, "loss": 0.25})]))]
    joined = joined_tables([table_of_part(part_of(each)) for each in parts])
    assert joined["name"].to_pylist() == ["loss", "🎉", "loss", None, "other", "loss"]
    assert part_of(table_of_part(part_of(joined))) == part_of(joined)


def test_a_time_that_is_none_costs_no_report() -> None:
    rows = [step_row(0, 1, 0, step, time, {"loss": 1.0}) for step, time in enumerate((1e300, -1e300, 5.0))]
    times = table_of_lines(lines_of(rows))["time"].cast(pa.int64()).to_pylist()
    assert times[2] == 5_000_000
    assert len(times) == 3


def test_pandas_reads_the_folder(tmp_path: Path) -> None:
    store, layout = LocalStore(str(tmp_path)), RunLayout("mnist")
    log = MetricLog(store, layout)
    for step in range(FAN_IN + 3):
        log.append(lines_of([step_row(0, 1, 0, step, 1.0 + step, {"loss": math.inf, "accuracy": step / 2})]))
    found = pd.read_parquet(tmp_path / "mnist" / "reports").sort_values(["step", "name"], ignore_index=True)
    assert len(found) == 2 * (FAN_IN + 3)
    assert found.loc[found["name"] == "accuracy", "value"].tolist() == [step / 2 for step in range(FAN_IN + 3)]
    counting = read_table(store, layout, counting=True)
    assert counting["step"].to_pylist() == found["step"].tolist()
