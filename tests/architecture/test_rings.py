"""The innermost ring runs after each edit: none of its tests imports a framework, which alone takes seconds."""

import ast
from collections.abc import Iterator
from pathlib import Path

UNIT = Path(__file__).parents[1] / "unit"
FRAMEWORKS = {"tensorflow", "keras", "horovod"}
UNCALLED = UNIT / "config" / "test_uses.py"
"""Has a function with such an import, which is read and not called."""


def imported(tree: ast.Module) -> Iterator[str]:
    """The top-level packages that a module imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_unit_tests_import_no_framework() -> None:
    sources = {path: path.read_text("utf-8") for path in UNIT.rglob("*.py") if path != UNCALLED}
    assert len(sources) > 300
    named = {path: source for path, source in sources.items() if any(name in source for name in FRAMEWORKS)}
    assert [str(path) for path, source in named.items() if FRAMEWORKS & {*imported(ast.parse(source))}] == []


def test_imports_within_functions_are_seen() -> None:
    assert [*imported(ast.parse("def f():\n import a.b, c\n from d.e import g\n from . import h\n"))] == ["a", "c", "d"]
