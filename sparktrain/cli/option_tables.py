"""The tables of options in docs/, made from the catalog: `python -m sparktrain.cli.option_tables` rewrites them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparktrain.config.call_option import Declared, options_in, shown_type
from sparktrain.config.continuing_options import ExtendKeywords, RefitKeywords
from sparktrain.config.option_catalog import (
    LaunchKeywords,
    PoolKeywords,
    ResumeKeywords,
    RunKeywords,
    SweepKeywords,
)

CALLS: dict[str, type] = {
    "sweep": SweepKeywords,
    "launch": LaunchKeywords,
    "run": RunKeywords,
    "resume": ResumeKeywords,
    "extend": ExtendKeywords,
    "refit": RefitKeywords,
    "pool": PoolKeywords,
}
_BLOCK = re.compile(r"(<!-- options: [^>]*-->\n).*?(<!-- end of options -->)", re.DOTALL)


def written(page: str) -> str:
    """The text of a page with each of its tables rewritten: between `<!-- options ... -->` and its end."""
    return _BLOCK.sub(lambda match: f"{match[1]}{chr(10).join(_table())}\n{match[2]}", page)


def _table() -> Iterator[str]:
    yield from _rows(("option", "type", "default", "meaning", "of"), _of_calls())


def _of_calls() -> Iterator[tuple[str, ...]]:
    """A row for each option; calls that share its definition share the row."""
    rows: dict[tuple[str, str, str, bool], tuple[Declared, list[str]]] = {}
    for call, keywords in CALLS.items():
        for name, option in options_in(keywords).items():
            key = (name, option.option.doc, option.option.says, option.required)
            rows.setdefault(key, (option, []))[1].append(call)
    for option, calls in rows.values():
        yield f"`{option.name}`", f"`{shown_type(option.type)}`", _default(option), _meaning(option), ", ".join(calls)


def _rows(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _meaning(declared: Declared) -> str:
    option = declared.option
    link = f"[More]({option.page})." if option.page else ""
    return " ".join(filter(None, [option.doc, option.details, link]))


def _default(declared: Declared) -> str:
    return "must be given" if declared.required else declared.option.default_words


def write(folder: Path) -> None:
    """Write the tables of the pages in `folder`. Blocks on the disk."""
    for page in sorted(folder.glob("*.md")):
        text = page.read_text("utf-8")
        if (new_text := written(text)) != text:
            page.write_text(new_text, "utf-8")


if __name__ == "__main__":
    write(Path("docs"))
