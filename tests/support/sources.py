"""The sources of the repository for tests that read them: each is parsed once in a process."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sparktrain"


def trees_in(folder: Path) -> dict[Path, ast.Module]:
    """The syntax of all modules in a folder, by their paths, sorted."""
    was_on = gc.isenabled()
    gc.disable()  # a million nodes that stay: collecting garbage among them takes longer than parsing
    try:
        return {path: _parsed(path) for path in sorted(folder.rglob("*.py"))}
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), path.name)


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a module, without those that mark whether a name is read or assigned."""
    found: list[ast.AST] = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, list):
                found.extend(each for each in value if isinstance(each, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found
