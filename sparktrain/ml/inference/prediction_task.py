"""What the tasks of a prediction get: frozen data."""

from msgspec import Struct

from sparktrain.ml.inference.feeds import Feed
from sparktrain.ml.inference.model_file import ModelFile
from sparktrain.ml.inference.model_signature import ModelSignature


class ModelUse(Struct, frozen=True):
    """A model, and how tasks use it."""

    model: ModelFile
    signature: ModelSignature
    batch_size: int
    nulls: bool
    """Whether a row with nulls gets a null; else it is an error."""
    subject: str
    """The data, for messages."""


class PredictionTask(Struct, frozen=True):
    """A prediction over the batches of a DataFrame."""

    use: ModelUse
    feeds: tuple[Feed, ...]
    kept_positions: tuple[int, ...]
    """The columns of the input that stay, by position."""
    names: tuple[str, ...]
    """The names of all columns of the result."""
    outputs: tuple[int, ...] | None = None
    """The outputs that become columns of their own, by position; None: all in one column."""
