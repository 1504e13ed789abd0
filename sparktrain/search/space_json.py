"""A space as JSON, so that a run can be resumed without the program that created the space."""

import itertools
from typing import Any

from sparktrain.errors import SpecError
from sparktrain.search.grid import MAX_TRIALS
from sparktrain.search.space import Cases, Grid, Space, When, Zipped, cases, grid, zipped

Document = dict[str, Any]


def to_document(space: Space, limit: int | None) -> Document:
    """Encode a space for `from_document`; a space with conditions becomes the list of its combinations.

    For a space with conditions and more than 100,000 combinations the list has the first `limit`; without a limit the
    document has only the space's description, and `from_document` refuses it.
    """
    if isinstance(space, Grid) and space.where is None and not any(isinstance(axis, When) for _, axis in space.axes):
        return {"kind": "grid", "values": {name: list(axis) for name, axis in space.axes if not isinstance(axis, When)}}
    if isinstance(space, Zipped):
        return {"kind": "zip", "values": {name: list(values) for name, values in _columns(space)}}
    if isinstance(space, Cases):
        return {"kind": "cases", "values": list(space)}
    if space.size <= MAX_TRIALS:
        return {"kind": "cases", "values": list(space)}
    if limit is None or limit > MAX_TRIALS:
        return {"kind": "unlisted", "values": str(space)}
    return {"kind": "cases", "values": list(itertools.islice(space, limit))}


def from_document(document: Document) -> Space:
    """Decode the space that `to_document` encoded. Raises SpecError for one that was too large."""
    values = document["values"]
    match document["kind"]:
        case "grid":
            return grid(values)
        case "zip":
            return zipped(values)
        case "cases":
            return cases(values)
    raise SpecError(
        f"the space ({values}) is too large to be stored with the run: resume it by the same call or command as before"
    )


def _columns(space: Zipped) -> list[tuple[str, tuple[Any, ...]]]:
    return list(zip(space.columns, zip(*space.rows, strict=True), strict=True))
