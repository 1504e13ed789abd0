"""The same code has the same fingerprint in any process and at any line; other code has another."""

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktrain.usercode.fingerprint import fingerprint
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target

SOURCE = """
import functools
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np

NAMES = {"a", "b", "cc", "dd"}
NUMBERS = np.arange(5)
OBJECTS = np.array(["a", None, Decimal(3)], dtype=object)
DAYS = np.array(["2026-01-31"], dtype="datetime64[D]")
PLACE = Path("/data") / "images"
LIST = [1, 2.5]
LIST.append(LIST)


class Kind(Enum):
    ONE = 1


@dataclass(slots=True)
class Config:
    lr: float = 0.5


class Base:
    def shared(self):
        return 1


class Net(Base):
    size = 3

    def __init__(self, x):
        self.x = x

    def go(self):
        return self.x in ("q", "w") or self.x in {"u", "v", "z"}

    @staticmethod
    def still():
        return 2

    @classmethod
    def made(cls):
        return cls(4)

    @property
    def twice(self):
        return 2 * self.x


CONFIG = Config(0.3)
NET = Net(5)


@functools.lru_cache
def cached(x):
    return x + 1


def helper(x, y={"k": 1}):
    return (lambda z: z in {"one", "two", "three"})(x) and (x, y, json.dumps(x))


def train(lr, optimizer="sgd", *, ctx):
    class Local:
        width = 7

    def inner(q):
        return q in {"alpha", "beta", "gamma"} or cached(q)

    used = CONFIG, NET, NUMBERS, OBJECTS, DAYS, PLACE, LIST, NAMES, Kind.ONE, Local, Net.made()
    return inner(lr) or helper(3) or used or 1e-3
"""
SHOW = """
import json, sys
from sparktrain.usercode.fingerprint import fingerprint
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target
print(json.dumps(fingerprint(Target.of(train), pack(train))))
"""


def parts(function: Callable[..., Any]) -> dict[str, str]:
    return fingerprint(Target.of(function), pack(function))


def defined(source: str) -> dict[str, str]:
    """The parts of `train` of a notebook or script with this source."""
    names: dict[str, Any] = {"__name__": "__main__"}
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        sys.modules["__main__"].__dict__.update(names)
        exec(compile(source, "<cell>", "exec"), sys.modules["__main__"].__dict__)
        return parts(sys.modules["__main__"].train)
    finally:
        sys.modules["__main__"] = main


def printed(arguments: list[str], hash_seed: int) -> dict[str, str]:
    """The parts that a process of its own prints."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_other_processes_lines_and_files_make_no_difference(tmp_path: Path) -> None:
    script, moved = tmp_path / "script.py", tmp_path / "moved.py"
    script.write_text(SOURCE + SHOW)
    moved.write_text('"""Trains."""\n\n# More of it.\nUNUSED = 3\n\n\n' + SOURCE + SHOW)
    expected = defined(SOURCE)
    assert printed([str(script)], 0) == expected
    assert printed([str(moved)], 1) == expected
    assert printed(["-c", SOURCE + SHOW], 2) == expected


def test_a_cell_that_is_run_again_makes_no_difference() -> None:
    cell = f"{SOURCE}\nprint(1)\n{SHOW}"
    lines = ["from IPython.core.interactiveshell import InteractiveShell", "shell = InteractiveShell.instance()"]
    code = "\n".join([*lines, *(f"shell.run_cell({text!r}).raise_error()" for text in ("1", cell, "# x\n" + cell))])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=True)
    first, second = (line for line in done.stdout.decode().splitlines() if line.startswith("{"))
    assert first == second


CHANGES = {  # what is there, and what in place of it
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


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(change: str) -> None:
    old, new = (text.replace("\\n", "\n") for text in CHANGES[change])
    assert SOURCE.count(old) == 1, change
    assert defined(SOURCE.replace(old, new)) != defined(SOURCE)


def test_what_the_function_does_not_use_makes_no_difference() -> None:
    assert defined(f"UNUSED = 1\n{SOURCE}") == defined(f"UNUSED = 2\n{SOURCE}") == defined(SOURCE)
    assert defined(SOURCE.replace("class Net", "# why\nclass Net")) == defined(SOURCE)


def test_a_library_counts_by_its_names() -> None:
    source = "from json import dumps\nimport numpy as np\n\ndef train(x):\n    return dumps(x), np.mean, Path\n"
    library = types.FunctionType((lambda: 1).__code__, {}, "dumps")
    library.__module__, library.__qualname__ = "json", "dumps"
    other = "import numpy as np\n\ndef train(x):\n    return dumps(x), np.mean, Path\n"
    names: dict[str, Any] = {"dumps": library, "__name__": "__main__"}
    exec(other, names)
    assert parts(names["train"]) == defined(source)


def test_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fingerprinted_model.py").write_text("def build():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import fingerprinted_model\n\ndef train(x):\n    return fingerprinted_model.build()\n"
    before = defined(source)
    assert sorted(before) == ["fingerprinted_model.py", "function train"]
    (tmp_path / "fingerprinted_model.py").write_text("def build():\n    return 2\n")
    after = defined(source)
    assert [name for name in before if before[name] != after[name]] == ["fingerprinted_model.py"]
