"""Texts that the package can print, from its source."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "sparktrain"
VARYING = "…"


def templates() -> list[str]:
    """Each text of the source on one line, with `…` in place of formatted values."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return [" ".join(text.split()) for tree in trees for node in _nodes(tree) for text in _texts(node)]


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node`, without docstrings."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from _nodes(child)


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else VARYING for part in node.values)
