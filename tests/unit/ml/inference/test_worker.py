"""What a task makes of batches, with a model that adds its inputs in place of one of Keras."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.errors import DataError
from sparktrain.ml.inference import worker
from sparktrain.ml.inference.feeds import ColumnTable, feeds_of
from sparktrain.ml.inference.model_file import ModelFile
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField
from sparktrain.ml.inference.prediction_task import ModelUse, PredictionTask

SIGNATURE = ModelSignature(
    (TensorField("a", (), "float32"), TensorField("b", (2,), "float32")),
    (TensorField("sum", (1,), "float32"), TensorField("twice", (2,), "float32")),
)
BATCH = pa.RecordBatch.from_pydict(
    {"id": ["x", "y", "z"], "a": [1.0, None, 3.0], "b": [[1.0, 2.0], [3.0, 4.0], [5.0, None]], "c": [1.0, 2.0, 3.0]}
)


class Adding:
    """A model."""

    def __init__(self, short: int = 0) -> None:
        self.sizes: list[int] = []
        self.short = short

    def rows(self, tensors: Sequence[np.ndarray], signature: ModelSignature, batch_size: int) -> list[np.ndarray]:
        a, b = tensors
        self.sizes.append(len(a))
        return [(a + b.sum(axis=1)).reshape(-1, 1)[self.short :], 2 * b]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Adding:
    made = Adding()
    monkeypatch.setattr(worker, "_model", lambda file: made)
    return made


def task(columns: Any, *, nulls: bool, kept: tuple[int, ...] = (0,), outputs: Any = None) -> PredictionTask:
    use = ModelUse(ModelFile("m.keras", 1, "d"), SIGNATURE, 2, nulls, "df")
    feeds = feeds_of(SIGNATURE, ColumnTable(BATCH.schema, "df"), columns)
    names = [BATCH.schema.names[each] for each in kept] + (["p"] if outputs is None else [f"p{i}" for i in outputs])
    return PredictionTask(use, feeds, kept, tuple(names), outputs)


def rows(asked: PredictionTask, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in worker.predictions(iter(batches), asked) for row in batch.to_pylist()]


def test_rows_keep_their_columns_and_get_the_outputs(model: Adding) -> None:
    found = rows(task(["c", "b"], nulls=False), BATCH.slice(0, 2))
    assert found == [
        {"id": "x", "p": {"sum": 4.0, "twice": [2.0, 4.0]}}, {"id": "y", "p": {"sum": 9.0, "twice": [6.0, 8.0]}},
    ]  # fmt: skip
    assert rows(task(["c", "b"], nulls=False, kept=(3, 0), outputs=(1,)), BATCH.slice(0, 1)) == [
        {"c": 1.0, "id": "x", "p1": [2.0, 4.0]}
    ]


def test_rows_with_a_null_at_any_level_get_nulls_and_the_model_sees_none_of_them(model: Adding) -> None:
    asked = task(["a", "b"], nulls=True, outputs=(0,))
    assert [row["p0"] for row in rows(asked, BATCH, BATCH.slice(1))] == [4.0, None, None, None, None]
    assert model.sizes == [1]


def test_a_null_is_an_error_that_names_column_count_and_partition(model: Adding) -> None:
    with pytest.raises(DataError, match=r"df \(partition 0\): column 'a' has 1 null, column 'b' has 1 null: a tensor"):
        rows(task(["a", "b"], nulls=False), BATCH)


def test_an_empty_batch_needs_no_model(model: Adding) -> None:
    assert rows(task(["c", "b"], nulls=False), BATCH.slice(3)) == []
    [empty] = worker.predictions(iter([BATCH.slice(3)]), task(["c", "b"], nulls=False))
    assert empty.schema.field("p").type == pa.struct([("sum", pa.float32()), ("twice", pa.list_(pa.float32()))])
    assert model.sizes == []


def test_a_model_that_gives_other_than_one_row_for_each_is_refused(model: Adding) -> None:
    model.short = 1
    with pytest.raises(DataError, match=r"output 'sum' .* of the model has 1 rows for 2"):
        rows(task(["c", "b"], nulls=False), BATCH.slice(0, 2))


def test_arguments_of_an_sql_function_feed_inputs_in_their_order(model: Adding) -> None:
    use = task(["c", "b"], nulls=False).use
    assert worker.scored([BATCH["c"][:2], BATCH["b"][:2]], use).to_pylist()[1] == {"sum": 9.0, "twice": [6.0, 8.0]}
    with pytest.raises(DataError, match="column 'argument 1' is of type string, and the model's input is 'a'"):
        worker.scored([BATCH["id"], BATCH["b"]], use)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What a process loads, by model and GPU."""
    seen: list[tuple[str, str | None]] = []

    def load(file: ModelFile, key: tuple[str, str], cpus: int, gpu: str | None) -> Any:
        seen.append((file.sha256, gpu))
        return worker._Entry(key, f"model {file.sha256}", type("Folder", (), {"release": lambda self: None})())

    monkeypatch.setattr(worker, "_entries", [])
    monkeypatch.setattr(worker, "_loaded", load)
    return seen


def test_a_process_keeps_the_models_that_it_used_last(loaded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "task_resources", lambda: (1, None))
    for digest in "abcacbdb":
        assert worker._model(ModelFile("m", 1, digest)) == f"model {digest}"
    assert [each for each, _ in loaded] == ["a", "b", "c", "d"]
    worker._model(ModelFile("m", 1, "a"))
    assert loaded[-1] == ("a", None)


def test_on_a_gpu_it_keeps_one_for_the_gpu_of_the_task(loaded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in ("0", "0", "1"):
        monkeypatch.setattr(worker, "task_resources", lambda gpu=gpu: (2, gpu))
        worker._model(ModelFile("m", 1, "a"))
    assert loaded == [("a", "0"), ("a", "1")]
    assert len(worker._entries) == 1
