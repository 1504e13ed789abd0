"""A hook of mkdocs: the pages of the site that are made from the tree, and links of pages to files beside docs/.

The command line reference comes from the Typer definition that parses the command line; each example is a page with its
source; the changelog is a page of the site.
"""

import re
import sys
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
COMMAND_LINE = "reference/command-line-options.md"
_TO_EXAMPLE = re.compile(r"\((?:\.\./)+examples/(?:notebooks/|scripts/)?(\w+)\.(?:py|ipynb)\)")
_TO_CHANGELOG = re.compile(r"\((?:\.\./)+CHANGELOG\.md(#[^)]*)?\)")
_TO_PAGE = re.compile(r"\]\(docs/([^)]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the examples into the navigation, in place of their folder."""
    sys.path.insert(0, str(ROOT))  # mkdocs loads a hook from its file
    config.nav = _with_examples(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {COMMAND_LINE: command_line_page(), "changelog.md": changelog_page()}
    pages |= {f"examples/{source.stem}.md": example_page(source) for source in examples()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to the tree at the pages that are made of it."""
    up = "../" * page.file.src_uri.count("/")
    markdown = _TO_EXAMPLE.sub(rf"({up}examples/\1.md)", markdown)
    return _TO_CHANGELOG.sub(lambda match: f"({up}changelog.md{match[1] or ''})", markdown)


def changelog_page() -> str:
    """The changelog as a page beside those of docs/: its links start at the root of the tree."""
    return _TO_PAGE.sub(r"](\1)", (ROOT / "CHANGELOG.md").read_text("utf-8"))


def examples() -> list[Path]:
    """The programs in examples/ and below, by name."""
    return sorted((ROOT / "examples").rglob("*.py"), key=lambda path: path.stem)


def example_page(source: Path) -> str:
    """A page with the source of one example; texts between its cells are texts of the page."""
    from scripts.notebooks import cells

    program = source.read_text("utf-8")
    if not (parts := cells(program)):
        return f"# {source.name}\n\n```python\n{program}```\n"
    return "\n\n".join(each.source if each.is_text else f"```python\n{each.source}\n```" for each in parts) + "\n"


def command_line_page() -> str:
    """Each command with its usage, arguments and options, in the order of `sparktrain --help`."""
    from sparktrain.cli.command_table import application

    group: Any = typer.main.get_command(application())
    lines = [
        "# Command line options",
        "",
        "Every command and option, generated from the definition that parses the command line. "
        "[The command line](../command-line.md) explains how the commands work together.",
    ]
    for name, command in group.commands.items():
        lines += _command(name, command)
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> list[str]:
    arguments = [each.metavar for each in command.params if each.param_type_name == "argument"]
    lines = ["", f"## sparktrain {name}", "", command.help.replace("\b\n", ""), ""]
    lines += ["```text", " ".join([f"sparktrain {name}", "[OPTIONS]", *arguments]), "```"]
    panels: dict[str, list[Any]] = {}
    for each in command.params:
        is_argument = each.param_type_name == "argument"
        panels.setdefault("Arguments" if is_argument else each.rich_help_panel or "Options", []).append(each)
    for panel, parameters in panels.items():
        lines += ["", f"**{panel}**", "", "| | |", "|---|---|"]
        lines += [f"| {_written(each)} | {_cell(each.help or '')} |" for each in parameters if not each.hidden]
    if examples_of := getattr(command, "examples", ""):
        lines += ["", "**Examples**", "", "```text", examples_of.rstrip(), "```"]
    if codes := getattr(command, "codes", {}):
        lines += ["", f"**{command.heading}**", "", "| code | meaning |", "|---|---|"]
        lines += [f"| {code} | {_cell(meaning)} |" for code, meaning in codes.items()]
    return lines


def _written(parameter: Any) -> str:
    """A parameter as it is written on the command line."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    value = f" {parameter.metavar}" if parameter.metavar else ""
    return ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in parameter.opts)


def _cell(text: str) -> str:
    """Text as a cell of a table holds it."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _with_examples(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_with_examples(each) for each in nav]
    if isinstance(nav, dict):
        pages = [f"examples/{source.stem}.md" for source in examples()]
        return {title: pages if under == "examples/" else _with_examples(under) for title, under in nav.items()}
    return nav
