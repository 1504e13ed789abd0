"""How many rows travel to a framework at a time."""

from typing import Any

import pytest

from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.batch_columns import Selection
from sparktrain.training.data.feed_request import RowChunks
from sparktrain.training.data.row_order import RowShare


@pytest.mark.parametrize(
    ("width", "batch", "steps"),
    [
        pytest.param(784, 256, 16, id="4096-rows"),
        pytest.param(784, 5000, 1, id="a-large-batch"),
        pytest.param(150_528, 8, 3, id="4-MiB-of-wide-rows"),
        pytest.param(150_528, 64, 1, id="a-batch-of-wide-rows"),
        pytest.param(2**23, 1, 1, id="rows-wider-than-a-chunk"),
    ],
)
def test_a_chunk_has_some_thousand_rows_or_some_mebibytes(width: int, batch: int, steps: int) -> None:
    columns = [
        Column("x", ColumnKind.BINARY, "uint8", "binary", (width,)),
        Column("y", ColumnKind.NUMBER, "int32", "int", None),
    ]
    selection = Selection.of(
        columns, features="x", labels="y", weight=None, stack=False, subject="data['train']", floats="float32"
    )
    reader: Any = None
    chunks = RowChunks(reader, selection, RowShare(BatchShare(0, 1, Uneven.DROP), 100_000, batch), None)

    assert chunks.steps == steps
