"""docs/development.md lists each case that only `make test-all` runs, and names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "development.md"
FILE = re.compile(r"`(\w+(?:/\w+)*/test_\w+)`")


def rows() -> list[list[str]]:
    """The cells of each row of the list."""
    lines = PAGE.read_text().partition("| file | case in `make test-all` |")[2].splitlines()[2:]
    return [line.strip("|").split("|") for line in lines if line.startswith("|")]


def test_each_file_with_a_case_for_test_all_is_listed() -> None:
    marked = {
        path.relative_to(TESTS).with_suffix("").as_posix()
        for path in TESTS.rglob("test_*.py")
        if re.search(r"\bmark\.all\b", path.read_text()) and path != Path(__file__)
    }
    assert marked == {FILE.findall(row[0])[0] for row in rows()}


def test_each_listed_file_exists() -> None:
    named = {name for row in rows() for cell in row for name in FILE.findall(cell)}
    assert len(named) > 10
    assert sorted(name for name in named if not (TESTS / f"{name}.py").exists()) == []
