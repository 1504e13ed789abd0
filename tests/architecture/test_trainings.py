"""The matrix of docs/how-a-trial-lives.md is that of tests/trainings.csv, and each test that it names exists."""

import re
from pathlib import Path

from tests import trainings

TESTS = Path(__file__).parents[1]


def test_the_page_has_the_matrix() -> None:
    page = trainings.PAGE.read_text("utf-8")
    assert trainings.current(page) == trainings.table(), "make tables writes it"
    assert len(page.splitlines()) <= 150


def test_each_cell_names_a_test_or_denies() -> None:
    cells = trainings.cells()
    assert {cell["event"] for cell in cells} == set(trainings.EVENTS)
    assert len({(cell["training"], cell["event"]) for cell in cells}) == len(cells)
    assert len(cells) == len({cell["training"] for cell in cells}) * len(trainings.EVENTS), "no cell is empty"
    assert [cell for cell in cells if (cell["word"] == "not") == bool(cell["test"])] == []
    assert [cell["test"] for cell in cells if cell["test"] and not is_test(cell["test"])] == []


def is_test(node: str) -> bool:
    file, _, name = node.partition("::")
    path = TESTS / f"{file}.py"
    return path.is_file() and bool(re.search(rf"^def {name}\(", path.read_text("utf-8"), re.MULTILINE))
