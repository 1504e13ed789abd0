"""The tables of options in docs/, and the types in `config.call_arguments`, made from the catalog.

`python -m sparktrain.cli.option_tables` rewrites them.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparktrain.config import call_option, option_catalog
from sparktrain.config.call_option import Declared, Keywords, options_in, source_of

CALLS: dict[str, type[Keywords]] = {
    "sweep": option_catalog.SweepKeywords,
    "launch": option_catalog.LaunchKeywords,
    "run": option_catalog.RunKeywords,
    "resume": option_catalog.ResumeKeywords,
    "extend": option_catalog.ExtendKeywords,
    "refit": option_catalog.RefitKeywords,
    "pool": option_catalog.PoolKeywords,
}
_COLUMNS = ("option", "type", "default", "meaning", "of")
ARGUMENTS = Path(call_option.__file__).with_name("call_arguments.py")
_BLOCK = re.compile(r"(<!-- options: [^>]*-->\n).*?(<!-- end of options -->)", re.DOTALL)
_HEADER = '''"""What callers may pass by name, for type checkers and editors; `cli.option_tables` writes this module."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, Required, TypedDict

from sparktrain.config.backends import Backend
from sparktrain.config.stoppers import StopRule
from sparktrain.config.tracking_options import MLflow

# fmt: off
# ruff: noqa: E501
'''


def written(page: str) -> str:
    """The text of a page with each of its tables rewritten: between `<!-- options ... -->` and its end."""
    return _BLOCK.sub(lambda match: f"{match[1]}{chr(10).join(_rows(_COLUMNS, _of_calls()))}\n{match[2]}", page)


def _of_calls() -> Iterator[tuple[str, ...]]:
    """A row for each option; calls that share its definition share the row."""
    rows: dict[tuple[str, str, str, bool], tuple[Declared, list[str]]] = {}
    for call, keywords in CALLS.items():
        for name, option in options_in(keywords).items():
            key = (name, option.option.doc, option.option.default_text, option.option.required)
            rows.setdefault(key, (option, []))[1].append(call)
    for option, calls in rows.values():
        yield f"`{option.name}`", f"`{_shown_type(option)}`", _default(option), _meaning(option), ", ".join(calls)


def _rows(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _shown_type(declared: Declared) -> str:
    """The type as a user writes its values."""
    return re.sub(r"(?<!\[)Literal\[(.*?)\]", lambda match: match[1].replace(", ", " | "), source_of(declared.type))


def _meaning(declared: Declared) -> str:
    option = declared.option
    link = f"[More]({option.page})." if option.page else ""
    return " ".join(filter(None, [option.doc, option.details, link]))


def _default(declared: Declared) -> str:
    return "required" if declared.option.required else declared.option.default_words


def arguments_module() -> str:
    """The source of `config.call_arguments`: for each class of the catalog a dict type of what callers may pass."""
    classes = [kind for name, kind in vars(option_catalog).items() if re.fullmatch(r"\w+Keywords", name)]
    return _HEADER + "".join(map(_arguments_class, classes))


def _arguments_class(keywords: type[Keywords]) -> str:
    bases = [base.__name__.replace("Keywords", "Arguments") for base in keywords.__bases__ if base is not Keywords]
    name = keywords.__name__.replace("Keywords", "Arguments")
    lines = [f"\nclass {name}({', '.join(bases or ['TypedDict'])}, total=False):"]
    for option in vars(keywords).get("__annotations__", ()):
        declared = options_in(keywords)[option]
        source = source_of(declared.type)
        lines.append(f"    {option}: {f'Required[{source}]' if declared.option.required else source}")
    return "\n".join([*lines, ""]) if lines[1:] else f"{lines[0]} ...\n"


def write(folder: Path) -> None:
    """Write the types of arguments, and the tables of the pages in `folder`. Blocks on the disk."""
    ARGUMENTS.write_text(arguments_module(), "utf-8")
    for page in sorted(folder.glob("*.md")):
        text = page.read_text("utf-8")
        if (new_text := written(text)) != text:
            page.write_text(new_text, "utf-8")


if __name__ == "__main__":
    write(Path("docs"))
