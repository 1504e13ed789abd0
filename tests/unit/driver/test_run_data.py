"""The datasets of a run: checked before anything starts, written once, and found again."""

import errno
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparktrain import data
from sparktrain.cluster.dataframes import frame_writer
from sparktrain.cluster.dataframes.frame_writer import WriteTask, WrittenPart, write_part
from sparktrain.config.data_sources import sources_of
from sparktrain.datasets import group_file
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.manifest import DataRef, Manifest, decode
from sparktrain.datasets.values import shaped
from sparktrain.driver.data import data_writing
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import missing, plan_data, write_data
from sparktrain.errors import DataError, ResumeError, RunDirectoryError, SpecError, StoreTimeoutError
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.unit.datasets.data_files import fetched, parquet_bytes

LAYOUT = RunLayout("run")
VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)
TABLE = pa.table({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": [0, 1, 0]})


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid4().hex}/runs")


def planned(value: Any, name: str = "train") -> DataPlan:
    return plan_data(sources_of({name: value}), 60.0)


def write(store: Store, plan: DataPlan, documents: Any = None, shown: list[str] | None = None) -> dict[str, DataRef]:
    lines = [] if shown is None else shown
    return write_data(plan, plan.documents if documents is None else documents, store, LAYOUT, lines.append)


def read(store: Store, ref: DataRef) -> tuple[Manifest, list[dict[str, Any]]]:
    manifest = decode(store.read(ref.path), ref.path, ref.path, ref.digest)
    return manifest, rows_of(manifest, store)


def rows_of(manifest: Manifest, store: Store) -> list[dict[str, Any]]:
    fetcher = GroupFetcher(manifest, store)
    return [
        row
        for number, file in enumerate(manifest.files)
        for group in range(len(file.groups))
        for row in fetcher.fetch(number, group).to_pylist()
    ]


@pytest.mark.parametrize("kind", ["arrow", "pandas", "batch", "options"])
def test_a_table_is_written_once_and_found_again(store: Store, kind: str) -> None:
    value = {
        "arrow": TABLE,
        "pandas": TABLE.to_pandas(),
        "batch": TABLE.combine_chunks().to_batches()[0],
        "options": data.table(TABLE),
    }[kind]
    plan, shown = planned(value), []
    assert missing(plan.documents, store, LAYOUT) == ["train"]
    first = write(store, plan, shown=shown)
    names = sorted(store.list("run/data"))
    again = write(store, planned(value), shown=shown)

    assert first == again
    assert missing(plan.documents, store, LAYOUT) == []
    assert sorted(store.list("run/data")) == names
    assert len(names) == 2
    manifest, rows = read(store, first["train"])
    assert rows == TABLE.to_pylist()
    assert [(each.name, each.shape) for each in manifest.columns] == [("x", (2,)), ("label", ())]
    assert sum("wrote" in each for each in shown) == 1
    assert shown[-1] == "data['train']: 3 rows in 1 file"


def test_a_driver_that_died_before_the_manifest_leaves_a_run_that_can_be_repeated(store: Store) -> None:
    plan = planned(TABLE)
    ref = write(store, plan)["train"]
    store.delete(ref.path)

    _, rows = read(store, write(store, plan)["train"])
    assert rows == TABLE.to_pylist()


def test_a_resume_needs_the_written_rows_or_the_source(store: Store) -> None:
    plan = planned(TABLE)
    with pytest.raises(
        ResumeError, match=r"data\['train'\] of the run at .* was not written before its driver ended: repeat"
    ):
        write(store, DataPlan(), plan.documents)
    refs = write(store, plan)

    assert write(store, DataPlan(), plan.documents) == refs


def changed(**columns: Any) -> pa.Table:
    return pa.table({**{name: TABLE[name] for name in TABLE.column_names}, **columns})


def test_other_rows_columns_and_padding_are_other_data() -> None:
    def document(value: Any) -> Any:
        return planned(value).documents

    assert document(TABLE) == document(pa.table(TABLE.to_pydict()))
    assert document(TABLE) == document(pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]))
    others = [
        changed(label=[0, 1, 1]),
        changed(label=pa.array([0, 1, 0], pa.int32())),
        TABLE.rename_columns(["x", "y"]),
        TABLE.slice(0, 2),
        data.table(TABLE, pad={"x": 3}),
    ]
    documents = [document(each) for each in [TABLE, *others]]
    assert all(one != other for i, one in enumerate(documents) for other in documents[:i])


def test_files_are_planned_and_not_copied(tmp_path: Path, store: Store) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(TABLE))
    plan = planned(str(tmp_path / "a.parquet"))
    ref = write(store, plan)["train"]

    assert list(store.list("run/data")) == [ref.path]
    assert fetched(decode(store.read(ref.path), "", ref.path, ref.digest)).to_pylist() == TABLE.to_pylist()
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(TABLE.slice(0, 2)))
    assert planned(str(tmp_path / "a.parquet")).documents != plan.documents


@pytest.mark.parametrize("kind", ["table", "file"])
def test_lists_are_padded_from_any_source(kind: str, store: Store, tmp_path: Path) -> None:
    ragged, path = pa.table({"x": [[1], [2, 3], []]}), tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes(ragged))
    plan = planned(data.table(ragged, {"x": 2}) if kind == "table" else data.parquet(path, pad={"x": 2}))
    ref = write(store, plan)["train"]
    manifest = decode(store.read(ref.path), "", ref.path)

    found = fetched(manifest).to_pylist() if manifest.root else rows_of(manifest, store)
    assert [each["x"] for each in found] == [[1, 0], [2, 3], [0, 0]]
    assert manifest.columns[0].shape == (2,)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (TABLE.slice(0, 0), "data['train'] has no rows: check its filters and joins, or leave it out"),
        (pa.table({"x": [1, None]}), "data['train']: column 'x' has 1 null"),
        (pa.table({"x": [[1], [1, 2]]}), "data['train']: column 'x' has lists of 1 to 2 values"),
        (data.table(TABLE, {"y": 2}), "pad of data['train'] has no column 'y'"),
        (data.table(TABLE, {"label": 2}), "pad of data['train']: column 'label' is int64, and only lists are padded"),
        (data.table(TABLE, {"x": 1}), "has a list of 2 values, and pad={'x': 1} is shorter"),
        (pd.DataFrame({"x": ["a", None]}), "column 'x' has 1 null"),
        (pa.table({"x": pa.array([None, None])}), "column 'x' is a null: it holds only nulls; drop it"),
    ],
)
def test_bad_tables_are_refused_with_the_next_step(store: Store, value: Any, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        planned(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pd.DataFrame({"x": pd.Categorical(["a", "b", "a"])}), pd.DataFrame({"x": pd.Categorical(["c", "d", "c"])})),
        (pa.table({"x": pa.array([5, 6]).dictionary_encode()}), pa.table({"x": pa.array([7, 8]).dictionary_encode()})),
    ],
)
def test_tables_with_other_values_of_a_category_are_other_data(one: Any, other: Any) -> None:
    assert planned(one).documents == planned(one.copy() if isinstance(one, pd.DataFrame) else one).documents
    assert planned(one).documents != planned(other).documents


def test_a_table_is_the_same_data_in_other_chunks() -> None:
    parts = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert planned(parts).documents == planned(TABLE).documents


def test_structs_of_a_dictionary_are_flattened(store: Store) -> None:
    structs = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([{"a": 1}, {"a": 2}]))
    _, rows = read(store, write(store, planned(pa.table({"x": structs})))["train"])
    assert [each["x.a"] for each in rows] == [2, 1, 2]


def test_a_store_that_does_not_exist_is_named_with_its_dataset() -> None:
    with pytest.raises(SpecError, match=r"data\['train'\]: path \(ftp://host/\) names a ftp store"):
        planned("ftp://host/x.parquet")


def test_datasets_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(DataError, match=re.escape("data['train'] and data['validation'] differ in column 'label'")):
        plan_data(sources_of({"train": TABLE, "validation": changed(label=[0.5, 1.5, 2.5])}), 60.0)


# ---- what one task writes


def task(store: Store, table: pa.Table, pad: dict[str, int] | None = None, file_bytes: int = 2**28) -> WriteTask:
    return WriteTask(
        store.address, "run/data", columns_of(table.schema, "data['train']"), "data['train']", pad or {}, file_bytes
    )


def test_a_part_rolls_over_to_a_new_file_at_the_size_of_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": np.arange(1000)})
    monkeypatch.setattr(frame_writer, "regrouped", lambda batches: group_file.regrouped(batches, 50))
    part = write_part(task(store, table, file_bytes=2000), iter(table.to_batches(max_chunksize=30)), 4, "part")

    assert [each.path for each in part.files] == [f"run/data/part-{number}.arrow" for number in range(len(part.files))]
    assert len(part.files) == 5
    assert [len(each.groups) for each in part.files] == [4] * 5
    assert {each.origin for each in part.files} == {"partition 4"}
    manifest = Manifest(
        name="train", format="groups", files=part.files, schema=part.schema,
        columns=shaped(columns_of(table.schema, ""), part.lengths, ""),
    )  # fmt: skip
    assert [each["x"] for each in rows_of(manifest, store)] == list(range(1000))
    for file in part.files:
        assert store.stat(file.path).size == file.size
        assert pa.ipc.open_stream(store.read(file.path)).read_all().num_rows == file.rows


@pytest.mark.parametrize("batches", [0, 3])
def test_an_empty_partition_writes_no_file(store: Store, batches: int) -> None:
    part = write_part(task(store, TABLE), iter([pa.RecordBatch.from_pylist([], TABLE.schema)] * batches), 2, "part")

    assert (part.files, part.lengths, part.schema) == ((), {}, b"")
    assert list(store.list("run")) == []


@pytest.mark.parametrize(
    ("second", "pad", "words"),
    [
        ([[1.0, None]], None, "data['train'], partition 7: column 'x' has 1 null"),
        ([None], {"x": 2}, "column 'x' has 1 null"),
        ([[1.0, None]], {"x": 2}, "column 'x' has 1 null"),
        ([[1.0, 2.0, 3.0]], {"x": 2}, "has a list of 3 values, and pad={'x': 2} is shorter"),
    ],
)
def test_bad_values_in_a_later_batch_publish_nothing(
    store: Store, second: list[Any], pad: dict[str, int] | None, words: str
) -> None:
    kind = pa.list_(pa.field("element", pa.float64()))
    tables = [pa.table({"x": pa.array(rows, kind)}) for rows in ([[1.0, 2.0]], second)]

    with pytest.raises(DataError, match=re.escape(words)):
        write_part(task(store, tables[0], pad), (table.to_batches()[0] for table in tables), 7, "part")
    assert list(store.list("run")) == []


@pytest.mark.long
def test_a_batch_of_wide_sparse_vectors_is_filled_in_parts_that_fit_into_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, width = 400, 100_000
    vectors = [{"type": 0, "size": width, "indices": [row], "values": [row + 1.0]} for row in range(rows)]
    table = pa.table({"x": pa.array(vectors, VECTOR)})
    sizes: list[int] = []

    def counting(batches: Any) -> Any:
        def counted() -> Any:
            for each in batches:
                sizes.append(each.nbytes)
                yield each

        return group_file.regrouped(counted())

    monkeypatch.setattr(frame_writer, "regrouped", counting)
    part = write_part(task(store, table), iter(table.to_batches()), 0, "part")

    assert sum(sizes) >= 4 * rows * width
    assert max(sizes) <= group_file.MOST_BYTES + 1000, "160 MB at once otherwise"
    assert sum(each.rows for each in part.files) == rows
    assert part.lengths == {"x": ((width, width),)}


def test_lengths_of_all_groups_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [[1]] * 30 + [[1, 2]] + [[1]] * 30, "b": [b"ab"] * 61})
    monkeypatch.setattr(frame_writer, "regrouped", lambda batches: group_file.regrouped(batches, 10))
    part = write_part(task(store, table), iter(table.to_batches()), 0, "part")

    assert part.lengths == {"x": ((1, 2),), "b": ((2, 2),)}


def test_fewer_rows_than_members_are_refused_with_both_numbers(store: Store) -> None:
    plan_data(sources_of({"train": TABLE}), 60.0, 3)
    words = re.escape("data['train'] has 3 rows for 4 members, and each needs at least one")
    with pytest.raises(DataError, match=words):
        plan_data(sources_of({"train": TABLE}), 60.0, 4)
    with pytest.raises(DataError, match=words):
        write_data(planned(TABLE), planned(TABLE).documents, store, LAYOUT, list[str]().append, 4)
    assert missing(planned(TABLE).documents, store, LAYOUT) == ["train"]


@pytest.mark.parametrize(("change", "words"), [("replace", "was replaced after"), ("delete", "is gone")])
def test_files_that_changed_are_refused_before_a_resumed_run_starts(
    store: Store, tmp_path: Path, change: str, words: str
) -> None:
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).write_bytes(parquet_bytes(TABLE))
    plan = planned(str(tmp_path))
    first = write(store, plan)
    assert write(store, DataPlan(), plan.documents) == first
    if change == "delete":
        (tmp_path / "b.parquet").unlink()
    else:
        (tmp_path / "b.parquet").write_bytes(parquet_bytes(TABLE.slice(1)))
    with pytest.raises(DataError, match=rf"b.parquet {words}"):
        write(store, DataPlan(), plan.documents)


def test_many_small_files_are_worth_a_hint(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    write_data(planned(TABLE), planned(TABLE).documents, store, LAYOUT, shown.append)
    assert not any("partitions are small" in each for each in shown)
    monkeypatch.setattr(data_writing, "MANY_FILES", 1)
    write_data(planned(TABLE), planned(TABLE).documents, store, RunLayout("other"), shown.append)
    assert any("its 1 partitions are small" in each and "partitions=8" in each for each in shown)


def test_files_that_only_another_host_has_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data_writing.write_part

    def on_other_hosts(*given: Any) -> Any:
        """Adds a file that this host does not see, between two that it sees."""
        part = whole(*given)
        lost = msgspec.structs.replace(part.files[0], path=part.files[0].path + "-elsewhere")
        return msgspec.structs.replace(part, files=(part.files[0], lost, part.files[0]))

    monkeypatch.setattr(data_writing, "write_part", on_other_hosts)
    store = LocalStore(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"-elsewhere, and this driver does not see it: dir= must be storage"):
        write_data(planned(TABLE), planned(TABLE).documents, store, LAYOUT, print)


def test_tasks_that_start_after_a_refusal_end_at_once_with_it(store: Store) -> None:
    """The first bad partition ends a job that would take hours; a later job does not see its note."""
    bad, good = pa.table({"x": pa.array([1, None])}), pa.table({"x": pa.array([1, 2])})

    def never() -> Any:
        raise AssertionError("the rows of this partition were computed")
        yield

    def entry(job: WriteTask, batches: Any) -> WrittenPart:
        [row] = list(job(batches))
        return msgspec.msgpack.decode(row.column(0)[0].as_py(), type=WrittenPart)

    job = task(store, bad)
    assert entry(job, iter(good.to_batches())).refused == ""
    refusal = entry(job, iter(bad.to_batches())).refused
    assert refusal.startswith("DataError: data['train'], partition 0: column 'x' has 1 null")
    assert entry(job, never()).refused == refusal
    assert entry(task(store, bad), iter(good.to_batches())).refused == ""
    with pytest.raises(DataError, match="has 1 null"):
        job.note.raise_refusal(["", refusal])
    assert not [path for path in store.list("run") if "refused" in path]


def test_a_refusal_ends_a_partition_of_several_files_at_its_next_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_writer, "regrouped", lambda batches: group_file.regrouped(batches, 50))
    table = pa.table({"x": np.arange(1000)})
    job = task(store, table, file_bytes=500)

    def batches() -> Any:
        for number, batch in enumerate(table.to_batches(max_chunksize=50)):
            if number == 6:
                store.put_if_absent(job.note.path, b"DataError: data['train'], partition 7: refused")
            yield batch

    with pytest.raises(DataError, match="partition 7: refused"):
        write_part(job, batches(), 0, "part")
    assert 0 < len(store.list("run/data")) < 12


def test_a_full_disk_is_the_end_of_the_job_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated task would wait for room once more: the store has done so for `store_timeout`."""
    job = task(LocalStore(tmp_path), TABLE)

    def full(*_: Any) -> Any:
        raise StoreTimeoutError(errno.ENOSPC, "the disk is full, for 300 s; free some space", "part-0.arrow")

    monkeypatch.setattr(frame_writer, "write_part", full)
    [row] = list(job(iter(TABLE.to_batches())))
    refusal = msgspec.msgpack.decode(row.column(0)[0].as_py(), type=WrittenPart).refused

    words = (
        r"data\['train'\]: an executor on \S+ cannot write run/data in .*the disk is full.*: free space there, write"
    )
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=words):
            job.note.check()
    with pytest.raises(RunDirectoryError, match=words):
        job.note.raise_refusal([refusal])
    job.note.check()
