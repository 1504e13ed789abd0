"""Columns of a DataFrame for the features of `tf.train.Example`, found in a sample of records. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparktrain.errors import DataError

Features = Mapping[str, tuple[str, Sequence[Any]]]
"""Kind and values of each feature of a record: see `tf_examples.features_of`."""

_TYPES = {"int64": ("bigint", pa.int64()), "float32": ("double", pa.float64()), "bytes": ("binary", pa.binary())}
_TEXT = ("string", pa.string())


@dataclass(frozen=True)
class ExampleColumn:
    """The column of one feature."""

    name: str
    kind: str
    """`int64`, `float32` or `bytes`."""
    lists: bool
    text: bool
    """The bytes are strings in UTF-8."""

    @property
    def spark_type(self) -> str:
        """Its type in Spark's DDL."""
        plain = (_TEXT if self.text else _TYPES[self.kind])[0]
        return f"array<{plain}>" if self.lists else plain

    @property
    def arrow_type(self) -> pa.DataType:
        """Its type in Arrow."""
        plain = (_TEXT if self.text else _TYPES[self.kind])[1]
        return pa.list_(plain) if self.lists else plain

    def value(self, features: Features) -> Any:
        """The value of a row; None where the record has none. Raises DataError for one that does not fit."""
        kind, values = features.get(self.name, ("", ()))
        if not len(values):
            return None
        if kind != self.kind or (len(values) > 1 and not self.lists):
            raise DataError(
                f"feature {self.name!r} has {len(values)} of {kind}, and its column takes "
                f"{'lists of' if self.lists else 'one'} {self.kind}: pass schema=, or write the records again"
            )
        try:
            plain = [raw_value.decode() for raw_value in values] if self.text else list(values)
        except UnicodeDecodeError as error:
            raise DataError(f"feature {self.name!r} is no text ({error}): name it in binary_features") from error
        return plain if self.lists else plain[0]


def columns_of_types(types: Mapping[str, str], subject: str) -> tuple[ExampleColumn, ...]:
    """The columns of these names with these types of Spark, in this order. Raises DataError for other types."""
    kinds = {plain: kind for kind, (plain, _) in _TYPES.items()} | {_TEXT[0]: "bytes"}
    columns = []
    for name, spelled in types.items():
        inner = spelled.removeprefix("array<").removesuffix(">")
        if inner not in kinds:
            raise DataError(
                f"{subject}: column {name!r} of schema is {spelled}, and features become {', '.join(kinds)} and arrays "
                "of them: load it as one of these, and cast it afterwards"
            )
        columns.append(ExampleColumn(name, kinds[inner], inner != spelled, inner == _TEXT[0]))
    return tuple(columns)


def columns_of_examples(
    sample: Mapping[str, Sequence[Features]], binary: Sequence[str], subject: str
) -> tuple[ExampleColumn, ...]:
    """The columns of records, sorted by name. `sample` has records by file. Raises DataError.

    A feature that no record of the sample sets is a column of strings, and null.
    """
    kinds: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    several: set[str] = set()
    for file, records in sample.items():
        for features in records:
            names.update(features)
            for name, (kind, values) in features.items():
                if not len(values):
                    continue
                prior, where = kinds.setdefault(name, (kind, file))
                if prior != kind:
                    raise DataError(
                        f"{subject}: feature {name!r} has {kind} values in {file}, and {prior} values in {where}: load "
                        "these files apart"
                    )
                if len(values) > 1:
                    several.add(name)
    if not names:
        raise DataError(f"{subject}: no record has features: check the path")
    if unknown := sorted(set(binary) - names):
        raise DataError(
            f"{subject}: binary_features names {unknown[0]!r}, and the records have {', '.join(sorted(names))}"
        )
    column_kinds = {name: kinds.get(name, ("bytes", ""))[0] for name in sorted(names)}
    return tuple(
        ExampleColumn(name, kind, name in several, kind == "bytes" and name not in binary)
        for name, kind in column_kinds.items()
    )
