"""Texts that the package can print, from its source."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.sources import PACKAGE, nodes_of, trees_in

VARYING = "…"


@cache
def templates() -> tuple[str, ...]:
    """Each text of the source on one line, with `…` in place of formatted values."""
    trees = trees_in(PACKAGE).values()
    return tuple(
        " ".join(text.split()) for tree in trees for node in _without_docstrings(tree) for text in _texts(node)
    )


def _without_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    nodes = nodes_of(tree)
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return (node for node in nodes if not (isinstance(node, ast.Constant) and id(node) in docstrings))


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else VARYING for part in node.values)
