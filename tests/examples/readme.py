"""The programs and commands of the README, and the output that it shows."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FOLDER = re.compile(r" /\S*/(?=sparktrain-runs/)")
_NUMBER = re.compile(r"\d+(?:[.:-]\d+)*(?: s\b)?")


def programs() -> list[tuple[str, str]]:
    """Each block of Python, and its output: the next block without a language."""
    blocks = _BLOCK.findall((ROOT / "README.md").read_text())
    found = []
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            printed = next(after for kind, after in blocks[number + 1 :] if not kind)
            found.append((text, printed))
    return found


def commands() -> list[list[str]]:
    """The lines of each block of a shell, up to the section on development."""
    page = (ROOT / "README.md").read_text().partition("## To work on it")[0]
    texts = [text for language, text in _BLOCK.findall(page) if language == "console"]
    return [[line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")] for text in texts]


def shape(printed: str) -> list[list[str]]:
    """`printed` as words, with a mark for each number: numbers differ from run to run."""
    lines = [_NUMBER.sub("#", _FOLDER.sub(" ", line)).split() for line in printed.strip().splitlines()]
    return [[word for word in line if word != "best"] for line in lines]
