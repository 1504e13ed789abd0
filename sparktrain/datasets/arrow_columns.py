"""Which Arrow types become columns of a dataset, and how to convert the others. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from sparktrain.datasets.columns import Column, ColumnKind, check_known, one_a_line
from sparktrain.errors import DataError

_VECTOR = ("type", "size", "indices", "values")
_MATRIX = ("type", "numRows", "numCols", "colPtrs", "rowIndices", "values", "isTransposed")
_DEEPEST = 2


class ForeignType(pa.ExtensionType):  # type: ignore[misc] # PyArrow has no types
    """In the place of a type that Arrow lacks, so that a message names its column beside all others."""

    def __init__(self, spelled: str) -> None:
        """`spelled` is the type as its source has it."""
        self.spelled = spelled
        super().__init__(pa.null(), "sparktrain.foreign")

    def __str__(self) -> str:
        return self.spelled

    def __arrow_ext_serialize__(self) -> bytes:
        """See base class."""
        return self.spelled.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "ForeignType":
        """See base class."""
        return cls(serialized.decode())


def columns_of(
    schema: pa.Schema, subject: str, names: Sequence[str] | None = None, more_problems: Sequence[str] = ()
) -> tuple[Column, ...]:
    """The columns that data of this schema gives: those of `names`, in that order, or all. `subject` is for messages.

    Raises DataError, with every unknown name, or with every column that has no rule and how to convert it;
    `more_problems` of the caller come last.
    """
    leaves = list(_leaves(schema))
    if names is not None:
        check_known(names, [name for name, _ in leaves], subject)
        leaves = [leaf for name in names for leaf in leaves if leaf[0] == name]
    columns: list[Column] = []
    problems: list[str] = []
    for name, kind in leaves:
        column = _column(name, kind)
        (columns if isinstance(column, Column) else problems).append(column)  # type: ignore[arg-type]
    names = [tensor_column.name for tensor_column in columns]
    problems += [
        f"column {duplicate!r} exists twice once structs are flattened: rename one"
        for duplicate in dict.fromkeys(_twice(names))
    ]
    problems += more_problems
    if problems:
        raise DataError(one_a_line(f"{subject} has columns that cannot become tensors", problems))
    if not columns:
        raise DataError(f"{subject} has no columns: select at least one")
    return tuple(columns)


def is_vector(kind: pa.DataType) -> bool:
    """Whether this is a vector of Spark ML as Arrow sees it."""
    return pa.types.is_struct(kind) and tuple(field.name for field in kind) == _VECTOR


def _leaves(schema: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Names and types of all columns, with the fields of structs as columns of their own."""
    for field in schema:
        kind = plain_type(field.type)
        name = f"{prefix}{field.name}"
        if isinstance(field.type, ForeignType):
            yield name, field.type
        elif pa.types.is_struct(kind) and not is_vector(kind) and not _refused_struct(kind, field):
            yield from _leaves(kind, f"{name}.")
        else:
            yield name, kind if not _refused_struct(kind, field) else field.type


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without extension, dictionary and 64-bit offsets, which are only ways to store it."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def _column(name: str, kind: pa.DataType) -> Column | str:
    """The column of an Arrow type, or why it has none and what to do."""
    source = _spelled(kind)
    if isinstance(kind, ForeignType):
        return f"column {name!r} is {_article(source)}: {_foreign_advice(source)}"
    if _is_number(kind):
        return Column(name, ColumnKind.NUMBER, _dtype(kind), source)
    if pa.types.is_string(kind):
        return Column(name, ColumnKind.TEXT, "object", source)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return Column(name, ColumnKind.BINARY, "uint8", source, None)
    if is_vector(kind):
        return Column(name, ColumnKind.ARRAY, "float32", "vector", None)
    if pa.types.is_list(kind):
        values = kind.value_type
        depth = 1
        while pa.types.is_list(values):
            values = values.value_type
            depth = depth + 1
        if _is_number(values) and depth <= _DEEPEST:
            return Column(name, ColumnKind.ARRAY, _dtype(values), source, None)
    return f"column {name!r} is {_article(source)}: {_advice(name, kind)}"


def _advice(name: str, kind: pa.DataType) -> str:
    """How to convert a type that has no rule."""
    if pa.types.is_decimal(kind):
        return f"a tensor has no decimals; select cast({name} as double), which rounds beyond 15 digits"
    if pa.types.is_date(kind):
        return f"a tensor has no dates; select unix_date({name}) in Spark, or parts of the date"
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return (
            f"a tensor has no times; select unix_micros({name}) in Spark, or convert it with astype('int64') in pandas"
        )
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "a tensor has no intervals; select its length as a number"
    if pa.types.is_map(kind):
        return f"a tensor has no maps; select its entries as columns, such as {name}['key']"
    if pa.types.is_null(kind):
        return "it holds only nulls; drop it"
    if pa.types.is_struct(kind):
        return "matrices and variants have no shape of their own; select their numbers as an array"
    if pa.types.is_list(kind):
        return "only lists of numbers, and lists of such lists, become tensors; index or explode it"
    return "it has no counterpart among tensors; cast it to a number, a string or an array of numbers"


def _foreign_advice(source: str) -> str:
    """How to convert a type that Arrow lacks."""
    if "interval" in source:
        return "a tensor has no intervals, and Arrow has none of this kind; select its length as a number"
    return "neither Arrow nor a tensor has such values; cast it to a number or a string, or leave it out"


def _refused_struct(kind: pa.DataType, field: pa.Field) -> bool:
    if not pa.types.is_struct(kind):
        return False
    metadata = {**(field.metadata or {})}
    variant = any((child.metadata or {}).get(b"variant") == b"true" for child in kind) or b"variant" in metadata
    return variant or tuple(child.name for child in kind) == _MATRIX


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _dtype(kind: pa.DataType) -> str:
    return str(kind.to_pandas_dtype().__name__).rstrip("_") if not pa.types.is_boolean(kind) else "bool"


def _spelled(kind: pa.DataType) -> str:
    text = str(kind)
    return text.replace("list<element: ", "list<").replace("list<item: ", "list<")


def _article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _twice(names: Sequence[str]) -> list[str]:
    return [name for index, name in enumerate(names) if name in names[:index]]
