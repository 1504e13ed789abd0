"""Which columns feed which inputs of a model, decided by names and types alone. Pure."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from sparktrain.config.param_values import described, did_you_mean
from sparktrain.datasets.arrow_columns import columns_of, is_vector, plain_type
from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.errors import DataError, SpecError
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField

ColumnChoice = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None
"""The value of `columns=`."""
_SHOWN = 8


class Feed(Struct, frozen=True):
    """One input of a model and its columns: one, or several columns of numbers side by side."""

    input: TensorField
    columns: tuple[Column, ...]


class ColumnTable:
    """The columns of data, with the fields of structs as columns of their own, and those without a rule."""

    def __init__(self, schema: pa.Schema, subject: str) -> None:
        """`subject` names the data in messages."""
        self.subject = subject
        self._columns: dict[str, list[Column | DataError]] = {}
        for field in schema:
            self._add(pa.field(field.name, field.type, metadata=field.metadata))

    @property
    def names(self) -> list[str]:
        """The names of all columns that can become tensors."""
        return [name for name, candidates in self._columns.items() if isinstance(candidates[0], Column)]

    @property
    def usable(self) -> list[Column]:
        """The columns that can become tensors."""
        return [
            candidate
            for candidates in self._columns.values()
            for candidate in candidates
            if isinstance(candidate, Column)
        ]

    def column(self, name: str, purpose: str) -> Column:
        """The column `name`; `purpose` names its use. Raises DataError when there is none, two, or no rule for it."""
        candidates = self._columns.get(name, [])
        if not candidates:
            shown = ", ".join(map(repr, self.names[:_SHOWN])) + (" ..." if len(self.names) > _SHOWN else "")
            raise DataError(
                f"{self.subject} has no column {name!r} {purpose}{did_you_mean(name, self._columns)}; its columns are "
                f"{shown}"
            )
        if len(candidates) > 1:
            raise DataError(f"{self.subject} has {len(candidates)} columns {name!r}, {purpose}: rename all but one")
        if isinstance(candidates[0], DataError):
            raise candidates[0]
        return candidates[0]

    def _add(self, field: pa.Field) -> None:
        kind = plain_type(field.type)
        try:
            for column in columns_of(pa.schema([field]), self.subject):
                self._columns.setdefault(column.name, []).append(column)
        except DataError as error:
            if not pa.types.is_struct(kind) or is_vector(kind) or not kind.num_fields:
                self._columns.setdefault(field.name, []).append(error)
                return
            for inner in kind:
                self._add(pa.field(f"{field.name}.{inner.name}", inner.type, metadata=inner.metadata))


def feeds_of(signature: ModelSignature, table: ColumnTable, columns: ColumnChoice) -> tuple[Feed, ...]:
    """The feed of each input of the model. Raises DataError for columns that cannot feed it, SpecError for `columns`
    of another type."""
    chosen = _chosen(signature, table, columns)
    feeds = []
    for field in signature.inputs:
        purpose = f"for the model's input {field}"
        feed = Feed(field, tuple(table.column(name, purpose) for name in chosen[field.name]))
        if problem := _problem(feed):
            raise DataError(f"{table.subject} does not fit the model: {problem}")
        feeds.append(feed)
    return tuple(feeds)


def _chosen(signature: ModelSignature, table: ColumnTable, columns: ColumnChoice) -> dict[str, tuple[str, ...]]:
    """The names of the columns of each input."""
    inputs = [field.name for field in signature.inputs]
    if columns is None:
        return _by_default(signature, table)
    if isinstance(columns, Mapping):
        named = {str(name): _names(value, f"columns[{name!r}]") for name, value in columns.items()}
        if unknown := [name for name in named if name not in inputs]:
            raise SpecError(
                f"columns names the input {unknown[0]!r}, which the model lacks{did_you_mean(unknown[0], inputs)}; its "
                f"inputs are {_listed(signature.inputs)}"
            )
        if missing := [name for name in inputs if name not in named]:
            raise SpecError(f"columns has no entry for the model's input {missing[0]!r}: add its column")
        return named
    names = _names(columns, "columns")
    if len(inputs) == 1:
        return {inputs[0]: names}
    if len(names) != len(inputs):
        raise SpecError(
            f"columns ({', '.join(names)}) are {len(names)} and the model has {len(inputs)} inputs: pass one for each, "
            f"in the order {', '.join(inputs)}, or a dict of columns by input"
        )
    return {field: (name,) for field, name in zip(inputs, names, strict=True)}


def _by_default(signature: ModelSignature, table: ColumnTable) -> dict[str, tuple[str, ...]]:
    inputs = [field.name for field in signature.inputs]
    if set(inputs) <= set(table.names):
        return {name: (name,) for name in inputs}
    if len(inputs) > 1:
        for input_name in inputs:
            table.column(input_name, "for the model's input of that name: name its column with columns={input: column}")
    fitting = [column.name for column in table.usable if not _problem(Feed(signature.inputs[0], (column,)))]
    if len(fitting) != 1:
        match = f"the columns {', '.join(map(repr, fitting))} fit" if fitting else "no column fits"
        raise DataError(
            f"{table.subject} has no column with the name of the model's input {signature.inputs[0]}, and {match} its "
            "type: name it with columns='name', or several columns of numbers with columns=['a', 'b']"
        )
    return {inputs[0]: (fitting[0],)}


def _problem(feed: Feed) -> str | None:
    """Why these columns cannot feed the input, as far as types show; None when they can."""
    field = feed.input
    first = feed.columns[0]
    if len(feed.columns) > 1:
        if not_numbers := [fed_column for fed_column in feed.columns if fed_column.kind is not ColumnKind.NUMBER]:
            column = not_numbers[0]
            return f"column {column.name!r} is of type {column.source}, and only numbers can be put side by side"
        if field.shape not in ((len(feed.columns),), (None,)):
            return f"{len(feed.columns)} columns are given for input {field}"
    elif first.kind is ColumnKind.NUMBER and not (field.scalar or field.shape == (None,)):
        return f"column {first.name!r} holds one number a row ({first.source}), and the model's input is {field}"
    elif first.kind is ColumnKind.ARRAY and field.scalar and field.shape == ():
        return f"column {first.name!r} holds arrays ({first.source}), and the model's input is {field}"
    for column in feed.columns:
        if not _castable(column, field.dtype):
            return (
                f"column {column.name!r} is of type {column.source}, and the model's input is {field}: cast it in Spark"
            )
    return None


def _castable(column: Column, dtype: str) -> bool:
    """Whether values of the column become values of this type without a loss of fractions."""
    if dtype == "string":
        return column.kind in (ColumnKind.TEXT, ColumnKind.BINARY)
    if column.kind is ColumnKind.TEXT:
        return False
    return dtype.startswith(("float", "bfloat")) or not column.dtype.startswith("float")


def _names(value: object, subject: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{subject} is {described(value)}, the name of a column or a list of names is expected")
    return tuple(names)


def _listed(fields: Sequence[TensorField]) -> str:
    return ", ".join(map(str, fields))
