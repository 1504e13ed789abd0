"""The layout of the package: one module and one public class for a name, and folders that a reader can take in."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.sources import PACKAGE, trees_in

SPECIAL = {"__init__", "__main__"}
GIVEN = {"tensorflowonspark/pipeline.py"}
"""Files with a name that another library has chosen."""
MOST_FILES = 30


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def modules() -> list[Path]:
    """All modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def classes(tree: ast.Module) -> list[str]:
    """The public classes that a module defines."""
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_a_module_name_is_there_once() -> None:
    own = [path for path in modules() if path.relative_to(PACKAGE).as_posix() not in GIVEN]
    assert repeated(path.stem for path in own if path.stem not in SPECIAL) == []


def test_a_public_class_name_is_there_once() -> None:
    assert repeated(name for tree in trees_in(PACKAGE).values() for name in classes(tree)) == []


def test_a_folder_has_few_files() -> None:
    files = Counter(path.parent for path in modules())
    assert {str(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


def test_repeated_names_are_found() -> None:
    assert repeated(["Send", "Refused", "Send"]) == ["Send"]
    assert classes(ast.parse("class Send: ...\nclass _Own: ...\ndef send() -> None: ...\n")) == ["Send"]
