"""What may happen to each kind of training, by the test that shows it: tests/trainings.csv as the matrix of a page.

`make tables` writes it. A row of the file has a word and the test that shows it, or "not" for what does not exist.
A test of `faults/test_loops` runs for the loops of the rows that name it.
"""

import csv
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "how-a-trial-lives.md"
START = "<!-- trainings: written by make tables -->\n\n"
END = "\n<!-- trainings: end -->\n"
EVENTS = ["lost", "hangs", "drained", "slow", "driver lost", "grows", "shrinks", "standby", "in memory", "split"]


def cells() -> list[dict[str, str]]:
    """Each cell with `training`, `event`, `word` and `test`."""
    return list(csv.DictReader(Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines()))


def shown_by(test: str) -> list[str]:
    """The trainings with a cell that names `test`."""
    return list(dict.fromkeys(cell["training"] for cell in cells() if cell["test"] == test))


def table() -> str:
    """The matrix, with the two comments around it."""
    words = {(cell["training"], cell["event"]): cell["word"] for cell in cells()}
    rows = [["training", *EVENTS], ["---"] * (1 + len(EVENTS))]
    for training in dict.fromkeys(cell["training"] for cell in cells()):
        rows.append([training, *(words[training, event] for event in EVENTS)])
    return START + "".join(f"| {' | '.join(row)} |\n" for row in rows) + END


def current(page: str) -> str:
    """The matrix that a page has."""
    return START + page.partition(START)[2].partition(END)[0] + END


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(text.replace(current(text), table()), "utf-8")
