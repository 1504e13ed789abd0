"""The table in docs/reference/test-all.md of what `make test-all` has beyond `make test`.

Its rows are the `all` markers of the tests: `pytest.mark.all(case="...", covered_by="...")`. `make tables` writes it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "test-all.md"
START = "<!-- all-table: written by make tables -->\n\n"
END = "\n<!-- all-table: end -->\n"
HEAD = "| file | case in `make test-all` | its form in `make test` |\n|---|---|---|\n"


@dataclass(frozen=True)
class Marker:
    """One `all` marker, as its module has it."""

    file: str
    """Path of the module below tests/, without its suffix."""
    line: int
    case: str = ""
    covered_by: str = ""

    @property
    def row(self) -> str:
        """The row of the table."""
        return f"| `{self.file}` | {self.case} | {self.covered_by} |\n"


def markers(tests: Path) -> list[Marker]:
    """The markers of all modules of a folder, in the order of files and lines; those of parameters too."""
    paths = [path for path in sorted(tests.rglob("*.py")) if "mark.all" in path.read_text("utf-8")]
    return [marker for path in paths for marker in _of_module(path, tests)]


def table(listed: list[Marker]) -> str:
    """The table, with the two comments around it."""
    return START + HEAD + "".join(marker.row for marker in listed) + END


def current(page: str) -> str:
    """The table that a page has."""
    return START + page.partition(START)[2].partition(END)[0] + END


def _of_module(path: Path, tests: Path) -> Iterator[Marker]:
    file = path.relative_to(tests).with_suffix("").as_posix()
    # Modules are parsed: to import all tests takes a minute, and needs Horovod.
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    marks = [node for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.all"]
    for mark in sorted(marks, key=lambda node: node.lineno):
        call = calls.get(id(mark))
        texts = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords} if call else {}
        yield Marker(file, mark.lineno, **texts)


def main() -> None:
    """Write the table into its page."""
    page = PAGE.read_text("utf-8")
    PAGE.write_text(page.replace(current(page), table(markers(ROOT / "tests"))), "utf-8")


if __name__ == "__main__":
    main()
