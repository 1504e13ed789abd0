"""Rows of `data=` as batches of tensors. NumPy gathers chunks of several batches in a thread, and torch cuts them."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from sparktrain.datasets.columns import chosen
from sparktrain.errors import DataError
from sparktrain.training.data.feed_request import FeedRequest, RowChunks
from sparktrain.training.data.pass_progress import PassProgress, PassStart
from sparktrain.training.frameworks.torch.resumable_loader import ResumableLoader

_CHUNKS_AHEAD = 2
_FLOATS = {torch.float64: "float64", torch.float16: "float16"}
"""What doubles become, by torch's default type; float32 for others, because NumPy lacks bfloat16."""


def row_feed(request: FeedRequest) -> "TorchBatches":
    """The batches of `TrainingData.to_torch`. Does not block. Raises SpecError, DataError."""
    return TorchBatches(request)


class TorchBatches(ResumableLoader):
    """This member's share of each pass over a dataset: see `TrainingData.to_torch`."""

    def __init__(self, request: FeedRequest) -> None:
        chunks = request.chunks(_FLOATS.get(torch.get_default_dtype(), "float32"))
        _check_types(request, chunks)
        share = request.share
        source = {"name": request.name, "rows": share.rows, "seed": request.seed}
        progress = PassProgress(share, request.position, source)
        rows = _Rows(chunks)
        super().__init__(rows, progress, steps=share.steps, batch_size=None, collate_fn=_as_it_is)
        self._rows = rows

    def start(self, started: PassStart) -> None:
        """See base class."""
        self._rows.started = started


class _Rows(IterableDataset[Any]):  # type: ignore[misc]
    """The rest of a pass, as batches."""

    def __init__(self, chunks: RowChunks) -> None:
        self.started: PassStart | None = None
        self._chunks = chunks

    def __len__(self) -> int:
        """Batches of a whole pass: Keras asks the dataset of a loader whether it has a length."""
        return self._chunks.share.steps

    def __iter__(self) -> Iterator[Any]:
        assert self.started is not None
        chunks = self._chunks
        for tensors in _read_ahead(chunks, self.started):
            # The last chunk alone ends in a smaller batch.
            for parts in zip(*(tensor.split(chunks.share.batch) for tensor in tensors), strict=True):
                batch = chunks.selection.batch(parts[: len(parts) - chunks.padded])
                yield _weighed(batch, parts[-1]) if chunks.padded else batch


def _read_ahead(chunks: RowChunks, started: PassStart) -> Iterator[list[torch.Tensor]]:
    """The chunks of a pass as tensors; a thread reads the next ones meanwhile."""
    taken_rows = started.share.taken_rows
    count = int(chunks.remaining_chunks(taken_rows, started.skipped))
    pool = ThreadPoolExecutor(1, "sparktrain-torch")
    reading: deque[Future[list[torch.Tensor]]] = deque()

    def read(index: int) -> list[torch.Tensor]:
        return [_tensor(array) for array in chunks(started.number, taken_rows, started.skipped, index)]

    try:
        for index in range(count + _CHUNKS_AHEAD):
            if index < count:
                reading.append(pool.submit(read, index))
            if index >= _CHUNKS_AHEAD:
                yield reading.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    # A write to a file that this process maps read-only would end it by a signal.
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _weighed(batch: Any, weights: torch.Tensor) -> Any:
    x, y, *sample_weights = batch
    return x, y, sample_weights[0] * weights.to(sample_weights[0].dtype) if sample_weights else weights


def _check_types(request: FeedRequest, chunks: RowChunks) -> None:
    columns = chosen(request.schema, chunks.selection.names, request.subject)
    strings: Sequence[str] = [column.name for column in columns if column.strings]
    if strings:
        listed = ", ".join(map(repr, strings))
        raise DataError(
            f"{request.subject}: torch has no tensors of strings, which {listed} would need: name other columns in "
            "feature_columns, make numbers of them in Spark, or read them by iter_batches()"
        )


def _as_it_is(batch: Any) -> Any:
    return batch
