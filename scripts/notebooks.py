"""Writes each example with cells (`# %%`) as a notebook without outputs, beside it: `python -m scripts.notebooks`."""

import json
import re
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[1] / "examples"
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


class Cell(NamedTuple):
    """One cell of an example."""

    is_text: bool
    source: str


def cells(program: str) -> list[Cell]:
    """The cells of a program; none where it has no marks."""
    _, *parts = _CELL.split(program)
    return [
        Cell(True, re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)) if mark else Cell(False, body.strip())
        for mark, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def with_cells() -> list[Path]:
    """The examples that are notebooks too."""
    return [path for path in sorted(EXAMPLES.rglob("*.py")) if cells(path.read_text("utf-8"))]


def notebook(program: str) -> str:
    """The program as a notebook, in format 4.5 of Jupyter."""
    document = {
        "cells": [_stored(number, cell) for number, cell in enumerate(cells(program))],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _stored(number: int, cell: Cell) -> dict[str, object]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": cell.source.splitlines(keepends=True)}
    if cell.is_text:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}


def main() -> None:
    """Write all notebooks."""
    for path in with_cells():
        path.with_suffix(".ipynb").write_text(notebook(path.read_text("utf-8")), "utf-8")
        print(path.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
