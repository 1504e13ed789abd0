"""Trials of one host read data from its store once, over all of them."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparktrain as st
from sparktrain.runs.locate import place_of
from sparktrain.store.url import open_store
from tests.support.object_storage import s3_server
from tests.unit.datasets.data_files import parquet_bytes

FILES = pytest.mark.all(
    case="a sweep reads a Parquet file in S3 once for each host",
    covered_by="the same with a table that the driver has written",
)

TRIALS, SLOTS = 8, 4
ROWS, GROUP = 200_000, 50_000
OPTIONS: dict[str, Any] = {"metric": "result", "mode": "max", "preload": ["numpy"], "progress": False}


def total(x: int, ctx: Any) -> float:
    """Read all rows in an order of this trial, and check them."""
    data = ctx.dataset("train")
    found = np.concatenate([batch["id"] for batch in data.iter_batches(batch_size=5000, shuffle=True, seed=x)])
    assert np.array_equal(np.sort(found), np.arange(ROWS))
    assert not np.array_equal(found, np.arange(ROWS))
    return float(found.sum())


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that agents and members find."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("kind", ["table", pytest.param("files", marks=FILES)])
def test_a_sweep_reads_each_group_and_the_manifest_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = pa.table({"id": np.arange(ROWS)})
    with s3_server(tmp_path / "requests") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        if kind == "files":
            put("input/rows.parquet", parquet_bytes(table, GROUP))
        data = table if kind == "table" else "s3://runs/input/rows.parquet"
        result = st.sweep(
            total, {"x": list(range(TRIALS))}, spark=st.local(slots=SLOTS), dir="s3://runs/runs", name="swept",
            data={"train": data}, data_cache=str(tmp_path / "cache"), **OPTIONS,
        )  # fmt: skip
        assert [each.metrics for each in result.trials] == [{"result": sum(range(ROWS))}] * TRIALS
        place = place_of(result.directory)
        assert place.store.survey("swept", place.layout.owns).strays == (), "a removal would leave nothing"
    reads = Counter(line for line in (tmp_path / "requests").read_text().splitlines() if line.startswith("GET /"))
    [manifest] = [line for line in reads if line.startswith("GET /runs/runs/swept/data/") and "manifest.json" in line]
    ranges = {line: count for line, count in reads.items() if re.search(r"\.(arrow|parquet) bytes=", line)}
    assert reads[manifest] == 2, "the driver looks for it, and the first trial of the host reads it"
    assert sorted(ranges.values())[:4] == [1] * 4, "the groups of rows"
    assert len(ranges) == (4 if kind == "table" else 5), "and the footer of the Parquet file"
    assert max(ranges.values()) <= SLOTS + 2


def put(key: str, content: bytes) -> None:
    assert open_store("s3://runs/").put_if_absent(key, content)


def test_bytes_that_changed_in_the_cache_are_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, and an offset of a string that reaches outside: it would end each trial by SIGSEGV."""
    monkeypatch.chdir(tmp_path)
    table = pa.table({"x": np.ones(1000), "s": ["ab"] * 1000})
    Path("rows.parquet").write_bytes(parquet_bytes(table, 1000))

    def train(ctx: Any) -> dict[str, float]:
        rows = ctx.dataset("train").to_numpy()
        return {"sum": float(rows["x"].sum()), "letters": float(sum(map(len, rows["s"])))}

    def run(name: str) -> dict[str, float]:
        return st.run(
            train, workers=1, spark=st.local(), dir="runs", name=name, data={"train": "rows.parquet"},
            data_cache="cache", preload=["numpy"], progress=False,
        ).metrics  # fmt: skip

    expected = {"sum": 1000.0, "letters": 2000.0}
    assert run("first") == expected
    [cached] = Path("cache").rglob("*.arrow")
    intact = cached.read_bytes()
    content = bytearray(intact)
    content[content.index(np.ones(20).tobytes()) + 87] = 0x7F
    content[content.index(np.arange(0, 20, 2, dtype="i4").tobytes()) + 1603] = 0x7F
    cached.write_bytes(content)

    assert run("second") == expected
    assert cached.read_bytes() == intact


def test_a_file_that_is_replaced_while_a_trial_runs_ends_it_with_an_error_that_names_it(tmp_path: Path) -> None:
    path, tries = tmp_path / "rows.parquet", tmp_path / "tries"
    groups, rows = 30, 50_000  # several windows: one is read ahead

    def write(place: Path, value: float) -> None:
        table = pa.table({"x": np.full(groups * rows, value)})
        pq.write_table(table, place, rows, use_dictionary=False, compression="none")

    new = tmp_path / "new"
    write(path, 1.0)
    write(new, 2.0)
    assert new.stat().st_size == path.stat().st_size

    def train(ctx: Any) -> float:
        with tries.open("a") as noted:
            noted.write(".")
        seen: list[float] = []
        for epoch in range(2):
            for batch in ctx.dataset("train").iter_batches(batch_size=rows, epoch=epoch):
                seen.append(float(batch["x"].mean()))
                if len(seen) == 1:
                    new.replace(path)
                assert seen[-1] == 1.0, f"batch {len(seen)} is of the other file"
        return 0.0

    with pytest.raises(
        st.RunFailedError, match=r"DataError: \S+rows\.parquet was replaced after the dataset was planned"
    ):
        st.run(
            train, workers=1, spark=st.local(), dir=str(tmp_path / "runs"), name="replaced",
            data={"train": str(path)}, data_cache=str(tmp_path / "cache"), preload=["numpy"], progress=False,
        )  # fmt: skip
    assert tries.read_text() == "."
