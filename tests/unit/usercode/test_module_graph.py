"""Which modules the code of a package imports, and which it leaves alone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktrain.usercode.imports import Sources
from sparktrain.usercode.module_graph import reached_imports
from sparktrain.usercode.serialize import preload_choice
from sparktrain.usercode.target import resolve


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package on `sys.path`; its modules import nothing yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "ship_graph"
    for name in ("__init__", "train", "other", "models/__init__", "models/dense", "models/parts/__init__", "top"):
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    yield folder
    for name in [each for each in sys.modules if each.partition(".")[0] == "ship_graph"]:
        del sys.modules[name]


def reached(*modules: str) -> set[str]:
    return {name for name in reached_imports(Sources(), modules).modules if not name.startswith("ship_")}


def test_only_modules_that_are_imported_count(package: Path) -> None:
    (package / "train.py").write_text("import ship_graph.models.dense\n")
    (package / "models/dense.py").write_text("import numpy\n")
    (package / "other.py").write_text("import tensorflow\n")
    assert reached("ship_graph.train.train") == {"numpy"}


def test_packages_above_a_module_run_too(package: Path) -> None:
    (package / "__init__.py").write_text("import pandas\n")
    (package / "models/__init__.py").write_text("import scipy\n")
    assert reached("ship_graph.models.dense") == {"pandas", "scipy"}


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("train.py", "from .models.dense import build"),
        ("train.py", "from .models import dense"),
        ("train.py", "from . import models"),
        ("models/__init__.py", "from .dense import build"),
        ("models/__init__.py", "from . import dense"),
        ("models/parts/__init__.py", "from ..dense import build"),
        ("models/parts/__init__.py", "from ...models.dense import build"),
        ("train.py", "from ship_graph.models.dense import *"),
        ("train.py", "def f():\n    from .models import dense"),
    ],
)
def test_relative_imports_are_followed(package: Path, file: str, line: str) -> None:
    (package / "models/dense.py").write_text("import numpy\n")
    if line.endswith("import models"):
        (package / "models/__init__.py").write_text("from .dense import build\n")
    (package / file).write_text(f"{line}\n")
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert reached(f"ship_graph.{name}") == {"numpy"}


def test_a_circle_of_imports_ends(package: Path) -> None:
    (package / "train.py").write_text("from . import other\nimport numpy\n")
    (package / "other.py").write_text("from . import train\nimport scipy\n")
    assert reached("ship_graph.train") == {"numpy", "scipy"}


@pytest.mark.parametrize(
    "line", ["from importlib import import_module", "import importlib\nimportlib.import_module('ship_graph.other')"]
)
def test_all_modules_of_a_package_count_when_it_imports_by_computed_names(package: Path, line: str) -> None:
    (package / "train.py").write_text(f"{line}\n")
    (package / "models/parts/__init__.py").write_text("from ...top import x\n")
    (package / "top.py").write_text("import numpy\n")
    assert "numpy" in reached("ship_graph.train")


def test_a_relative_import_beyond_the_package_is_left_to_the_executor(package: Path) -> None:
    (package / "train.py").write_text("from .....far import away\nimport numpy\n")
    assert reached("ship_graph.train") == {"numpy"}


def test_a_variable_that_another_module_names_does_not_keep_a_library_from_the_zygote(package: Path) -> None:
    (package / "train.py").write_text("import numpy\ndef train():\n    pass\n")
    (package / "other.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    assert preload_choice(resolve("ship_graph.train:train")).modules == ("numpy",)
    (package / "train.py").write_text("from . import other\nimport numpy\ndef train():\n    pass\n")
    assert preload_choice(resolve("ship_graph.train:train")).modules == ()
