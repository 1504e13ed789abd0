"""The same code has the same fingerprint in any process and at any line; other code has another."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.unit.driver.fingerprints import SOURCE, defined, parts

CHANGES = {  # the original, and its replacement
    "a constant": ("or 1e-3", "or 1e-4"),
    "a default value": ('optimizer="sgd"', 'optimizer="adam"'),
    "a nested function": ("or cached(q)", "and cached(q)"),
    "a set of words": ('"beta"', '"delta"'),
    "a class within it": ("width = 7", "width = 8"),
    "a function that it calls": ("json.dumps(x))", "json.dumps([x]))"),
    "a default value of that": ('{"k": 1}', '{"k": 2}'),
    "a lambda in that": ('"two", "three"}', '"two", "four"}'),
    "a cached function": ("return x + 1", "return x + 2"),
    "an object of a dataclass": ("Config(0.3)", "Config(0.4)"),
    "an object of a class": ("NET = Net(5)", "NET = Net(6)"),
    "a method": ('("q", "w")', '("q", "x")'),
    "a static method": ("return 2\\n", "return 3\\n"),
    "a class method": ("cls(4)", "cls(5)"),
    "a property": ("2 * self.x", "3 * self.x"),
    "a class attribute": ("size = 3", "size = 4"),
    "a method of a base class": ("return 1\\n", "return 10\\n"),
    "an array": ("np.arange(5)", "np.arange(6)"),
    "an array of objects": ("Decimal(3)", "Decimal(4)"),
    "an array of dates": ("2026-01-31", "2026-01-30"),
    "a path": ('"images"', '"pictures"'),
    "an enumeration": ("ONE = 1", "ONE = 2"),
    "a list": ("[1, 2.5]", "[1, 2.25]"),
}


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    """The parts of the program as it is."""
    return defined(SOURCE)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(change: str, original: dict[str, str]) -> None:
    old, new = (text.replace("\\n", "\n") for text in CHANGES[change])
    assert SOURCE.count(old) == 1, change
    assert defined(SOURCE.replace(old, new)) != original


def test_unused_values_do_not_matter(original: dict[str, str]) -> None:
    assert defined(f"UNUSED = 1\n{SOURCE}") == defined(f"UNUSED = 2\n{SOURCE}") == original
    assert defined(SOURCE.replace("class Net", "# why\nclass Net")) == original


def test_a_library_counts_by_its_names() -> None:
    source = "from json import dumps\nimport numpy as np\n\ndef train(x):\n    return dumps(x), np.mean, Path\n"
    library = types.FunctionType((lambda: 1).__code__, {}, "dumps")
    library.__module__, library.__qualname__ = "json", "dumps"
    other = "import numpy as np\n\ndef train(x):\n    return dumps(x), np.mean, Path\n"
    names: dict[str, Any] = {"dumps": library, "__name__": "__main__"}
    exec(other, names)
    assert parts(names["train"]) == defined(source)


def test_a_container_of_python_counts_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from sys import path, modules\n\ndef train(x):\n    return path, modules\n"
    before = defined(source)
    monkeypatch.setitem(sys.modules, "of_another_process", types.ModuleType("of_another_process"))
    monkeypatch.syspath_prepend("elsewhere")
    assert defined(source) == before


def test_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fingerprinted_model.py").write_text("def build():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import fingerprinted_model\n\ndef train(x):\n    return fingerprinted_model.build()\n"
    before = defined(source)
    assert sorted(before) == ["fingerprinted_model.py", "function train"]
    (tmp_path / "fingerprinted_model.py").write_text("def build():\n    return 2\n")
    after = defined(source)
    assert [name for name in before if before[name] != after[name]] == ["fingerprinted_model.py"]
