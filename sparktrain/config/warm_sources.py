"""What `warm_start=` may name: directories of former runs, tables of results, and points to try first."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from sparktrain.config.param_values import check_name, described, plain
from sparktrain.errors import SpecError

_KINDS = "pass a run directory, a result, a pandas DataFrame, a list of dicts of parameters, or a list of these"


@dataclass(frozen=True)
class FormerRun:
    """A former run: the sampler learns its results."""

    directory: str


@dataclass(frozen=True)
class FormerTable:
    """A table of results that the sampler learns: a row for each trial."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        return f"a table of {len(self.rows)} rows ({_digest(self.rows)})"


@dataclass(frozen=True)
class FirstPoints:
    """Parameters of the first trials."""

    rows: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return f"{len(self.rows)} points ({_digest(self.rows)})"


WarmSource = FormerRun | FormerTable | FirstPoints


def warm_sources(value: object, subject: str = "warm_start") -> tuple[WarmSource, ...]:
    """The sources in `value`; points of one list stay together. Raises SpecError."""
    if isinstance(value, FormerRun | FormerTable | FirstPoints):
        return (value,)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        points = [(index, point) for index, point in enumerate(value) if isinstance(point, Mapping)]
        references = [reference for reference in value if not isinstance(reference, Mapping)]
        sources = [source for reference in references for source in warm_sources(reference, subject)]
        rows = tuple(_point(point, f"{subject}[{index}]") for index, point in points)
        return (*sources, *([FirstPoints(rows)] if rows else []))
    if isinstance(value, Mapping):
        return (FirstPoints((_point(value, subject),)),)
    if isinstance(value, str | os.PathLike):
        if not (path := os.fspath(value)) or not isinstance(path, str):
            raise SpecError(f"{subject} is {described(value)}, an empty path: name the directory of a former run")
        return (FormerRun(path),)
    if hasattr(value, "columns") and hasattr(value, "itertuples"):
        frame = cast(Any, value)
        cells = tuple(tuple(map(_item, row)) for row in frame.itertuples(index=False, name=None))
        return (FormerTable(tuple(map(str, frame.columns)), cells),)
    if isinstance(directory := getattr(value, "directory", None), str):
        return (FormerRun(directory),)
    raise SpecError(f"{subject} is {described(value)}; {_KINDS}")


def _point(row: Mapping[Any, object], subject: str) -> dict[str, Any]:
    if not row:
        raise SpecError(f"{subject} is an empty dict, a point has all parameters of the space: write {{'lr': 0.1}}")
    return {check_name(name, subject): plain(value, f"{subject}: {name!r}") for name, value in row.items()}


def _item(value: Any) -> Any:
    """A cell as Python has it: None where it is missing."""
    cell = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    return None if (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType") else cell


def _digest(rows: object) -> str:
    return hashlib.sha256(msgspec.json.encode(rows, enc_hook=str)).hexdigest()[:8]
