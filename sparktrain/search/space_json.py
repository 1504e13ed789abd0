"""A space as JSON, so that a run can be resumed without the program that created the space."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, cast

from sparktrain.config import distribution
from sparktrain.config.distribution import Distribution
from sparktrain.errors import SpecError
from sparktrain.search.grid import MAX_TRIALS
from sparktrain.search.sampled_space import ConstantValue, Leaf, NestedValues, Node, SampledSpace
from sparktrain.search.space import ABSENT, Cases, Grid, ListedSpace, Space, When, Zipped, cases, grid, zipped

Document = dict[str, Any]


def to_document(space: Space, limit: int | None) -> Document:
    """Encode a space for `from_document`; a list with conditions becomes the list of its combinations.

    For such a list with more than 100,000 combinations the document has the first `limit`; without a limit it has only
    the space's description, and `from_document` refuses it. So it does with a sampled space that has conditions.
    """
    if isinstance(space, SampledSpace):
        conditions = {"conditions": True} if space.has_code else {}
        return {"kind": "sampled", "values": _nodes(space.nodes)} | conditions
    if isinstance(space, Grid) and space.where is None and not any(isinstance(axis, When) for _, axis in space.axes):
        return {"kind": "grid", "values": {name: list(axis) for name, axis in space.axes if not isinstance(axis, When)}}
    if isinstance(space, Zipped):
        return {"kind": "zip", "values": {name: list(values) for name, values in _columns(space)}}
    listed = cast(ListedSpace, space)
    if isinstance(space, Cases):
        return {"kind": "cases", "values": list(listed)}
    if listed.size <= MAX_TRIALS:
        return {"kind": "cases", "values": list(listed)}
    if limit is None or limit > MAX_TRIALS:
        return {"kind": "unlisted", "values": str(space)}
    return {"kind": "cases", "values": list(itertools.islice(listed, limit))}


def is_stored(document: Document) -> bool:
    """Whether `from_document` can decode it: conditions are functions, and a large list is left out."""
    return document["kind"] != "unlisted" and "conditions" not in document


def from_document(document: Document) -> Space:
    """Decode the space that `to_document` encoded. Raises SpecError for one that cannot be stored."""
    values = document["values"]
    match document["kind"]:
        case "grid":
            return grid(values)
        case "zip":
            return zipped(values)
        case "cases":
            return cases(values)
        case "sampled" if "conditions" not in document:
            return SampledSpace(_from_nodes(values))
        case "sampled":
            raise SpecError(
                "the space has conditions (when, where), which are functions and are not stored with the run: resume "
                "it by the same call or command as before"
            )
    raise SpecError(
        f"the space ({values}) is too large to be stored with the run: resume it by the same call or command as before"
    )


def _columns(space: Zipped) -> list[tuple[str, tuple[Any, ...]]]:
    return list(zip(space.columns, zip(*space.rows, strict=True), strict=True))


def _nodes(nodes: NestedValues) -> Document:
    return {name: _of_node(node) for name, node in nodes.entries}


def _of_node(node: Node) -> Document:
    match node:
        case Distribution():
            return distribution.to_document(node)
        case ConstantValue(value=value):
            return {"value": value}
        case NestedValues():
            return {"dict": _nodes(node)}
        case When(values=values, otherwise=otherwise):
            fallback = {} if otherwise is ABSENT else {"otherwise": otherwise}
            return {"when": _of_node(cast(Node, values))} | fallback
    return {"list": list(node)}


def _from_nodes(document: Document) -> NestedValues:
    return NestedValues(tuple((name, _from_node(child)) for name, child in document.items()))


def _from_node(document: Document) -> Node:
    match document:
        case {"value": value}:
            return ConstantValue(value)
        case {"dict": nested}:
            return _from_nodes(nested)
        case {"list": values}:
            return tuple(values)
    return distribution.from_document(document)


def stored_leaves(document: Document) -> dict[str, Leaf]:
    """The lists and distributions of a stored space by their paths, also where it has conditions.

    A space that lists whole cases has none.
    """
    return {path: cast(Leaf, _from_node(node)) for path, node, _ in _stored(document) if "value" not in node}


def node_texts(document: Document) -> dict[str, str]:
    """Each parameter of a stored space by its path, as a call writes it: `loguniform(1e-05, 0.1)`, `[64, 256]`.

    A space that lists whole cases has none. Raises SpecError, KeyError or TypeError for one of a newer version.
    """
    return {path: f"{_text(node)}{condition}" for path, node, condition in _stored(document)}


def _stored(document: Document) -> Iterator[tuple[str, Document, str]]:
    """Each parameter of a stored space: its path, its node, and that it is under a condition."""
    if document["kind"] == "sampled":
        yield from _nodes_of(document["values"], "")
    elif document["kind"] in ("grid", "zip"):
        yield from ((name, {"list": values}, "") for name, values in document["values"].items())


def _nodes_of(nodes: Document, prefix: str) -> Iterator[tuple[str, Document, str]]:
    for name, node in nodes.items():
        inner = node.get("when", node)
        if "dict" in inner:
            yield from _nodes_of(inner["dict"], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner, ", under a condition" if "when" in node else ""


def _text(node: Document) -> str:
    if "value" in node or "list" in node:
        return _json(node.get("value", node.get("list")))
    return str(distribution.from_document(node))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
