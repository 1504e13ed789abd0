"""docs/architecture.md names the packages, layers and modules that exist."""

import re
import tomllib
from pathlib import Path

import sparktrain
from scripts.house import entries

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sparktrain"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
HOMES = [PACKAGE, PACKAGE / "training", ROOT]
"""Where a path on the page starts."""
MADE = {"site"}
"""Folders that commands make."""
OTHERS = {"checkup_task", "is_averaged", "local_context"}
"""Words with an underscore on the page that are no modules."""
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \|", re.MULTILINE)


def layers() -> dict[str, int]:
    """The layer of each package and module in the table, from 1 at the bottom."""
    return {name: int(number) for number, names in ROW.findall(PAGE) for name in re.findall(r"`(\w+)/?`", names)}


def contract() -> dict[str, int]:
    """The same as import-linter checks it."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    rows = [re.split(r" [|:] ", layer) for layer in reversed(config["layers"]) if layer != "__main__"]
    return {name: number for number, row in enumerate(rows, 1) for name in row}


def exists(path: str) -> bool:
    """Whether a path, with or without `.py`, or with a function at its end, is in the tree."""
    module, _, function = path.rpartition(".")
    for home in HOMES:
        if (home / path).exists() or (home / f"{path}.py").exists():
            return True
        if module and (file := home / f"{module}.py").exists() and re.search(rf"\b{function}\b", file.read_text()):
            return True
    return False


def test_the_table_has_the_layers_that_imports_are_checked_by() -> None:
    assert layers() == contract()


def test_each_package_is_named() -> None:
    packages = [file.parent.relative_to(PACKAGE) for file in PACKAGE.rglob("__init__.py") if file.parent != PACKAGE]
    missing = [package for package in packages if not re.search(rf"[`/]{package.name}/", PAGE)]
    assert [str(package) for package in missing if f"`{package.name}`" not in PAGE] == []


def test_each_path_exists() -> None:
    paths = [path.strip("/") for path in re.findall(r"`([\w.]+/[\w./]*)`", PAGE)]
    assert len(paths) > 60
    assert [path for path in paths if path not in MADE and not exists(path) and not is_subpackage(path)] == []


def test_each_module_exists() -> None:
    modules = {file.stem for folder in (PACKAGE, ROOT / "tests") for file in folder.rglob("*.py")}
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE))
    assert len(names) > 15
    assert names - modules == OTHERS


def is_subpackage(path: str) -> bool:
    """Whether the last package of the path's row has it: a row names its own packages without their parent."""
    return any(folder.is_dir() for folder in PACKAGE.glob(f"*/{path}"))


def test_a_path_that_is_missing_is_found() -> None:
    assert exists("driver/launch.launch")
    assert not exists("driver/launch.launch_nothing")
    assert not exists("driver/no_such_module")


def test_the_docstring_of_the_package_names_each_entry() -> None:
    names = re.findall(r"`(\w+)`|^    (\w+)  ", sparktrain.__doc__ or "", re.MULTILINE)
    assert entries(PACKAGE) - {"__init__", "__main__"} == {quoted or listed for quoted, listed in names}
