"""What a feed of a dataset's rows is made of: the arguments of `to_tf` and `to_torch`, for the frameworks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparktrain.datasets.columns import Column
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.errors import SpecError
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.batch_columns import Names, Selection
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_chunks import RowChunks
from sparktrain.training.data.row_order import RowShare


@dataclass(frozen=True, kw_only=True)
class FeedRequest:
    """The rows of one member, and which columns make up its batches."""

    name: str
    """Of the dataset."""
    schema: Sequence[Column]
    reader: GroupReader
    share: RowShare
    feature_columns: Names | None
    label_columns: Names | None
    weight_column: str | None
    stack: bool
    seed: int | None
    """None: the rows keep the order of the dataset."""
    position: Position
    class_weight: Mapping[int, float] | None = None

    def chunks(self, floats: str) -> RowChunks:
        """The rows in chunks of several batches; doubles become `floats`, NumPy's name of a type.

        Raises SpecError and DataError for columns that make up no batch.
        """
        selection = Selection.of(
            self.schema,
            features=self.feature_columns,
            labels=self.label_columns,
            weight=self.weight_column,
            stack=self.stack,
            subject=self.subject,
            floats=floats,
        )
        if self.share.share.uneven is Uneven.PAD and self.label_columns is None:
            raise SpecError("uneven='pad' gives rows a weight, and needs labels for that: name them in label_columns")
        return RowChunks(self.reader, selection, self.share, self.seed)

    def divided(self, share: BatchShare) -> "FeedRequest":
        """The same rows for another share of them."""
        return replace(self, share=replace(self.share, share=share))

    @property
    def subject(self) -> str:
        """The dataset in messages."""
        return f"data[{self.name!r}]"
