"""Spark's tasks over Arrow batches, for DataFrames with any names of columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]
_PARSED = ".`"
"""`DataFrame.mapInArrow` looks its columns up by name, and reads these characters as syntax."""


@dataclass(frozen=True)
class NamedBatches:
    """`function` over batches that get back their names; Spark pickles it."""

    function: Callable[[Batches], Batches]
    names: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        return self.function(batch.rename_columns(list(self.names)) for batch in batches)


def repeated_name(names: Sequence[str], used_names: Sequence[str]) -> str | None:
    """The first of `names` that Spark takes for another one, or for one of `used_names`; None without one.

    Spark compares names without their case unless it is configured otherwise, and so do most tables.
    """
    lower_names = {name.lower() for name in used_names}
    for name in names:
        if name.lower() in lower_names:
            return name
        lower_names.add(name.lower())
    return None


def map_in_arrow(frame: Any, function: Callable[[Batches], Batches], schema: Any) -> Any:
    """`frame.mapInArrow(function, schema)`, where columns have any names: with dots, or equal but for case.

    Starts no job.
    """
    names = tuple(frame.columns)
    distinct = len({name.lower() for name in names}) == len(names)
    if distinct and not any(mark in name for name in names for mark in _PARSED):
        return frame.mapInArrow(function, schema)
    plain = frame.toDF(*(f"_{place}" for place in range(len(names))))
    return plain.mapInArrow(NamedBatches(function, names), schema)
