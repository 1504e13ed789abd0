"""What the documentation points to is there, and what it shows can be run."""

import ast
import re
from pathlib import Path

import pytest

import sparktrain

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
KNOWN = {*sparktrain.__all__, *dir(sparktrain)}
WITH_TENSORFLOW = {"Warmup"}
"""Names whose import loads TensorFlow: tests/training/test_schedule.py imports them."""
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_resolve(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_pages_parses_and_uses_public_names(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("st", "sparktrain")
            ):
                assert node.attr in KNOWN, f"{page.name} uses sparktrain.{node.attr}"


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in KNOWN - WITH_TENSORFLOW if not hasattr(sparktrain, name)] == []
    assert KNOWN >= WITH_TENSORFLOW


def test_completion_finds_what_users_call() -> None:
    found = [name for name in dir(sparktrain) if not name.startswith("_")]
    assert {"sweep", "run", "launch", "pool", "resume", "grid", "Warmup", "TrainContext"} <= set(found)
    assert [name for name in found if name.endswith("Error")] == [
        "InfraError", "RunFailedError", "SparktrainError", "UserError",
    ]  # fmt: skip
    assert set(found) <= KNOWN
