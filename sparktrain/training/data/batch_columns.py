"""Which columns of a dataset make up the batches of a feed, and their types. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.config.param_values import described
from sparktrain.datasets.columns import Column, ColumnKind, chosen
from sparktrain.datasets.group_reader import array_specs
from sparktrain.datasets.row_arrays import Stack
from sparktrain.errors import DataError, SpecError

Names = str | Sequence[str]


@dataclass(frozen=True)
class Selection:
    """Which columns make up the parts of a batch."""

    features: Names
    labels: Names | None
    weight: str | None
    stack: Stack | None
    """The features, where they become one matrix."""
    names: tuple[str, ...]
    """All columns, each once."""
    types: tuple[tuple[str, tuple[int, ...]], ...]
    """The type and the shape of a row of each array that travels: see `arrays`."""

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        *,
        features: Names | None,
        labels: Names | None,
        weight: str | None,
        stack: bool,
        subject: str,
        floats: str,
    ) -> "Selection":
        """What the arguments of `to_tf` stand for; doubles become `floats`. Raises DataError, SpecError."""
        _check_names(features, labels, weight, subject)
        target_names = {*_listed(labels), *_listed(weight)}
        feature_names = (
            tuple(column.name for column in columns if column.name not in target_names)
            if features is None
            else features
        )
        parts = [*_listed(feature_names), *_listed(labels), *_listed(weight)]
        if not _listed(feature_names):
            raise SpecError(f"{subject} has no columns left for features: name them in feature_columns")
        picked = chosen(columns, dict.fromkeys(parts), subject)
        if weight is not None:
            _check_weight(chosen(columns, [weight], subject)[0], subject)
        if stack:
            _check_stackable(picked[: len(_listed(feature_names))], subject)
        matrix = Stack(tuple(_listed(feature_names)), floats) if stack else None
        selection = cls(feature_names, labels, weight, matrix, tuple(column.name for column in picked), ())
        specs = array_specs(columns, selection.names)
        kinds = {name: floats if kind == "float64" else kind for name, (kind, _) in specs.items()}
        types = [(kinds[name], specs[name][1]) for name in selection.single]
        stacked = [(matrix.dtype, (len(matrix.names),))] if matrix else []
        return replace(selection, types=(*stacked, *types))

    def arrays(self, columns: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """What travels to the framework, of the columns by name: the stack, and each other column."""
        arrays = [columns[name] for name in ((Stack.KEY, *self.single) if self.stack else self.single)]
        return [
            np.ascontiguousarray(array.astype(kind, copy=False))
            for array, (kind, _) in zip(arrays, self.types, strict=True)
        ]

    def batch(self, tensors: Sequence[Any]) -> Any:
        """`(x, y, w)` as far as there are any, of the tensors of `arrays`; `x` alone without labels and weights."""
        single = dict(zip(self.single, tensors[1:] if self.stack else tensors, strict=True))
        x = tensors[0] if self.stack else _picked(self.features, single)
        if self.labels is None and self.weight is None:
            return x
        y = None if self.labels is None else _picked(self.labels, single)
        return (x, y) if self.weight is None else (x, y, single[self.weight])

    @property
    def single(self) -> tuple[str, ...]:
        """The columns that travel as they are."""
        target_names = dict.fromkeys([*_listed(self.labels), *_listed(self.weight)])
        return tuple(target_names) if self.stack else self.names


def _picked(names: Names, tensors: Mapping[str, Any]) -> Any:
    return tensors[names] if isinstance(names, str) else {name: tensors[name] for name in names}


def _listed(names: Names | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _check_names(features: object, labels: object, weight: object, subject: str) -> None:
    if weight is not None and not isinstance(weight, str):
        raise SpecError(f"{subject}: weight_column is {described(weight)}, the name of one column is expected")
    for option, argument in (("feature_columns", features), ("label_columns", labels)):
        listed = [argument] if argument is None or isinstance(argument, str) else argument
        if not isinstance(listed, Sequence) or not all(name is None or isinstance(name, str) for name in listed):
            raise SpecError(
                f"{subject}: {option} is {described(argument)}, the name of a column or a list of names is expected"
            )
    if labels is not None and not labels:
        raise SpecError(f"{subject}: label_columns ({described(labels)}) names no column: leave it out, or name one")


def _check_weight(column: Column, subject: str) -> None:
    if column.kind is not ColumnKind.NUMBER:
        raise DataError(
            f"{subject}: weight_column {column.name!r} is {column.source}, and a weight is one number: name a column "
            "of numbers"
        )


def _check_stackable(columns: Sequence[Column], subject: str) -> None:
    wrong = [column.name for column in columns if column.kind is not ColumnKind.NUMBER]
    if wrong:
        raise DataError(
            f"{subject}: stack joins columns of numbers, and {', '.join(map(repr, wrong))} are none: name the "
            f"others in feature_columns, or pass stack=False"
        )
