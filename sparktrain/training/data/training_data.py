"""A dataset of `data=` as a training function sees it: shares of its rows, as tensors or as NumPy arrays."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.base.optional_packages import require, require_tensorflow
from sparktrain.config.environment import TENSORFLOW
from sparktrain.config.param_values import described
from sparktrain.datasets.columns import Column, chosen
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.manifest import Manifest
from sparktrain.errors import SpecError
from sparktrain.training.data import assignment
from sparktrain.training.data.batch_columns import Names
from sparktrain.training.data.feed_request import FeedRequest
from sparktrain.training.data.ordered_reader import OrderedReader
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_order import RowOrder, RowShare, contiguous
from sparktrain.training.frameworks.imported import feeds_of, fit_feeds


class TrainingData:
    """The rows of one dataset for one member of a gang. One thread uses it; its feeds have threads of their own."""

    def __init__(
        self, manifest: Manifest, reader: GroupReader, rank: int, size: int, seed: int, position: Position | None = None
    ) -> None:
        self._manifest = manifest
        self._reader = reader
        self._rank = rank
        self._size = size
        self._seed = seed
        self._position = position or Position()

    def __repr__(self) -> str:
        return f"TrainingData({self.name!r}, {self.num_rows} rows, columns {', '.join(self.columns)})"

    @property
    def name(self) -> str:
        """Its name in `data=`."""
        return self._manifest.name

    @property
    def schema(self) -> tuple[Column, ...]:
        """The columns: each has `name`, `kind`, NumPy's `dtype`, and the `shape` of one row."""
        return self._manifest.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.schema)

    @property
    def num_rows(self) -> int:
        """Number of rows of the whole dataset, over all members."""
        return self._reader.rows

    def to_tf(
        self,
        *,
        batch_size: int,
        feature_columns: Names | None = None,
        label_columns: Names | None = None,
        weight_column: str | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        uneven: str = "drop",
        stack: bool = False,
        class_weight: Mapping[int, float] | None = None,
    ) -> Any:
        """A `tf.data.Dataset` for `fit`: this member's share of each pass, in batches `(x, y)`, or `x` without labels.

        Each row comes once in a pass, over all members, and all members have the same number of steps. With
        `ctx.keras_callbacks()`, training resumes in the middle of a pass after a restart, also in a gang of another
        size. Does not block; its threads read groups of rows from this host's cache, and from the store the first time.

        Args:
            batch_size: rows in one member's batch.
            feature_columns: one name: `x` is a tensor of shape (batch, *shape); several: a dict of such tensors by
                name; None: all columns that are neither label nor weight.
            label_columns: the same for `y`; None: there is none.
            weight_column: the sample weights, third part of a batch.
            shuffle: whether to draw a new order of all rows for each pass, the same on all members: a function of seed
                and pass. Groups of rows are permuted, and rows within windows of 262,144 rows or 256 MiB.
            seed: the seed of `shuffle`, by default `ctx.seed`.
            uneven: what to do with a last step that lacks rows: "drop", "repeat" or "pad", as of `ctx.shard`.
            stack: make one float tensor of shape (batch, columns) of several number columns in `feature_columns`.
            class_weight: weights by class, in place of the argument of `fit`.

        Float64 columns become Keras' `floatx`; strings, and bytes of unequal lengths, become `tf.string`.
        Raises SpecError for fewer rows than members and wrong arguments, DataError for unknown columns.
        """
        require_tensorflow("to_tf()", "use to_keras(), to_numpy() or iter_batches()")
        return self._feed(
            "tensorflow",
            share=self._share(uneven, batch_size),
            feature_columns=feature_columns,
            label_columns=label_columns,
            weight_column=weight_column,
            stack=stack,
            seed=self._seed_of(seed) if shuffle else None,
            class_weight=class_weight,
        )

    def to_keras(
        self,
        *,
        batch_size: int,
        feature_columns: Names | None = None,
        label_columns: Names | None = None,
        weight_column: str | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        uneven: str = "drop",
        stack: bool = False,
        class_weight: Mapping[int, float] | None = None,
    ) -> Any:
        """What `fit` of Keras reads on any backend: this member's share of each pass, in batches `(x, y)`, or `x`.

        Where Keras runs on TensorFlow, it is that of `to_tf`. On JAX and PyTorch it yields the same batches in the same
        order, as NumPy's arrays or as tensors of PyTorch, and resumes in the middle of a pass as `to_tf` does. It
        imports no other framework. Arguments and errors are those of `to_tf`. Does not block; `fit` reads the groups of
        rows.
        """
        package = fit_feeds()
        if package == TENSORFLOW:
            require_tensorflow("to_keras()", "let Keras run on JAX or PyTorch")
        return self._feed(
            package,
            share=self._share(uneven, batch_size),
            feature_columns=feature_columns,
            label_columns=label_columns,
            weight_column=weight_column,
            stack=stack,
            seed=self._seed_of(seed) if shuffle else None,
            class_weight=class_weight,
        )

    def to_torch(
        self,
        *,
        batch_size: int,
        feature_columns: Names | None = None,
        label_columns: Names | None = None,
        weight_column: str | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        uneven: str = "drop",
        stack: bool = False,
    ) -> Any:
        """A `DataLoader` of PyTorch: this member's share of each pass, in batches `(x, y)`, or `x` without labels.

        Each iteration is one pass; `len()` is its number of steps, equal on all members. Each row comes once in a pass,
        over all members, in the order of `to_tf` and `iter_batches` with the same arguments. Does not block; a thread
        reads groups of rows ahead, so the loader has no workers, and needs none.

        `epoch` is the number of the pass that comes next, or that is not over. Pass the loader to
        `ctx.checkpoint.save(step, model, optimizer, batches)` and to `restore`: it has `state_dict`, so that the first
        iteration after a restart reads the rest of its pass, also in a gang of another size. An iteration that is left
        early ends its pass.

        Args:
            batch_size: rows in one member's batch.
            feature_columns: one name: `x` is a tensor of shape (batch, *shape); several: a dict of such tensors by
                name; None: all columns that are neither label nor weight.
            label_columns: the same for `y`; None: there is none.
            weight_column: the sample weights, third part of a batch.
            shuffle: whether to draw a new order of all rows for each pass: as of `to_tf`.
            seed: the seed of `shuffle`, by default `ctx.seed`.
            uneven: what to do with a last step that lacks rows: "drop", "repeat" or "pad", as of `ctx.shard`.
            stack: make one float tensor of shape (batch, columns) of several number columns in `feature_columns`.

        Tensors are on the CPU, and views of a chunk of some thousand rows. A shuffled chunk is what NumPy has gathered,
        without another copy; one in order is copied once, because the files of a host are mapped read-only. Float64
        columns are converted to torch's default type (float32 where that is bfloat16).
        Raises SpecError for fewer rows than members and wrong arguments, DataError for unknown columns and for strings,
        which torch has no tensors of.
        """
        require("torch", "to_torch()")
        return self._feed(
            "torch",
            share=self._share(uneven, batch_size),
            feature_columns=feature_columns,
            label_columns=label_columns,
            weight_column=weight_column,
            stack=stack,
            seed=self._seed_of(seed) if shuffle else None,
        )

    def iter_batches(
        self,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        epoch: int = 0,
        skip: int = 0,
        uneven: str = "drop",
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """This member's share of one pass, as dicts of NumPy arrays of shape (rows, *shape) by column.

        For loops of your own: batch i of pass `epoch` is the same in every process, so a loop that has saved i resumes
        with `skip=i`. The order is that of `to_tf` with the same arguments. Arrays may be views of read-only memory.
        Blocks on the store for groups that are not on this host yet. `uneven="pad"` is refused, because there are no
        weights. Raises SpecError, DataError, StoreError.
        """
        rows = self._share(uneven, batch_size)
        if rows.share.uneven is assignment.Uneven.PAD:
            raise SpecError("uneven ('pad') weighs rows, and iter_batches has no weights: use 'drop' or 'repeat'")
        _check_count(epoch, "epoch")
        _check_count(skip, "skip")
        names = self._names(columns)
        order = self._order(self._seed_of(seed) if shuffle else None, epoch)
        return self._batches(rows, order, names, range(skip, rows.steps))

    def to_numpy(self, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """This member's share, in the order of the dataset: an array of shape (rows, *shape) for each column.

        Shares differ by one row at most; in a gang of one it is all of it. Copies, so that it takes memory for all its
        rows. Blocks on the store. Raises DataError, StoreError.
        """
        first, last = contiguous(self.num_rows, self._rank, self._size)
        arrays = self._reader.span(first, last, self._names(columns))
        return {name: np.array(array) for name, array in arrays.items()}

    def joined_bytes(self) -> memoryview:
        """All rows of a dataset of one column, bytes of equal lengths, one after the other, for `sparktrain.sklearn`.

        Read-only memory that all processes of the host share. Blocks on the store, or on the process of this host that
        reads them first. Raises DataError, StoreError.
        """
        return self._reader.joined_bytes()

    @property
    def _subject(self) -> str:
        return f"data[{self.name!r}]"

    def _feed(self, package: str, **request: Any) -> Any:
        """The feed of the framework `package`; `request` is what `FeedRequest` needs beside the dataset."""
        dataset = FeedRequest(
            name=self.name, schema=self.schema, reader=self._reader, position=self._position, **request
        )
        return feeds_of(package).row_feed(dataset)

    def _share(self, uneven: str, batch_size: object) -> RowShare:
        share = assignment.share(self._rank, self._size, uneven)
        return RowShare(share, self.num_rows, assignment.batch_of(batch_size))

    def _names(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        selection = self.columns if columns is None else ([columns] if isinstance(columns, str) else columns)
        return tuple(column.name for column in chosen(self.schema, selection, self._subject))

    def _seed_of(self, seed: int | None) -> int:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
            raise SpecError(f"seed is {described(seed)}, a whole number is expected; pass an int")
        return self._seed if seed is None else int(seed)

    def _order(self, seed: int | None, number: int) -> RowOrder:
        return RowOrder(self._reader.group_rows, self._reader.group_sizes, seed, number)

    def _batches(
        self, rows: RowShare, order: RowOrder, names: Sequence[str], steps: range
    ) -> Iterator[dict[str, NDArray[Any]]]:
        reader = OrderedReader(self._reader, order, names)
        for step in steps:
            yield reader.read(rows.positions(step, step + 1))


def _check_count(number: object, option: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
        raise SpecError(f"{option} is {described(number)}, a number from 0 is expected")
